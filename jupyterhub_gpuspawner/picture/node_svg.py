"""A node drawn: packages, NUMA nodes, cores, GPUs, NICs and the links between them, as SVG and as words. Pure.

The SVG stands by itself or inside a page. Its colours are custom properties: light, dark by the reader's setting
(``prefers-color-scheme``), or as an element around it says with Bootstrap's ``data-bs-theme``. Colour is never alone:
what is the job's own is also marked with a tick and a thicker edge, its cores with a dot. Every text is escaped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.picture.drawing import Drawing
from jupyterhub_gpuspawner.picture.node_words import summary, table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jupyterhub_gpuspawner.placement.topology import NodeTopology

__all__ = ["summary", "svg", "table"]


def svg(
    topology: NodeTopology, *, own_gpus: Iterable[int] = (), own_cpus: Iterable[int] = (), title: str = "Node"
) -> str:
    """The node as one ``<svg>`` element. GPUs are positions into ``topology.gpus``, CPUs kernel numbers.

    Its ``<title>`` is ``title`` and its ``<desc>`` the :func:`summary`; :func:`table` says all that it shows.
    """
    return Drawing(topology, frozenset(own_gpus), frozenset(own_cpus)).svg(title)
