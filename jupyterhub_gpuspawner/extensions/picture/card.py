"""The picture of a server's node on its card, with its GPUs and CPUs marked, and the same in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from markupsafe import Markup

from jupyterhub_gpuspawner.extensions.picture import drawing
from jupyterhub_gpuspawner.extensions.picture.node import table
from jupyterhub_gpuspawner.hub.extension import Place, ServerPart, WithServer
from jupyterhub_gpuspawner.hub.report.server_report import parsed, position
from jupyterhub_gpuspawner.hub.spawners.server import Server, ServerState, kept_with
from jupyterhub_gpuspawner.placement.topology import NodeTopology
from jupyterhub_gpuspawner.units import parse_cpulist
from jupyterhub_gpuspawner.wire.documents import PlacementDocument

TITLE = "The whole node"
Drawable = tuple[NodeTopology, tuple[int, ...], tuple[int, ...]]
"""A node, the positions of a server's GPUs in it, and its CPUs."""


@dataclass(frozen=True)
class Picture:
    """A node, with what a server has of it."""

    node: str
    """Its name."""
    svg: Markup
    in_words: tuple[tuple[str, str], ...]
    """Each NUMA node, GPU and NIC: a name and a text."""


class NodePicture(WithServer):
    """What is drawn of a server's node, found once for each report."""

    def __init__(self, spawner: Any) -> None:
        super().__init__(spawner)
        self._reported: tuple[PlacementDocument, Mapping[str, Any] | None] | None = None
        self._drawable: Drawable | None = None

    def drawable(self, placement: PlacementDocument | None, topology: Mapping[str, Any] | None) -> Drawable | None:
        """The arguments of a drawing; None where there is none."""
        if placement is None:
            return None
        known = self._reported
        if known is None or known[0] is not placement or known[1] is not topology:
            self._reported, self._drawable = (placement, topology), drawable_of(placement, topology)
        return self._drawable


def drawable_of(placement: PlacementDocument, topology: Mapping[str, Any] | None) -> Drawable | None:
    """The node, and the positions of GPUs and the CPUs that the server has of it; None where the two contradict.

    That is where the topology lacks GPUs or CPUs that the placement names, and where there is none that can be read.
    """
    node = parsed(topology)
    if node is None:
        return None
    try:
        own_cpus = parse_cpulist(placement.cpus)
    except ValueError:
        return None
    own_gpus = [position(node, gpu) for gpu in placement.gpus]
    present_cpus = {cpu for numa_node in node.numa_nodes for cpu in numa_node.cpus}
    if None in own_gpus or (present_cpus and not present_cpus.issuperset(own_cpus)):
        return None
    return node, tuple(gpu for gpu in own_gpus if gpu is not None), own_cpus


def picture_of(placement: PlacementDocument, topology: Mapping[str, Any] | None) -> Picture | None:
    """The picture of a node; None where there is none."""
    drawable = drawable_of(placement, topology)
    return _picture(placement.node, drawable) if drawable is not None else None


def _picture(node: str, drawable: Drawable) -> Picture:
    svg, in_words = _drawn(*drawable)
    return Picture(node, svg, in_words)


@lru_cache(maxsize=256)
def _drawn(
    node: NodeTopology, own_gpus: tuple[int, ...], own_cpus: tuple[int, ...]
) -> tuple[Markup, tuple[tuple[str, str], ...]]:
    """A picture, and the same in words; cached, since it takes milliseconds, and JupyterLab asks every minute."""
    drawn = drawing.svg(node, own_gpus=own_gpus, own_cpus=own_cpus, title=TITLE)
    # the picture escapes every text in it
    return Markup(drawn), tuple(table(node, own_gpus=own_gpus, own_cpus=own_cpus))  # noqa: S704


def _mark(drawable: Drawable) -> Markup:
    node, own_gpus, own_cpus = drawable
    return Markup(drawing.mark(node, own_gpus=own_gpus, own_cpus=own_cpus))  # noqa: S704 - numbers only


def parts_of(spawner: Any, server: Server) -> Iterator[ServerPart]:
    """The part of a running server; its picture is drawn when the card is shown."""
    kept = kept_with(spawner, NodePicture)
    if server.state is not ServerState.RUNNING or kept is None:
        return
    drawable = kept.drawable(server.placement, server.topology)
    if server.placement is None or drawable is None:
        yield ServerPart("picture", document={"picture": False})
    else:
        shown = partial(_picture, server.placement.node, drawable)
        yield ServerPart("picture", Place.NODE, "picture_card.html", shown, document={"picture": True})
        yield ServerPart("picture_mark", Place.MARK, "picture_mark.html", partial(_mark, drawable))
