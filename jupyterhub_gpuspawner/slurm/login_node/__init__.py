"""Slurm's commands on another machine, usually a login node reached by ssh."""
