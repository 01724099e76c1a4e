"""A running server's node and resources, in words and as a picture of the node: pure, from its placement.

A GPU's memory is told as the form tells it, by the size in the model's name. NVML reports what is left of it for
programs (81,559 MiB of an H100's 80 GB, 11,441 MiB of a K80's 12 GB with ECC); that number is among the details.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from markupsafe import Markup

from jupyterhub_gpuspawner.cluster.gpu_model import gpu_model
from jupyterhub_gpuspawner.cpulist import parse_cpulist
from jupyterhub_gpuspawner.hub import words
from jupyterhub_gpuspawner.hub.report.reader import in_words
from jupyterhub_gpuspawner.hub.report.server_report import Use, parsed, position
from jupyterhub_gpuspawner.picture import drawing, usage_chart
from jupyterhub_gpuspawner.picture.node import table
from jupyterhub_gpuspawner.placement.network import has_no_nic
from jupyterhub_gpuspawner.placement.topology import NodeTopology, gpu_name
from jupyterhub_gpuspawner.wire.documents import GpuUse, PlacedGpu, PlacementDocument
from jupyterhub_gpuspawner.words import counted, gpu_memory, memory
from jupyterhub_gpuspawner.words import cpus as cpus_in_words

NO_PICTURE = Markup()
NO_TOPOLOGIES: Mapping[str, Mapping[str, Any]] = {}


@dataclass(frozen=True)
class ServerFacts:
    """What the home page shows of a running server. The rows contain everything that the picture shows."""

    got: tuple[str, ...] = ()
    """What the server has, in the words of the form: GPUs, cores, memory."""
    rows: tuple[tuple[str, str], ...] = ()
    """A name and a text of one or more lines, in order."""
    problems: tuple[str, ...] = ()
    simulated: bool = False
    picture: Markup = NO_PICTURE
    """An SVG of the node, with the server's GPUs and CPUs marked; empty where it would contradict the rows."""
    node: tuple[tuple[str, str], ...] = ()
    """The picture in words: each NUMA node, GPU and NIC."""
    others: tuple[OtherNodeFacts, ...] = ()
    """The job's other nodes that have reported."""


@dataclass(frozen=True)
class OtherNodeFacts:
    """What the home page shows of another node of the server's job."""

    name: str
    facts: ServerFacts


def server_facts(
    placement: PlacementDocument,
    topology: Mapping[str, Any] | None,
    node_topologies: Mapping[str, Mapping[str, Any]] = NO_TOPOLOGIES,
) -> ServerFacts:
    """The rows and the pictures for a placement: the server's node, then the job's other nodes."""
    facts = _node_facts(placement, parsed(topology), several=bool(placement.other_nodes))
    placements = [grant.placement for grant in placement.other_nodes if grant.placement is not None]
    silent = [words.NOT_REPORTED.format(node=grant.node) for grant in placement.other_nodes if grant.placement is None]
    others = [
        OtherNodeFacts(
            other.node, _node_facts(other, parsed(node_topologies.get(other.node)), several=True, of_job=False)
        )
        for other in (replace(other, problems=_without(other.problems, placement.problems)) for other in placements)
    ]
    return replace(facts, others=tuple(others), problems=(*facts.problems, *silent))


def _without(problems: tuple[str, ...], earlier: tuple[str, ...]) -> tuple[str, ...]:
    """Problems that are not said of the server's node already."""
    return tuple(problem for problem in problems if problem not in earlier)


def _node_facts(
    placement: PlacementDocument, node: NodeTopology | None, *, several: bool, of_job: bool = True
) -> ServerFacts:
    """One node's part; ``of_job``: with what is about the whole job."""
    job = words.job_in(placement.job_id or "", placement.partition or "")
    yes_no = {True: words.YES, False: words.NO, None: words.UNDETERMINED}[placement.aligned]
    rows = [
        (words.NODE, placement.node if of_job else ""),
        (words.JOB, job if of_job else ""),
        (words.GPUS, "\n".join(_gpu(gpu) for gpu in placement.gpus) or words.NONE),
        (words.CPUS, placement.cpus or words.UNDETERMINED),
        (words.NUMA_NODES, ", ".join(map(str, placement.numa_nodes)) or words.UNDETERMINED),
        (words.MEMORY_POLICY, placement.memory_policy),
        (words.ALIGNED, ": ".join(filter(None, (yes_no, placement.why)))),
        (words.NETWORK, "\n".join(_network(placement, node, of_job=of_job)) if several else ""),
        (words.OTHER_NODES, "\n".join(map(in_words, placement.other_nodes))),
    ]
    facts = ServerFacts(
        got=got(placement, node),
        rows=tuple((name, text) for name, text in rows if text),
        problems=placement.problems,
        simulated=placement.simulated,
    )
    return _with_picture(facts, placement, node) if node is not None else facts


