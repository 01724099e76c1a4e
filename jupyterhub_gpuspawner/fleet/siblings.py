"""How nodes differ from their siblings: nodes of equal shape, of which most agree on each fact. Pure.

The shape of a node is what Slurm says it has, and the model of most of its GPUs. A fact that is not known of a node is
not a difference, and where no majority of at least two nodes agrees, nothing is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from enum import Enum
from itertools import combinations
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.units import parse_gres

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jupyterhub_gpuspawner.fleet.node_record import NodeRecord

MEMORY_TOLERANCE = 0.025
"""Part of a NUMA node's memory in which siblings may differ: kernels reserve different amounts."""
MISSING, PRESENT = "missing", "present"


class Kind(str, Enum):
    """What can differ."""

    GONE = "gone"
    """A GPU that was seen before is missing."""
    GPUS = "gpus"
    """The number of GPUs on the PCI bus."""
    LINKS = "links"
    """The link between two GPUs."""
    WIDTH = "pcie-width"
    """PCIe lanes in use."""
    GENERATION = "pcie-generation"
    """The highest PCIe generation of GPU and slot."""
    MODEL = "model"
    MEMORY = "gpu-memory"
    """A GPU's memory, in MiB."""
    NUMA = "numa-node"
    """The NUMA node of a GPU."""
    NICS = "nics"
    """The NICs of the node, or the links of a NIC to a GPU."""
    NODE_MEMORY = "memory"
    """A NUMA node's memory."""
    NUMA_NODES = "numa-nodes"
    """The number of NUMA nodes that have CPUs."""
    DRIVER = "driver"


@dataclass(frozen=True)
class Difference:
    """A fact in which a node differs from most of its siblings."""

    kind: Kind
    subjects: tuple[str, ...] = ()
    """PCI bus ids of GPUs, pairs of them, names of NICs, or numbers of NUMA nodes; empty for the whole node."""
    seen: str = ""
    """The node's value."""
    expected: str = ""
    """That of the siblings; empty for a GPU that is gone."""
    agreeing: int = 0
    """How many siblings have the expected value, at least."""
    since: float | None = None
    """For a GPU that is gone: when it was last seen, in seconds since the epoch."""


@dataclass(frozen=True)
class Shape:
    """What siblings have in common."""

    gres: str = ""
    """Slurm's GPUs, such as ``gpu:a100:8``; empty if they are not known."""
    model: str = ""
    """The driver's name of most GPUs."""


Facts = dict[tuple[Kind, str], str]
Fact = tuple[tuple[Kind, str], str]
"""A kind with its subject, and the value."""


def shape_of(record: NodeRecord) -> Shape:
    """The shape of a node."""
    gres = sorted(str(each) for each in parse_gres(record.gres) if each.name == "gpu")
    models = Counter(gpu.name for gpu in record.topology.gpus)
    return Shape(",".join(gres), models.most_common(1)[0][0] if models else "")


def differences(records: Sequence[NodeRecord]) -> Mapping[str, tuple[Difference, ...]]:
    """The differences of each node, by its name."""
    groups: dict[Shape, list[NodeRecord]] = defaultdict(list)
    for record in records:
        groups[shape_of(record)].append(record)
    found: dict[str, tuple[Difference, ...]] = {}
    for group in groups.values():
        nics = sorted({nic for record in group for nic in record.topology.nics})
        memory = _nominal_memory(group)
        facts = {record.node: dict(_facts(record, nics, memory)) for record in group}
        usual = _usual(list(facts.values()))
        for record in group:
            gone = tuple(_gone(record))
            unlike = [each for each in _unlike(facts[record.node], usual) if not (gone and each.kind is Kind.GPUS)]
            found[record.node] = (*gone, *unlike)
    return found


def _gone(record: NodeRecord) -> Iterator[Difference]:
    for position in record.gone:
        gpu = record.topology.gpus[position]
        yield Difference(Kind.GONE, (gpu.pci or gpu.uuid,), seen=gpu.name, since=record.seen[position])


