"""Jobs on several nodes, and programs that run on all GPUs of a job."""

from __future__ import annotations

from jupyterhub_gpuspawner.extension import Extension

EXTENSION = Extension(
    name="several_nodes",
    about="Shows where a job on several nodes runs, and brings gpuspawner-run to every server.",
    launcher=".carried:CARRIED",
)
