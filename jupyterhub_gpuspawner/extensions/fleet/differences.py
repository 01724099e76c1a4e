"""How nodes differ from their siblings, and from what Slurm's configuration says of their GPUs. Pure.

Siblings are nodes of equal shape: what Slurm says a node has, and the model of most of its GPUs. A fact that is not
known of a node is not a difference, and where no majority of at least two nodes agrees, nothing is.

``scontrol show node -d`` prints the sockets that gres.conf's ``Cores=`` name, as ``gpu:a100:8(S:0-1)``, and nothing
where there are none. It does not print ``Links=``.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from itertools import combinations
from typing import NamedTuple

from typing_extensions import Self

from jupyterhub_gpuspawner.extensions.fleet.gres_conf import socket_of, sockets
from jupyterhub_gpuspawner.extensions.fleet.node_record import NodeRecord, gpu_count, several
from jupyterhub_gpuspawner.units import Gres, format_cpulist, parse_gres
from jupyterhub_gpuspawner.words import day, some

MEMORY_TOLERANCE = 0.025
"""Part of a NUMA node's memory in which siblings may differ: kernels reserve different amounts."""
MISSING, PRESENT = "missing", "present"
NAMED_AT_MOST = 4
"""GPUs or pairs that are named in one sentence."""


class Kind(str, Enum):
    """What can differ, and how it is called before the node's value."""

    words: str

    def __new__(cls, value: str, words: str = "") -> Self:
        """A member is its value; ``words`` are for people."""
        member = str.__new__(cls, value)
        member._value_, member.words = value, words
        return member

    GONE = "gone"
    """A GPU that was seen before is missing."""
    FAULT = "fault"
    """The driver reports a fault of GPUs, or does not answer."""
    GPUS = "gpus", "GPUs on the PCI bus"
    """The number of GPUs on the PCI bus."""
    LINKS = "links", "link"
    """The link between two GPUs."""
    WIDTH = "pcie-width", "PCIe lanes"
    """PCIe lanes in use, where they are fewer than the siblings' and the GPU was not idle."""
    GENERATION = "pcie-generation", "PCIe generation"
    """The highest PCIe generation of GPU and slot."""
    MODEL = "model", "model"
    MEMORY = "gpu-memory", "MiB of GPU memory"
    """A GPU's memory, in MiB."""
    NUMA = "numa-node", "NUMA node"
    """The NUMA node of a GPU."""
    NICS = "nics", "NICs"
    """The NICs of the node, or the links of a NIC to a GPU."""
    NODE_MEMORY = "memory", "memory of NUMA node"
    """A NUMA node's memory."""
    NUMA_NODES = "numa-nodes", "NUMA nodes"
    """The number of NUMA nodes that have CPUs."""
    DRIVER = "driver", "driver"


@dataclass(frozen=True)
class Difference:
    """A fact in which a node differs from most of its siblings."""

    kind: Kind
    subjects: tuple[str, ...] = ()
    """PCI bus ids of GPUs, pairs of them, names of NICs, or numbers of NUMA nodes; empty for the whole node."""
    seen: str = ""
    """The node's value."""
    expected: str = ""
    """That of the siblings; empty for a GPU that is gone, or has a fault."""
    agreeing: int = 0
    """How many siblings have the expected value, at least."""
    since: float | None = None
    """For a GPU that is gone: when it was last seen, in seconds since the epoch."""
    sure: bool = True
    """Several people's jobs have reported it, and what the siblings have."""

    def __str__(self) -> str:
        """``0000:b3:00.0: PCIe lanes 8; 3 siblings have 16``; what one person reports alone is said to be that."""
        return self._words if self.sure else f"{self._words} (by one person's jobs alone)"

    @property
    def _words(self) -> str:
        if self.kind is Kind.GONE:
            at = "" if self.since is None else f", last seen on {day(datetime.fromtimestamp(self.since).astimezone())}"
            return f"{', '.join(self.subjects)}: this GPU is missing ({self.seen or 'model not known'}{at})"
        named = some(self.subjects, at_most=NAMED_AT_MOST)
        if self.kind is Kind.FAULT:
            return f"{named}: {self.seen.rstrip('.')}"
        start = f"{named}: " if named else ""
        if self.kind is Kind.NICS and {self.seen, self.expected} == {MISSING, PRESENT}:
            verb = "have" if self.seen == MISSING else "lack"
            return f"{start}NIC {self.seen}, which {self.agreeing:,} siblings {verb}"
        return f"{start}{self.kind.words} {self.seen}; {self.agreeing:,} siblings have {self.expected}"


@dataclass(frozen=True)
class Shape:
    """What siblings have in common."""

    gres: str = ""
    """Slurm's GPUs, such as ``gpu:a100:8``; empty if they are not known."""
    model: str = ""
    """The driver's name of most GPUs."""

    def __str__(self) -> str:
        """The number and type of GPUs; the model's name where Slurm's GPUs are not known."""
        times = "\N{MULTIPLICATION SIGN}"
        return ", ".join(f"{g.count} {times} {g.type or 'GPU'}" for g in parse_gres(self.gres)) or self.model


