# Each target runs a script of the same name, which also works without make.
.PHONY: demo test lint docs bench soak
demo test lint docs bench soak:
	@scripts/$@ $(ARGS)
