"""Idle servers: their users are told, they are stopped where their profile says so, and the time is recorded."""

from __future__ import annotations

from jupyterhub_gpuspawner.extension import Command, Extension

EXTENSION = Extension(
    name="idle",
    about="Finds servers that do not use their GPUs, tells their users, and stops them where the profile says so.",
    profile_fields=".fields:FIELDS",
    needs=("usage",),
    hub=".hub:HUB",
    spawner_settings=".settings:IdleSettings",
    commands={
        "idle": Command(
            ".cli:idle",
            "List servers that were idle for as long as their profile allows, with the GPU-hours that they held "
            "unused.",
        )
    },
    checks=".checks",
    forget=".times:forget",
)
