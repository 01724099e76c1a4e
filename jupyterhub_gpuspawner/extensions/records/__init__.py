"""A record of each session."""

from jupyterhub_gpuspawner.extension import Extension

EXTENSION = Extension(
    name="records",
    about="Keeps a record of each session, learns from past waits, and finds nodes on which starts fail.",
    hub=".hub:HUB",
)
