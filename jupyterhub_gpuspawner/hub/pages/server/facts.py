"""A running server's node and resources, in words and as a picture of the node: pure, from its placement."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from markupsafe import Markup

from jupyterhub_gpuspawner.cpulist import parse_cpulist
from jupyterhub_gpuspawner.hub.report.other_nodes import in_words
from jupyterhub_gpuspawner.hub.text import home
from jupyterhub_gpuspawner.picture import node_svg
from jupyterhub_gpuspawner.placement.topology import from_document
from jupyterhub_gpuspawner.words import memory

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from jupyterhub_gpuspawner.placement.topology import NodeTopology
    from jupyterhub_gpuspawner.wire.documents import PlacedGpu, PlacementDocument


NO_PICTURE = Markup()


@dataclass(frozen=True)
class ServerFacts:
    """What the home page shows of a running server. The rows contain everything that the picture shows."""

    rows: tuple[tuple[str, str], ...]
    """A name and a text of one or more lines, in order."""
    problems: tuple[str, ...] = ()
    simulated: bool = False
    picture: Markup = NO_PICTURE
    """An SVG of the node, with the server's GPUs and CPUs marked; empty where it would contradict the rows."""
    node: tuple[tuple[str, str], ...] = ()
    """The picture in words: each NUMA node, GPU and NIC."""


def server_facts(placement: PlacementDocument, topology: Mapping[str, Any] | None) -> ServerFacts:
    """The rows and the picture for a placement."""
    job = home.job(placement.job_id, placement.partition or "") if placement.job_id else home.HERE
    yes_no = {True: home.YES, False: home.NO, None: home.NOT_KNOWN}[placement.aligned]
    rows = [
        (home.NODE, placement.node),
        (home.JOB, job),
        (home.GPUS, "\n".join(_gpu(gpu) for gpu in placement.gpus) or home.NONE),
        (home.CORES, placement.cpus or home.NOT_KNOWN),
        (home.NUMA_NODES, ", ".join(map(str, placement.numa_nodes)) or home.NOT_KNOWN),
        (home.MEMORY_POLICY, placement.memory_policy),
        (home.ALIGNED, ": ".join(filter(None, (yes_no, placement.why)))),
        (home.OTHER_NODES, "\n".join(map(in_words, placement.other_nodes))),
    ]
    facts = ServerFacts(
        rows=tuple((name, text) for name, text in rows if text),
        problems=placement.problems,
        simulated=placement.simulated,
    )
    return _with_picture(facts, placement, topology) if topology else facts


def headline(placement: PlacementDocument) -> str:
    """Node, GPUs and number of CPUs in one line."""
    names = dict.fromkeys(_model(gpu) for gpu in placement.gpus)
    times = "\N{MULTIPLICATION SIGN}"
    gpus = [f"{sum(_model(gpu) == name for gpu in placement.gpus)} {times} {name}" for name in names]
    try:
        cpus = len(parse_cpulist(placement.cpus))
    except ValueError:
        cpus = 0
    parts = [placement.node, *gpus, home.cpus(cpus) if cpus else ""]
    if placement.other_nodes:
        parts.append(home.more_nodes(len(placement.other_nodes)))
    return " · ".join(filter(None, parts))


def _model(gpu: PlacedGpu) -> str:
    return f"{gpu.name or 'GPU'} MIG {gpu.mig}" if gpu.mig else gpu.name or "GPU"


def _gpu(gpu: PlacedGpu) -> str:
    near = home.near(gpu.numa_node) if gpu.numa_node is not None else ""
    return f"GPU {gpu.index}: {', '.join(filter(None, (_model(gpu), memory(gpu.memory_mib), near)))}"


def _with_picture(facts: ServerFacts, placement: PlacementDocument, topology: Mapping[str, Any]) -> ServerFacts:
    """Add the picture, unless the topology cannot be parsed or lacks GPUs or CPUs that the placement names."""
    try:
        node = from_document(topology)
        own_cpus = parse_cpulist(placement.cpus)
    except ValueError:
        return facts
    own_gpus = [_position(node, gpu) for gpu in placement.gpus]
    known_cpus = {cpu for each in node.numa_nodes for cpu in each.cpus}
    if None in own_gpus or (known_cpus and not known_cpus.issuperset(own_cpus)):
        return facts
    own: dict[str, Any] = {"own_gpus": own_gpus, "own_cpus": own_cpus}
    drawn = node_svg.svg(node, **own, title=home.node(placement.node))
    # the picture escapes every text in it
    return replace(facts, picture=Markup(drawn), node=tuple(node_svg.table(node, **own)))  # noqa: S704


def _position(node: NodeTopology, own: PlacedGpu) -> int | None:
    """The position of a GPU in the topology: by UUID, or by index where one side has no UUID."""
    for position, gpu in enumerate(node.gpus):
        if own.uuid and gpu.uuid:
            if own.uuid == gpu.uuid:
                return position
        elif (own.index, own.mig) == (gpu.index, gpu.mig):
            return position
    return None