def _network(placement: PlacementDocument, node: NodeTopology | None, *, of_job: bool) -> tuple[str, ...]:
    """The weakest link of the whole job, then each GPU's network card on this node."""
    job = (words.WEAKEST_LINK.format(link=placement.weakest_link_over_nodes or words.UNDETERMINED),) if of_job else ()
    cards = tuple(
        words.NIC.format(
            gpu=gpu_name(gpu.index, gpu.mig, gpu.mig_device),
            nic=gpu.nic,
            link=gpu.nic_link if gpu.nic_link not in (None, "", "?") else words.LINK_UNKNOWN,
        )
        for gpu in placement.gpus
        if gpu.nic
    )
    if cards:
        return (*job, *cards)
    return (*job, words.NO_NETWORK_CARD if node is not None and has_no_nic(node) else words.NETWORK_UNKNOWN)


def got(placement: PlacementDocument, node: NodeTopology | None) -> tuple[str, ...]:
    """Such as ``("4 cores", "8 GiB memory")``; what is not known is left out."""
    job_memory = words.MEMORY.format(amount=memory(placement.memory_mib)) if placement.memory_mib else ""
    others = counted(len(placement.other_nodes), "more node") if placement.other_nodes else ""
    return tuple(filter(None, (*gpus_in_words(placement), _cores(placement.cpus, node), job_memory, others)))


def gpus_in_words(placement: PlacementDocument) -> tuple[str, ...]:
    """Such as ``("2 x K80 (12 GB)",)``: one text for each kind of GPU."""
    kinds = Counter((_model(gpu), _memory(gpu)) for gpu in placement.gpus)
    return tuple(words.gpus(number, *kind) for kind, number in kinds.items())


