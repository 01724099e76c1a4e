"""What servers use of their GPUs, cores and memory."""

from __future__ import annotations

from jupyterhub_gpuspawner.extension import Extension

EXTENSION = Extension(
    name="usage",
    about="Samples what servers use of their GPUs, cores and memory, and shows it.",
    launcher=".carried:CARRIED",
)
