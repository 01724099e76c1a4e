"""Dividing GPUs and CPUs among several tasks that srun starts on a node."""
