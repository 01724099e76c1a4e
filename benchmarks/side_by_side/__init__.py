"""The parts of ``benchmarks/load.py``: one Slurm, four spawners in turn, and what each of them costs."""
