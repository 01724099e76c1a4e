"""What a hub's log says of settings of batchspawner and wrapspawner that have no effect here."""

from jupyterhub_gpuspawner.extension import Extension

EXTENSION = Extension(
    "inherited",
    "Names settings of batchspawner and wrapspawner that have no effect, when the hub starts.",
    hub=".hub:HUB",
)