Facts = dict[tuple[Kind, str], str]
Fact = tuple[tuple[Kind, str], str]
"""A kind with its subject, and the value."""


def shape_of(record: NodeRecord) -> Shape:
    gres = sorted(str(gres) for gres in parse_gres(record.gres) if gres.name == "gpu")
    models = Counter(gpu.name for gpu in record.topology.gpus)
    return Shape(",".join(gres), models.most_common(1)[0][0] if models else "")


def differences(records: Sequence[NodeRecord]) -> Mapping[str, tuple[Difference, ...]]:
    """The differences of each node, by its name."""
    groups: dict[Shape, list[NodeRecord]] = defaultdict(list)
    for record in records:
        groups[shape_of(record)].append(record)
    result: dict[str, tuple[Difference, ...]] = {}
    for group in groups.values():
        nics = sorted({nic for record in group for nic in record.topology.nics})
        memory = _nominal_memory(group)
        facts = {record.node: dict(_facts(record, nics, memory)) for record in group}
        usual = _usual([(facts[record.node], record.people) for record in group])
        for record in group:
            gone = tuple(_gone(record))
            unlike = _unlike(record, facts[record.node], usual)
            result[record.node] = (
                *gone,
                *_faults(record),
                *(fact for fact in unlike if not (gone and fact.kind is Kind.GPUS)),
            )
    return result


def _faults(record: NodeRecord) -> Iterator[Difference]:
    """The faults of the node's GPUs, each with all GPUs that have it, also where there are no siblings."""
    gpus: dict[tuple[str, bool], list[str]] = defaultdict(list)
    for position in record.present:
        gpu, sure = record.topology.gpus[position], several(record.sightings[position].people)
        if gpu.fault and (name := gpu.pci or gpu.uuid) not in gpus[gpu.fault, sure]:
            gpus[gpu.fault, sure].append(name)
    for (fault, sure), subjects in gpus.items():
        yield from (Difference(Kind.FAULT, tuple(subjects), seen=fault, sure=sure) for _ in subjects[:1])


def _gone(record: NodeRecord) -> Iterator[Difference]:
    for position in record.gone:
        gpu, sure = record.topology.gpus[position], several(record.people)
        yield Difference(Kind.GONE, (gpu.pci or gpu.uuid,), seen=gpu.name, since=record.seen[position], sure=sure)


def _nominal_memory(group: Sequence[NodeRecord]) -> Mapping[int, int]:
    """For each amount of memory of a NUMA node, in MiB, the largest of those that are the same but for the kernel's."""
    amounts = {
        node.memory_mib for record in group for node in record.topology.numa_nodes if node.memory_mib is not None
    }
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
        facts = {
            Kind.MODEL: gpu.name.partition(" MIG ")[0],
            Kind.MEMORY: None if gpu.mig else gpu.memory_mib,
            Kind.WIDTH: gpu.pcie_width,
            Kind.GENERATION: gpu.pcie_generation,
            Kind.NUMA: gpu.numa_node,
        }
        yield from (
            ((kind, gpu.pci), str(value)) for kind, value in facts.items() if gpu.pci and value not in (None, "")
        )


def _facts_of_links(record: NodeRecord) -> Iterator[Fact]:
    topology = record.topology
    pci = {position: topology.gpus[position].pci for position in record.present if topology.gpus[position].pci}
    for a, b in combinations(pci, 2):
        if pci[a] != pci[b] and topology.link(a, b) != "?":
            yield (Kind.LINKS, f"{pci[a]} - {pci[b]}"), topology.link(a, b)
    for nic, row in zip(topology.nics, topology.nic_links, strict=False):
        yield from (((Kind.NICS, f"{nic} - {bus_id}"), row[n]) for n, bus_id in pci.items() if row[n] != "?")


class _Usual(NamedTuple):
    """A value on which most nodes of a group agree."""

    value: str
    nodes: int
    people: set[str]
    """Whose jobs have reported it."""


def _usual(nodes: Sequence[tuple[Facts, Sequence[str]]]) -> dict[tuple[Kind, str], _Usual]:
    """The value on which most nodes agree, for each fact that has one; ``nodes`` have their facts and people."""
    counts: dict[tuple[Kind, str], Counter[str]] = defaultdict(Counter)
    people: dict[tuple[tuple[Kind, str], str], set[str]] = defaultdict(set)
    for facts, reporters in nodes:
        for key, value in facts.items():
            counts[key][value] += 1
            people[key, value] |= {*reporters}
    usual = {}
    for key, values in counts.items():
        value, count = values.most_common(1)[0]
        if count >= 2 and 2 * count > values.total():
            usual[key] = _Usual(value, count, people[key, value])
    return usual


