"""Where a running server is and what it got, in words and as a picture of its node: pure, from its placement."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from markupsafe import Markup

from jupyterhub_gpuspawner.cpulist import parse_cpulist
from jupyterhub_gpuspawner.hub.pages.text import live
from jupyterhub_gpuspawner.hub.report.other_nodes import in_words
from jupyterhub_gpuspawner.jobs.status import Phase
from jupyterhub_gpuspawner.picture import node_svg
from jupyterhub_gpuspawner.picture.node_words import memory
from jupyterhub_gpuspawner.placement.topology import from_document

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from jupyterhub_gpuspawner.jobs.status import JobStatus
    from jupyterhub_gpuspawner.placement.topology import NodeTopology
    from jupyterhub_gpuspawner.wire.documents import PlacedGpu, PlacementDocument


NO_PICTURE = Markup()


@dataclass(frozen=True)
class ServerFacts:
    """What the home page says of a running server. What the picture shows stands in the rows, too."""

    rows: tuple[tuple[str, str], ...]
    """A name and a text of one or more lines, in order."""
    problems: tuple[str, ...] = ()
    simulated: bool = False
    picture: Markup = NO_PICTURE
    """Of the node, with the server's own GPUs and CPUs; empty where it could not show what the rows say."""
    node: tuple[tuple[str, str], ...] = ()
    """The picture in words: each NUMA node, GPU and NIC."""


def server_facts(placement: PlacementDocument, topology: Mapping[str, Any] | None) -> ServerFacts:
    """Where a server runs and what it got."""
    job = live.job(placement.job_id, placement.partition or "") if placement.job_id else live.HERE
    yes_no = {True: live.YES, False: live.NO, None: live.NOT_KNOWN}[placement.aligned]
    rows = [
        (live.NODE, placement.node),
        (live.JOB, job),
        (live.GPUS, "\n".join(_gpu(gpu) for gpu in placement.gpus) or live.NONE),
        (live.CORES_OF_SERVER, placement.cpus or live.NOT_KNOWN),
        (live.NUMA_NODES, ", ".join(map(str, placement.numa_nodes)) or live.NOT_KNOWN),
        (live.MEMORY_POLICY, placement.memory_policy),
        (live.ALIGNED, ": ".join(filter(None, (yes_no, placement.why)))),
        (live.OTHER_NODES, "\n".join(map(in_words, placement.other_nodes))),
    ]
    facts = ServerFacts(
        rows=tuple((name, text) for name, text in rows if text),
        problems=placement.problems,
        simulated=placement.simulated,
    )
    return _with_picture(facts, placement, topology) if topology else facts


def up_to_date(placement: PlacementDocument, job: JobStatus | None) -> PlacementDocument:
    """The placement with the end that Slurm tells now: an admin may have changed the job's time limit."""
    if job is None or job.phase is not Phase.RUNNING or job.ends_at is None:
        return placement
    return replace(placement, ends_at=datetime.fromtimestamp(job.ends_at, timezone.utc).isoformat())


def headline(placement: PlacementDocument) -> str:
    """The most important in one line: node, GPUs, cores."""
    names = dict.fromkeys(_model(gpu) for gpu in placement.gpus)
    times = "\N{MULTIPLICATION SIGN}"
    gpus = [f"{sum(_model(gpu) == name for gpu in placement.gpus)} {times} {name}" for name in names]
    try:
        cpus = len(parse_cpulist(placement.cpus))
    except ValueError:
        cpus = 0
    parts = [placement.node, *gpus, live.cpus(cpus) if cpus else ""]
    if placement.other_nodes:
        parts.append(live.more_nodes(len(placement.other_nodes)))
    return " · ".join(filter(None, parts))


def _model(gpu: PlacedGpu) -> str:
    return f"{gpu.name or 'GPU'} MIG {gpu.mig}" if gpu.mig else gpu.name or "GPU"


def _gpu(gpu: PlacedGpu) -> str:
    near = live.near(gpu.numa_node) if gpu.numa_node is not None else ""
    return f"GPU {gpu.index}: {', '.join(filter(None, (_model(gpu), memory(gpu.memory_mib), near)))}"


def _with_picture(facts: ServerFacts, placement: PlacementDocument, topology: Mapping[str, Any]) -> ServerFacts:
    """A topology that cannot be read, or does not hold what the placement names, is not drawn."""
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
    drawn = node_svg.svg(node, **own, title=live.node(placement.node))
    # the picture escapes every text in it
    return replace(facts, picture=Markup(drawn), node=tuple(node_svg.table(node, **own)))  # noqa: S704


def _position(node: NodeTopology, own: PlacedGpu) -> int | None:
    """Where a GPU stands in the topology: by its UUID; by its index where one of the two has none."""
    for position, gpu in enumerate(node.gpus):
        if own.uuid and gpu.uuid:
            if own.uuid == gpu.uuid:
                return position
        elif (own.index, own.mig) == (gpu.index, gpu.mig):
            return position
    return None
