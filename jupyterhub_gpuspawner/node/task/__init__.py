"""One of several tasks that srun starts on a node: its part of the GPUs and CPUs."""
