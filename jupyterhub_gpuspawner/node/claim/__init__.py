"""Claiming GPUs by file locks, on nodes whose GPUs Slurm does not allocate."""
