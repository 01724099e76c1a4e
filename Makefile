# A thin front: each target is a script that works without make.
.PHONY: demo test lint
demo test lint:
	@scripts/$@ $(ARGS)
