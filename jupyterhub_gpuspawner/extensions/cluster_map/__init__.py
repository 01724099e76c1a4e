"""The administrators' map of the cluster: each node with its GPUs, who uses them, and which are out of service."""

from jupyterhub_gpuspawner.extension import Extension

EXTENSION = Extension(
    name="cluster_map",
    about="Shows administrators the nodes and GPUs of each cluster, and who is using them.",
    hub=".hub:HUB",
)
