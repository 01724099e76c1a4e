# Each target runs a script of the same name, which also works without make.
.PHONY: demo test test-all lint docs bench soak
demo test test-all lint docs bench soak:
	@scripts/$@ $(ARGS)
