"""What ``benchmarks/load.py`` is made of: one Slurm, four spawners in turn, and what each costs."""
