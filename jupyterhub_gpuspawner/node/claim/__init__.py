"""GPUs of a node without Slurm's help: claimed by locks."""
