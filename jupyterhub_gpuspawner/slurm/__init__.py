"""The only room that runs Slurm commands: client, parsers, and the one watcher."""
