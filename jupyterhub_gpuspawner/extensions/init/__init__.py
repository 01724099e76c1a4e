"""A hub's first configuration and profiles, made from what Slurm says of its cluster."""

from jupyterhub_gpuspawner.extension import Command, Extension

EXTENSION = Extension(
    name="init",
    about="Writes a hub's first configuration and profiles, from what Slurm says of its cluster.",
    commands={
        "init": Command(
            ".cli:init",
            "Write a hub's first configuration and profiles into DIR, from what Slurm says of its cluster.",
            unconfigured="`gpuspawner init DIR` writes a configuration and profiles for your cluster, from what Slurm "
            "says of it.",
        )
    },
)
