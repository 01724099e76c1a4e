"""The choice that has more memory: for a server that has run out of it, and for JupyterLab's warning before."""

from __future__ import annotations

from jupyterhub_gpuspawner.extension import Extension

EXTENSION = Extension(
    name="more_memory",
    about="Proposes the profile that has more memory where a server has run out of it.",
    hub=".hub:HUB",
)
