"""Servers claim GPUs that Slurm does not manage, by locks on their node."""

from __future__ import annotations

from jupyterhub_gpuspawner.extension import Extension

EXTENSION = Extension(
    name="claims",
    about="Lets servers claim GPUs on their node where Slurm does not allocate them (placement.claim).",
    launcher=".carried:CARRIED",
)
