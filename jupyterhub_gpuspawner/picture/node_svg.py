"""A picture of a node as SVG: packages, NUMA nodes, cores, GPUs, NICs and the links between them. Pure.

The SVG works by itself or inside a page. Its colours are custom properties for light and dark, chosen by the reader's
setting (``prefers-color-scheme``) or by Bootstrap's ``data-bs-theme`` on an enclosing element. Colour is never the only
sign: the job's own GPUs are also marked with a tick and a thicker edge, its cores with a dot. All text is escaped.
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
    """The node as one ``<svg>`` element. GPUs are positions in ``topology.gpus``, CPUs are kernel numbers.

    Its ``<title>`` is ``title`` and its ``<desc>`` the :func:`summary`; :func:`table` has the same content as text.
    """
    return Drawing(topology, frozenset(own_gpus), frozenset(own_cpus)).svg(title)
