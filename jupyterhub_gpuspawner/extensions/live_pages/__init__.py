"""Pages that change as soon as what they show does."""

from jupyterhub_gpuspawner.extension import Extension

EXTENSION = Extension(
    "live_pages",
    "Keeps the home page up to date by a stream of its changes, in place of a look now and then.",
    hub=".hub:HUB",
)
