"""Jobs on several nodes, and programs that run on all GPUs of a job."""

from __future__ import annotations

from jupyterhub_gpuspawner.extension import Command, Extension

EXTENSION = Extension(
    name="several_nodes",
    about="Shows where a job on several nodes runs, and brings gpuspawner-run to every server.",
    commands={
        "run": Command(
            ".cli:run",
            "Run COMMAND as one job step on the nodes and GPUs of this job, each rank bound to its part of its node.",
        )
    },
    hub=".hub:HUB",
    launcher=".carried:CARRIED",
)
