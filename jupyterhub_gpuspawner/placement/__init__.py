"""Choosing GPUs, CPUs and NUMA nodes on a node; standard library only."""