def _cores(cpus: str, node: NodeTopology | None) -> str:
    """As the form says it: ``4 cores``, ``8 CPUs (4 cores)``; CPUs, where it is not known which share a core."""
    try:
        own = set(parse_cpulist(cpus))
    except ValueError:
        return ""
    if not own:
        return ""
    if node is None or not own.issubset(cpu for core in node.siblings for cpu in core):
        return cpus_in_words(len(own), per_core=0)
    whole = sum(not own.isdisjoint(core) for core in node.siblings)
    return cpus_in_words(len(own), per_core=-(-len(own) // whole))


def _model(gpu: PlacedGpu) -> str:
    whole = gpu_model(gpu.name.partition(" MIG ")[0]).name or words.GPU
    return f"{whole} MIG {gpu.mig}" if gpu.mig else whole


def _memory(gpu: PlacedGpu) -> str:
    """As the form tells it: the size in the model's name, which is a little more than what NVML reports."""
    if gpu.memory_mib is not None:
        return gpu_memory(gpu.memory_mib)
    size = gpu_model(gpu.mig or gpu.name).memory_gb
    return gpu_memory(size * 1024) if size else ""


def _gpu(gpu: PlacedGpu) -> str:
    model = gpu.name.partition(" MIG ")[0] if gpu.mig else gpu.name
    usable = f"{gpu.memory_mib:,} MiB" if gpu.memory_mib is not None else ""
    near = words.NUMA_NODE.format(number=gpu.numa_node) if gpu.numa_node is not None else ""
    name = gpu_name(gpu.index, gpu.mig, gpu.mig_device)
    return f"{name}: {', '.join(filter(None, (model or words.GPU, usable, near)))}"


def _with_picture(facts: ServerFacts, placement: PlacementDocument, node: NodeTopology) -> ServerFacts:
    """Add the picture, unless the topology lacks GPUs or CPUs that the placement names."""
    try:
        own_cpus = parse_cpulist(placement.cpus)
    except ValueError:
        return facts
    own_gpus = [position(node, gpu) for gpu in placement.gpus]
    present_cpus = {cpu for numa_node in node.numa_nodes for cpu in numa_node.cpus}
    if None in own_gpus or (present_cpus and not present_cpus.issuperset(own_cpus)):
        return facts
    picture, in_words = _drawn(node, tuple(gpu for gpu in own_gpus if gpu is not None), own_cpus)
    return replace(facts, picture=picture, node=in_words)


@lru_cache(maxsize=256)
def _drawn(
    node: NodeTopology, own_gpus: tuple[int, ...], own_cpus: tuple[int, ...]
) -> tuple[Markup, tuple[tuple[str, str], ...]]:
    """A picture, and the same in words; cached, since it takes milliseconds, and JupyterLab asks every minute."""
    drawn = drawing.svg(node, own_gpus=own_gpus, own_cpus=own_cpus, title=words.WHOLE_NODE)
    # the picture escapes every text in it
    return Markup(drawn), tuple(table(node, own_gpus=own_gpus, own_cpus=own_cpus))  # noqa: S704


# A server's use on its card: each GPU now and in the last hour, in words and as a chart.

GPUS_AT_MOST = 16
"""GPUs with a chart."""


@dataclass(frozen=True)
class GpuCard:
    """One GPU's use."""

    name: str
    now: str
    """Such as ``83 %, 21 of 40 GB, 2 processes``."""
    description: str
    """The last hour in words."""
    chart: Markup
    rows: tuple[tuple[float, str, str, str], ...]
    """The chart in words: when each summary ended, mean, maximum and memory."""


@dataclass(frozen=True)
class UsageCard:
    """A server's use."""

    at: float
    """When it was measured, in seconds since the epoch."""
    gpus: tuple[GpuCard, ...] = ()
    host: str = ""
    """CPU and memory of the job."""
    simulated: bool = False
    problems: tuple[str, ...] = ()


def usage_card(usage: Sequence[Use], *, now: float) -> UsageCard | None:
    """What the card shows of these summaries, oldest first; None where there is none."""
    if not usage:
        return None
    last = usage[-1]
    summary = last.summary
    host = (
        words.CORES_USED.format(cores=summary.cores) if summary.cores is not None else "",
        words.MEMORY_USED.format(gib=summary.memory_mib / 1024) if summary.memory_mib is not None else "",
    )
    return UsageCard(
        last.at,
        tuple(_usage_gpu(gpu, usage, now) for gpu in summary.gpus[:GPUS_AT_MOST]),
        ", ".join(filter(None, host)),
        simulated=summary.simulated,
        problems=summary.problems,
    )


def in_a_line(usage: Sequence[Use]) -> str:
    """``GPU 83 %`` for the last summary, each GPU's in order; empty where there is none, or no GPU."""
    gpus = usage[-1].summary.gpus if usage else ()
    return f"GPU {', '.join(words.percent(gpu.utilization) for gpu in gpus)}" if gpus else ""


def _usage_gpu(gpu: GpuUse, usage: Sequence[Use], now: float) -> GpuCard:
    history = [(use, gpu_use) for use in usage for gpu_use in use.summary.gpus if _same(gpu_use, gpu)]
    name = gpu_name(gpu.index, gpu.mig, gpu.mig_device)
    measured = [use for _, use in history if use.utilization_mean is not None]
    number = sum(value.utilization_samples for value in measured)
    mean = (
        sum((value.utilization_mean or 0.0) * value.utilization_samples for value in measured) / number
        if number
        else None
    )
    most = max((value.utilization_max or 0.0 for value in measured), default=None)
    spans = [
        usage_chart.Span(now - use.since, now - use.at, gpu_summary.utilization_mean, gpu_summary.utilization_max)
        for use, gpu_summary in history
    ]
    description = words.chart_description(mean, most)
    drawn = usage_chart.svg(spans, title=words.CHART.format(gpu=name), description=description)
    parts = (
        words.percent(gpu.utilization),
        words.memory_used(gpu.memory_used_mib, gpu.memory_mib),
        words.processes(gpu.processes),
    )
    rows = tuple(
        (
            use.at,
            words.percent(gpu_summary.utilization_mean),
            words.percent(gpu_summary.utilization_max),
            words.memory_used(gpu_summary.memory_used_max_mib, gpu_summary.memory_mib),
        )
        for use, gpu_summary in history
    )
    # the chart escapes every text in it
    return GpuCard(name, ", ".join(filter(None, parts)), description, Markup(drawn), rows)  # noqa: S704


def _same(one: GpuUse, other: GpuUse) -> bool:
    return (one.index, one.uuid, one.mig) == (other.index, other.uuid, other.mig)
