"""Web applications in the place of JupyterLab."""

from __future__ import annotations

from jupyterhub_gpuspawner.extension import Extension

EXTENSION = Extension(
    name="applications",
    about="Runs web applications such as VS Code and Streamlit behind the hub's sign-in (app).",
    profile_fields=".fields:FIELDS",
    launcher=".carried:CARRIED",
)
