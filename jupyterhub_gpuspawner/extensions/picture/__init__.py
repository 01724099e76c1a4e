"""The node of a server as a picture: on its card, in JupyterLab, of ``gpuspawner topology``; and the same in words."""

from __future__ import annotations

from jupyterhub_gpuspawner.extension import Extension

EXTENSION = Extension(
    name="picture",
    about="Draws the node of a server, with its GPUs, cores and links.",
    hub=".hub:HUB",
    command_options={"topology": ".cli:with_svg"},
)