def _nominal_memory(group: Sequence[NodeRecord]) -> Mapping[int, int]:
    """For each amount of memory of a NUMA node, in MiB, the largest of those that are the same but for the kernel's."""
    amounts = {node.memory_mib for each in group for node in each.topology.numa_nodes if node.memory_mib is not None}
    nominal: dict[int, int] = {}
    largest = 0
    for amount in sorted(amounts, reverse=True):
        largest = amount if amount < largest * (1 - MEMORY_TOLERANCE) or not largest else largest
        nominal[amount] = largest
    return nominal


def _facts(record: NodeRecord, nics: Sequence[str], memory: Mapping[int, int]) -> Iterator[Fact]:
    """What is known of a node, each fact as a text; ``nics`` are those of all its siblings."""
    yield from _facts_of_node(record, nics, memory)
    yield from _facts_of_gpus(record)
    yield from _facts_of_links(record)


def _facts_of_node(record: NodeRecord, nics: Sequence[str], memory: Mapping[int, int]) -> Iterator[Fact]:
    topology = record.topology
    if topology.devices or record.whole_at is not None:
        yield (Kind.GPUS, ""), str(len(topology.devices) or len({topology.gpus[n].pci for n in record.present}))
    if topology.nics:
        yield from (((Kind.NICS, nic), PRESENT if nic in topology.nics else MISSING) for nic in nics)
    if topology.driver:
        yield (Kind.DRIVER, ""), topology.driver
    with_cpus = [node for node in topology.numa_nodes if node.cpus]
    if with_cpus:
        yield (Kind.NUMA_NODES, ""), str(len(with_cpus))
    for node in with_cpus:
        if node.memory_mib is not None:
            yield (Kind.NODE_MEMORY, str(node.id)), f"{round(memory[node.memory_mib] / 1024)} GiB"


def _facts_of_gpus(record: NodeRecord) -> Iterator[Fact]:
    for gpu in (record.topology.gpus[position] for position in record.present):
        known = {
            Kind.MODEL: gpu.name.partition(" MIG ")[0],
            Kind.MEMORY: None if gpu.mig else gpu.memory_mib,
            Kind.WIDTH: gpu.pcie_width,
            Kind.GENERATION: gpu.pcie_generation,
            Kind.NUMA: gpu.numa_node,
        }
        yield from (
            ((kind, gpu.pci), str(value)) for kind, value in known.items() if gpu.pci and value not in (None, "")
        )


def _facts_of_links(record: NodeRecord) -> Iterator[Fact]:
    topology = record.topology
    at = {position: topology.gpus[position].pci for position in record.present if topology.gpus[position].pci}
    for a, b in combinations(at, 2):
        if at[a] != at[b] and topology.link(a, b) != "?":
            yield (Kind.LINKS, f"{at[a]} - {at[b]}"), topology.link(a, b)
    for nic, row in zip(topology.nics, topology.nic_links, strict=False):
        yield from (((Kind.NICS, f"{nic} - {pci}"), row[n]) for n, pci in at.items() if row[n] != "?")


def _usual(nodes: Sequence[Facts]) -> dict[tuple[Kind, str], tuple[str, int]]:
    """The value on which most nodes agree, and how many do, for each fact that has one."""
    counts: dict[tuple[Kind, str], Counter[str]] = defaultdict(Counter)
    for facts in nodes:
        for key, value in facts.items():
            counts[key][value] += 1
    usual = {}
    for key, values in counts.items():
        value, count = values.most_common(1)[0]
        if count >= 2 and 2 * count > values.total():
            usual[key] = (value, count)
    return usual


def _unlike(facts: Facts, usual: Mapping[tuple[Kind, str], tuple[str, int]]) -> Iterator[Difference]:
    """The facts that are not the usual ones; those of one kind with the same values are one difference."""
    grouped: dict[tuple[Kind, str, str], list[tuple[str, int]]] = defaultdict(list)
    for (kind, subject), value in facts.items():
        expected, count = usual.get((kind, subject), (value, 0))
        if value != expected:
            grouped[kind, value, expected].append((subject, count))
    order = list(Kind)
    for (kind, value, expected), found in sorted(grouped.items(), key=lambda each: order.index(each[0][0])):
        subjects = tuple(subject for subject, _ in found if subject)
        yield Difference(kind, subjects, seen=value, expected=expected, agreeing=min(count for _, count in found))
