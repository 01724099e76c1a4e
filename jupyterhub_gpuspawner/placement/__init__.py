"""Which GPUs and CPUs a server gets on its node; standard library only."""
