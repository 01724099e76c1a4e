# Each target runs a script of the same name, which also works without make.
.PHONY: demo test lint bench soak
demo test lint bench soak:
	@scripts/$@ $(ARGS)
