# A thin front: each target is a script that works without make.
.PHONY: demo test lint bench
demo test lint bench:
	@scripts/$@ $(ARGS)
