"""The companion of JupyterLab."""

from __future__ import annotations

from jupyterhub_gpuspawner.extension import Extension

EXTENSION = Extension(
    name="lab",
    about="Shows the time left, notices and More time in JupyterLab.",
    profile_fields=".settings:FIELDS",
    hub=".hub:HUB",
    spawner_settings=".settings:LabSettings",
    launcher=".carried:CARRIED",
)
