"""Slurm's job states and reasons, and what they mean."""
