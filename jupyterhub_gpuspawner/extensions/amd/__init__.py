"""AMD's GPUs, and Intel's: read from the kernel's files, without a tool on the node, and named for ROCm's programs."""

from __future__ import annotations

from jupyterhub_gpuspawner.extension import Extension

EXTENSION = Extension(
    name="amd",
    about="Places servers on AMD's GPUs as on NVIDIA's, and binds them beside Intel's.",
    launcher=".carried:CARRIED",
)
