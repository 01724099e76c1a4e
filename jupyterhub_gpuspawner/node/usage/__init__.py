"""Samples of what a server uses of its GPUs, cores and memory."""
