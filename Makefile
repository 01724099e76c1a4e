# A thin front: each target is a script that works without make.
.PHONY: demo test lint bench soak
demo test lint bench soak:
	@scripts/$@ $(ARGS)
