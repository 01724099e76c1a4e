"""Bandwidth measurements on a compute node: what binding to the wrong socket costs there."""

from jupyterhub_gpuspawner.extension import Command, Extension

EXTENSION = Extension(
    name="bandwidth",
    about="Measures how fast a node copies between its memory and its GPUs, from each NUMA node.",
    commands={
        "bandwidth": Command(
            ".cli:bandwidth",
            "Measure copies of pinned memory to and from each GPU, bound to each NUMA node and unbound.",
        )
    },
)
