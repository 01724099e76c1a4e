"""A hub that has no file left for a connection."""

from jupyterhub_gpuspawner.extension import Extension

EXTENSION = Extension(
    "open_files",
    "Says so once a minute where the hub has no file left for a connection, and pauses for a second, in place of "
    "thousands of lines.",
    hub=".hub:HUB",
)