def _unlike(record: NodeRecord, facts: Facts, usual: Mapping[tuple[Kind, str], _Usual]) -> Iterator[Difference]:
    """The facts that are not the usual ones; those of one kind with the same values are one difference."""
    people = {gpu.pci: seen.people for gpu, seen in zip(record.topology.gpus, record.sightings, strict=True)}
    narrow = set(_with_few_lanes(record))
    grouped: dict[tuple[Kind, str, str, bool], list[tuple[str, int]]] = defaultdict(list)
    for (kind, subject), value in facts.items():
        others = usual.get((kind, subject))
        if others is None or value == others.value:
            continue
        if kind is Kind.WIDTH and (subject not in narrow or int(value) > int(others.value)):
            continue
        of_gpus = [people[pci] for pci in subject.split(" - ") if pci in people] or [record.people]
        sure = several(others.people) and all(map(several, of_gpus))
        grouped[kind, value, others.value, sure].append((subject, others.nodes))
    order = list(Kind)
    for (kind, value, expected, sure), counts in sorted(grouped.items(), key=lambda item: order.index(item[0][0])):
        subjects, agreeing = tuple(subject for subject, _ in counts if subject), min(count for _, count in counts)
        yield Difference(kind, subjects, seen=value, expected=expected, agreeing=agreeing, sure=sure)


def _with_few_lanes(record: NodeRecord) -> Iterator[str]:
    """Bus ids of the GPUs that are known to have no more lanes than were in use: they were not idle each time."""
    for gpu, seen in zip(record.topology.gpus, record.sightings, strict=True):
        whole = None not in (gpu.pcie_width, gpu.pcie_max_width) and gpu.pcie_width == gpu.pcie_max_width
        if whole or seen.never_wider:
            yield gpu.pci


_MIG = re.compile(r"\d+g\.\d+gb")
"""Part of Slurm's type of a MIG device, as NVML names its profile."""


class Fault(str, Enum):
    """What is wrong with a node's GPUs in Slurm's configuration."""

    COUNT = "count"
    """Slurm has another number of GPUs than were seen."""
    NO_CORES = "no-cores"
    """The GPUs are on several sockets, and gres.conf names no ``Cores=``."""
    SOCKETS = "sockets"
    """gres.conf names other sockets than those of the GPUs."""


@dataclass(frozen=True)
class Contradiction:
    """A fault, with Slurm's value and what was seen."""

    fault: Fault
    slurm: str
    seen: str

    def __str__(self) -> str:
        """``gres.conf names no Cores=, though the GPUs are on sockets 0-1``."""
        if self.fault is Fault.COUNT:
            return f"Slurm has {self.slurm} GPUs, {self.seen} were seen"
        if self.fault is Fault.NO_CORES:
            return f"gres.conf names no Cores=, though the GPUs are on sockets {self.seen}"
        return f"Cores= in gres.conf names sockets {self.slurm}, but the GPUs are on {self.seen}"


def contradictions(record: NodeRecord, gres: Sequence[Gres]) -> Iterator[Contradiction]:
    """The faults of a node's GPUs in Slurm; none where too little is known. ``gres``: of the node, as parsed."""
    gpus = [resource for resource in gres if resource.name == "gpu"]
    present = record.present
    if not gpus or not present:
        return
    whole = not any(record.topology.gpus[position].mig for position in present)
    listed = record.topology.devices
    count = len(listed) if listed else len(present) if record.whole_at is not None else None
    sliced = any(_MIG.search(gres.type or "") for gres in gpus)  # Slurm counts MIG devices, the PCI bus GPUs
    in_slurm = gpu_count(gpus)
    if whole and not sliced and count is not None and (count < in_slurm or _is_too_few(record, count, in_slurm)):
        yield Contradiction(Fault.COUNT, str(in_slurm), str(count))
    if not record.complete:
        return
    of_gpus = [_sockets_of_gpus(record, numa_node_as_socket=numa) for numa in (False, True)]
    named = {socket for gres in gpus for socket in gres.sockets}
    if None not in of_gpus and named not in of_gpus:
        fault = Fault.SOCKETS if named else Fault.NO_CORES
        if named or len(of_gpus[0] or ()) > 1:
            yield Contradiction(fault, format_cpulist(named), format_cpulist(of_gpus[0] or ()))


def _is_too_few(record: NodeRecord, count: int, in_slurm: int) -> bool:
    """Whether Slurm lacks some of a node's GPUs; not if those may be all of a model, such as one for a display."""
    models = Counter(record.topology.gpus[position].name for position in record.present)
    if in_slurm == count or len(record.present) < count:
        return False
    totals = {0}
    for number in models.values():
        totals |= {total + number for total in totals}
    return in_slurm not in totals


def _sockets_of_gpus(record: NodeRecord, *, numa_node_as_socket: bool) -> set[int] | None:
    """The sockets of a node's GPUs; None if they are not all known."""
    cpus = sockets(record.topology, numa_node_as_socket=numa_node_as_socket)
    homes = {socket_of(record.topology, position, cpus) for position in record.present}
    return None if None in homes else {home for home in homes if home is not None}
