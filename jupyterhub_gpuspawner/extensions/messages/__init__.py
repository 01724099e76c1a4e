"""Messages of administrators to people, shown on the hub's pages and in JupyterLab."""

from jupyterhub_gpuspawner.extension import Command, Extension

EXTENSION = Extension(
    "messages",
    "Administrators tell people something, on the hub's pages and in JupyterLab.",
    hub=".hub:HUB",
    commands={"message": Command(".cli:message", "Show TEXT to people on the hub's pages and in JupyterLab.")},
)
