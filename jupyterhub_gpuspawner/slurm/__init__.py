"""Runs Slurm's commands: client, parsers of their output, and the job watcher."""
