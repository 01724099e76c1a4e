"""What comes from batchspawner and wrapspawner: settings that have no effect here, and servers that still run."""

from jupyterhub_gpuspawner.extension import Extension

EXTENSION = Extension(
    "inherited",
    "Names settings of batchspawner and wrapspawner that have no effect, when the hub starts; says where a server runs "
    "that they started.",
    hub=".hub:HUB",
)
