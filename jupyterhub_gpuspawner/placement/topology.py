"""A node's topology: GPUs, NUMA nodes and cores, links and distances. Pure, standard library only: launchers use it.

A GPU is identified by its UUID and PCI bus id. ``index`` is its current NVML index on that node; it is only meant for
people, and for ``CUDA_VISIBLE_DEVICES`` of programs that require numbers.

Any value may be unknown, which is ``None``, never a guess. :attr:`NodeTopology.problems` has a sentence for each thing
that could not be found out.

Link words are those of ``nvidia-smi topo -m``: ``X`` (self), ``NV<n>`` (n NVLinks), ``PIX``, ``PXB``, ``PHB``,
``NODE``, ``SYS`` (older drivers: ``SOC``), and ``?`` if unknown. MIG devices and most workstation GPUs have no peer
access: data goes through the host, so between them it is ``PHB`` at best. Between AMD's GPUs it is ``XGMI<n>`` (n
links), ``XGMI`` (by way of another GPU), or ``PKG`` (two partitions of one package).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.units import format_cpulist, parse_cpulist

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    Reader = Callable[[str, Any], Any]
    """Checks and converts one value of a document; its first argument names the field for the error."""

VERSION = 2
"""Launchers of an older hub, and files written by one, have version 1, in which lists of CPUs are lists of numbers."""
LINKS = ("X", "PIX", "PXB", "PHB", "NODE", "SYS", "SOC", "PKG", "XGMI", "?")
"""The link words without a number; the others are ``NV1`` to ``NV99`` and ``XGMI1`` to ``XGMI99``."""
NETWORK = "network"
"""Part of :attr:`NodeTopology.source` if the kernel was asked for network cards: a node without any then has none."""
TEXT_LIMIT = 500
"""Longest text in a document of a node, in characters, all of which are printable."""
LIST_LIMIT = 64
"""Longest list in a placement."""

GPU_LOST = "GPU is lost"
"""As NVML says it."""
ROW_NOT_REMAPPED = "A row of its memory could not be remapped."
ROW_TO_REMAP = "A row of its memory is remapped once it is reset."
PAGE_TO_RETIRE = "A page of its memory is retired once it is reset."
MIG_ON, MIG_OFF = "MIG is switched on once it is reset.", "MIG is switched off once it is reset."
NO_NVML = "NVML is not available"
"""What follows says why."""
FAULTS = (GPU_LOST, ROW_NOT_REMAPPED, ROW_TO_REMAP, PAGE_TO_RETIRE, MIG_ON, MIG_OFF, NO_NVML)
"""What can be wrong with a GPU, as far as it has words of ours; another fault is in the driver's words."""


# How :func:`from_document` reads the fields of a document, which name their limits.


def _wrong(where: str, right: str) -> ValueError:
    return ValueError(f"{where}: must be {right}")


def _whole(low: int, high: int, *, none: bool = False) -> Reader:
    def read(where: str, value: Any) -> Any:
        if value is None and none:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise _wrong(where, f"a whole number from {low} to {high}{', or null' if none else ''}")
        return value

    return read


def _text(*, none: bool = False) -> Reader:
    def read(where: str, value: Any) -> Any:
        if value is None and none:
            return None
        if not isinstance(value, str) or len(value) > TEXT_LIMIT or not value.isprintable():
            raise _wrong(where, f"printable text of at most {TEXT_LIMIT} characters")
        return value

    return read


def _link(where: str, value: Any) -> Any:
    if not isinstance(value, str) or not is_link(value):
        raise ValueError(
            f"{where}: {value!r:.40} is not a link; links are NV1 to NV99, XGMI1 to XGMI99, {', '.join(LINKS)}"
        )
    return value


def _flag(where: str, value: Any) -> Any:
    if not isinstance(value, bool):
        raise _wrong(where, "true or false")
    return value


def _list(item: Reader, most: int) -> Reader:
    def read(where: str, value: Any) -> Any:
        if not isinstance(value, (list, tuple)) or len(value) > most:
            raise _wrong(where, f"a list of at most {most}")
        return tuple([item(f"{where}[{n}]", element) for n, element in enumerate(value)])

    return read


def _record(kind: Any) -> Reader:
    fields = {name: field.metadata["read"] for name, field in kind.__dataclass_fields__.items()}

    def read(where: str, value: Any) -> Any:
        prefix = f"{where}." if where else ""
        if not isinstance(value, Mapping):
            raise _wrong(where, "an object")
        for key in value:
            if key not in fields:
                raise ValueError(f"{prefix}{key!s:.40}: no such field; fields are {', '.join(sorted(fields))}")
        try:
            return kind(**{key: fields[key](prefix + key, item) for key, item in value.items()})
        except TypeError as error:
            raise ValueError(f"{where or 'topology'}: {error}") from error

    return read


_DEVICES, _NODES, _MANY = 128, 256, 4096
"""Limits for devices, NUMA nodes and CPUs: above any machine, but small enough to draw an untrusted document."""
_NUMBERS = _list(_whole(0, 65535), _MANY)


def _cpus(where: str, value: Any) -> Any:
    try:
        numbers = parse_cpulist(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    return _NUMBERS(where, numbers)


_NUMA = _whole(0, 4095)
_MAYBE_NUMA = _whole(0, 4095, none=True)
_MEMORY = _whole(0, 2**40, none=True)
_GENERATION = _whole(1, 99, none=True)
_WIDTH = _whole(1, 64, none=True)
_TEXT = _text()
_TEXTS = _list(_TEXT, _DEVICES)
_LINKS = _list(_list(_link, _DEVICES), _DEVICES)


def _field(read: Reader, default: object) -> Any:
    """A field that :func:`from_document` reads like this."""
    return field(default=default, metadata={"read": read})


@dataclass(frozen=True)
class Gpu:
    """A GPU or a MIG device, as the node's driver describes it."""

    index: int = field(metadata={"read": _whole(0, 1023)})
    """NVML index on this node (PCI order), for a MIG device that of its parent; of AMD's GPUs, ROCm's number."""
    uuid: str = _field(_TEXT, "")
    """``GPU-…`` or ``MIG-…``; empty where unknown."""
    pci: str = _field(_TEXT, "")
    """PCI bus id, lower case, four-digit domain: ``0000:07:00.0``; empty where unknown."""
    name: str = _field(_TEXT, "")
    memory_mib: int | None = _field(_MEMORY, None)
    numa_node: int | None = _field(_MAYBE_NUMA, None)
    """Kernel number of the nearest NUMA node (not the GPU's own memory node)."""
    cpus: tuple[int, ...] = _field(_cpus, ())
    """CPUs near to the GPU (kernel numbers), as far as known; may be clipped by a cpuset."""
    mig: str | None = _field(_text(none=True), None)
    """MIG profile name such as ``1g.10gb``; None for a whole GPU."""
    minor: int | None = _field(_whole(0, 1023, none=True), None)
    """n of ``/dev/nvidia<n>``, which is not the index; of other makers' GPUs, of ``/dev/dri/renderD<n>``."""
    nvlink_generation: int | None = _field(_GENERATION, None)
    pcie_generation: int | None = _field(_GENERATION, None)
    """The highest that GPU and slot support; the one in use drops while the GPU is idle."""
    numa_affinity: tuple[int, ...] = _field(_list(_NUMA, _NODES), ())
    """All NUMA nodes that the driver calls near; in a virtual machine often all. If it is one, ``numa_node`` is set."""
    gpu_numa_id: int | None = _field(_MAYBE_NUMA, None)
    """NUMA node of the GPU's own memory (Grace Hopper, POWER9); None if there is none."""
    pcie_width: int | None = _field(_WIDTH, None)
    """PCIe lanes in use."""
    pcie_max_width: int | None = _field(_WIDTH, None)
    """PCIe lanes that the GPU has."""
    fault: str = _field(_TEXT, "")
    """What the node's admin should know of it, in the driver's words or ours, such as ``GPU is lost``; or empty."""
    vendor: str = _field(_TEXT, "")
    """``amd``, ``intel``; empty: NVIDIA."""
    xgmi_gbps: int | None = _field(_whole(1, 1000, none=True), None)
    """Nominal rate of one XGMI link, in GB/s, one way."""


@dataclass(frozen=True)
class NumaNode:
    """A NUMA node; node and CPUs by kernel number (P#)."""

    id: int = field(metadata={"read": _NUMA})
    cpus: tuple[int, ...] = _field(_cpus, ())
    memory_mib: int | None = _field(_MEMORY, None)
    distances: tuple[int, ...] = _field(_list(_whole(0, 255), _NODES), ())
    """Distances to all nodes, in the order of :attr:`NodeTopology.numa_nodes`; empty if unknown."""


@dataclass(frozen=True)
class NodeTopology:
    """A node's topology, as far as it is known.

    ``links[a][b]`` is the link word between ``gpus[a]`` and ``gpus[b]`` (positions, not NVML indices): a symmetric
    matrix with ``X`` on the diagonal, or empty if nothing is known.
    """

    hostname: str = _field(_TEXT, "")
    gpus: tuple[Gpu, ...] = _field(_list(_record(Gpu), _DEVICES), ())
    links: tuple[tuple[str, ...], ...] = _field(_LINKS, ())
    numa_nodes: tuple[NumaNode, ...] = _field(_list(_record(NumaNode), _NODES), ())
    siblings: tuple[tuple[int, ...], ...] = _field(_list(_cpus, _MANY), ())
    """Groups of CPUs that share a core; empty if unknown (then each CPU counts as a core)."""
    packages: tuple[tuple[int, ...], ...] = _field(_list(_cpus, _NODES), ())
    """CPUs of each package (socket); empty if unknown."""
    devices: tuple[str, ...] = _field(_TEXTS, ())
    """PCI bus ids of all GPUs that the kernel lists, also of those that a device cgroup hides; empty if unknown."""
    nics: tuple[str, ...] = _field(_TEXTS, ())
    nic_links: tuple[tuple[str, ...], ...] = _field(_LINKS, ())
    """``nic_links[n][g]`` is the link word between ``nics[n]`` and ``gpus[g]``; empty if unknown."""
    nic_numa: tuple[int | None, ...] = _field(_list(_MAYBE_NUMA, _DEVICES), ())
    source: str = _field(_TEXT, "")
    """Sources of the data: ``nvml``, ``kfd``, ``nvidia-smi``, ``sysfs``, ``file``, ``network``, joined by ``+``."""
    simulated: bool = _field(_flag, False)
    driver: str = _field(_TEXT, "")
    problems: tuple[str, ...] = _field(_TEXTS, ())
    notes: tuple[str, ...] = _field(_TEXTS, ())
    """Sentences for the node's admin, about what concerns no job."""

    def __post_init__(self) -> None:
        size = len(self.gpus)
        if self.links:
            _check_square(self.links, size)
        if self.nic_links and (
            len(self.nic_links) != len(self.nics) or any(len(row) != size for row in self.nic_links)
        ):
            raise ValueError(f"nic_links must be {len(self.nics)} rows of {size} GPUs")
        if self.nic_numa and len(self.nic_numa) != len(self.nics):
            raise ValueError(f"nic_numa must name a node, or null, for each of {len(self.nics)} NICs")
        if len({node.id for node in self.numa_nodes}) != len(self.numa_nodes):
            raise ValueError("numa_nodes must have different ids")
        if any(len(node.distances) not in (0, len(self.numa_nodes)) for node in self.numa_nodes):
            raise ValueError(f"distances of a NUMA node must be {len(self.numa_nodes)} numbers, or none")

    @property
    def is_from_file(self) -> bool:
        """Whether it is from a file of the site, which shows all GPUs of the node."""
        return "file" in self.source.split("+")

    def link(self, a: int, b: int) -> str:
        """The link word between the GPUs at positions ``a`` and ``b``; ``?`` if unknown."""
        if a == b:
            return "X"
        return self.links[a][b] if self.links else "?"

    def mig_device(self, gpu: int) -> int | None:
        """The number of a MIG device on its GPU, as ``nvidia-smi -L`` counts; None for a whole GPU."""
        device = self.gpus[gpu]
        before = [other for other in self.gpus[:gpu] if other.mig is not None and other.index == device.index]
        return None if device.mig is None else len(before)

    def numa_node_of_cpu(self, cpu: int) -> int | None:
        """Kernel number of the NUMA node that contains ``cpu``; None if unknown."""
        for node in self.numa_nodes:
            if cpu in node.cpus:
                return node.id
        return None

    def with_problem(self, *sentences: str) -> NodeTopology:
        """The same topology with these problems added, each only once."""
        return replace(self, problems=self.problems + tuple(s for s in sentences if s not in self.problems))


def gpu_name(index: int, mig: str | None = None, mig_device: int | None = None) -> str:
    """The name of a node's device on all pages: ``GPU 0``; a MIG device is ``slice 1 of GPU 2``.

    Slices are counted from 0, as GPUs are and as ``nvidia-smi -L`` does; without its number, it is
    ``a slice of GPU 2``.
    """
    if mig is None:
        return f"GPU {index}"
    return f"a slice of GPU {index}" if mig_device is None else f"slice {mig_device} of GPU {index}"


def _check_square(links: tuple[tuple[str, ...], ...], size: int) -> None:
    if len(links) != size or any(len(row) != size for row in links):
        raise ValueError(f"links must be a square of {size} GPUs")
    for a in range(size):
        if links[a][a] != "X":
            raise ValueError(f"link {a}-{a} is {links[a][a]}, not X")
        for b in range(a):
            if links[a][b] != links[b][a]:
                raise ValueError(f"link {a}-{b} is {links[a][b]} one way and {links[b][a]} the other")


def is_link(word: str) -> bool:
    """Whether ``word`` is a link word: one of :data:`LINKS`, or such as ``NV4`` or ``XGMI1``."""
    return word in LINKS or link_count(word) > 0


def link_count(word: str) -> int:
    """How many NVLinks or XGMI links a link word such as ``NV4`` names, 1 to 99; 0 for any other word."""
    digits = word[2:] if word[:2] == "NV" else word[4:] if word[:4] == "XGMI" else ""
    return int(digits) if digits.isascii() and digits.isdigit() and digits[0] != "0" and len(digits) < 3 else 0


# Bandwidths of the links, in GB/s, one way. They rank links against each other; they do not predict what a program
# measures.
#
# * NVLink, per link: 20 (NVLink 1), 25 (2, 3 and 4), 50 (5): NVIDIA's nominal rates of the P100, V100, A100, H100 and
#   B200 (their data sheets sum all links, both ways: 160, 300, 600, 900 and 1,800 GB/s). NCCL's ``src/graph/topo.h``
#   counts 18, 20, 20, 20.6 and 40.1 as effective, which ranks machines in the same order.
# * PCIe 3.0 x16: about 12 between two GPUs behind one switch (NCCL's ``PCI_BW``), then less for each hop:
#   switches (PXB), the host bridge (PHB), bridges of one NUMA node (NODE), the link between sockets (SYS: QPI counts 6
#   and UPI 10 in NCCL, so 7 is used for both). PCIe 4.0 doubles the PCIe figures, the link between sockets grows less;
#   5.0 doubles all of them again. Older than 3.0 counts as 3.0, newer than 5.0 as 5.0.
#
# * XGMI, per link: 50 (MI100 to MI250X: 25 GT/s x 16), 64 (MI300: 32 GT/s), 77 (MI350), the nominal rates; half of one
#   link by way of another GPU. Between two partitions of one package the kernel says 819.
#
# NVLink bridges of workstation GPUs are slower than their generation suggests (RTX A6000: 14.06 per link), but far
# faster than PCIe.

NVLINK_GBPS = {1: 20.0, 2: 25.0, 3: 25.0, 4: 25.0, 5: 50.0, 6: 50.0}
"""GB/s, one way, of one NVLink, by generation."""
PCIE_GBPS = {
    3: {"PIX": 12.0, "PXB": 11.0, "PHB": 10.0, "NODE": 9.0, "SYS": 7.0},
    4: {"PIX": 24.0, "PXB": 22.0, "PHB": 20.0, "NODE": 18.0, "SYS": 12.0},
    5: {"PIX": 48.0, "PXB": 44.0, "PHB": 40.0, "NODE": 36.0, "SYS": 24.0},
}
"""GB/s, one way, by PCIe generation and link level, for x16."""
_PCIE_OF_NVLINK = {1: 3, 2: 3, 3: 4, 4: 5, 5: 5, 6: 5}


def gbps(
    link: str, *, nvlink_generation: int | None = None, pcie_generation: int | None = None, xgmi_gbps: int | None = None
) -> float:
    """Bandwidth in GB/s, one way, of a link word of a topology.

    Raises ValueError for any other word. An unknown NVLink generation counts 25 per link, as most have. An unknown PCIe
    generation is inferred from the NVLink generation, or else is 3. ``?`` counts slightly less than the slowest known
    link, so that it is never preferred.
    """
    if link in ("PKG", "XGMI"):
        return 819.0 if link == "PKG" else (xgmi_gbps or 50) / 2
    if count := link_count(link):
        return count * float((xgmi_gbps or 50) if link[0] == "X" else NVLINK_GBPS.get(nvlink_generation or 2, 25.0))
    generation = pcie_generation or _PCIE_OF_NVLINK.get(nvlink_generation or 1, 3)
    levels = PCIE_GBPS[min(max(generation, 3), 5)]
    if link == "?":
        return levels["SYS"] - 1.0
    level = {"SOC": "SYS", "X": "PHB"}.get(link, link)
    if level not in levels:
        raise ValueError(f"{link!r} is not a link")
    return levels[level]


def is_rated(
    link: str, *, nvlink_generation: int | None = None, pcie_generation: int | None = None, xgmi_gbps: int | None = None
) -> bool:
    """Whether the tables have the bandwidth of a link; that of an unknown generation only serves to rank it."""
    if link[:2] == "NV":
        return nvlink_generation in NVLINK_GBPS
    if link in ("PKG", "XGMI") or link_count(link):
        return xgmi_gbps is not None
    return link != "?" and (pcie_generation or _PCIE_OF_NVLINK.get(nvlink_generation or 0)) in PCIE_GBPS


LOCAL, REMOTE = 10, 20
"""NUMA distances (ACPI SLIT) that are used if the machine's own are not known."""


def distance(topology: NodeTopology, one: int | None, two: int | None) -> int:
    """NUMA distance from node ``one`` to node ``two``; an unknown node counts as remote."""
    ids = [node.id for node in topology.numa_nodes]
    if one in ids and two in ids:
        row = topology.numa_nodes[ids.index(one)].distances
        if row:
            return row[ids.index(two)]
    return LOCAL if one == two is not None else REMOTE


def slurm_cores(topology: NodeTopology, *, numa_node_as_socket: bool = False) -> list[list[tuple[int, ...]]]:
    """The cores of each of Slurm's sockets, and the CPUs of each core by kernel number, in slurmd's order.

    slurmd numbers them as hwloc does: sockets by their lowest CPU, in a socket NUMA nodes by theirs, in these cores. A
    socket is a package; where packages are not known, or slurmd runs with ``numa_node_as_socket``, it is a NUMA node
    that has CPUs. An empty list if neither is known; cores of one CPU if it is not known which CPUs share a core.
    """
    nodes = [node.cpus for node in topology.numa_nodes if node.cpus]
    packages = [] if numa_node_as_socket else [cpus for cpus in topology.packages if cpus]
    first_of_node = {cpu: min(cpus) for cpus in nodes for cpu in cpus}
    core_of = {cpu: core for core in topology.siblings for cpu in core}
    return [
        sorted(
            {core_of.get(cpu, (cpu,)) for cpu in socket},
            key=lambda core: (first_of_node.get(core[0], -1), core),
        )
        for socket in sorted(packages or nodes, key=min)
    ]


def kernel_cpus(abstract: Sequence[int], topology: NodeTopology) -> tuple[int, ...]:
    """Convert Slurm's abstract CPU numbers (by socket, then core, then thread) to kernel numbers.

    If the node's sockets are not known, or have too few CPUs, the numbers are returned as they are, sorted.
    """
    order = [cpu for socket in slurm_cores(topology) for core in socket for cpu in core]
    if not order or max(abstract, default=0) >= len(order):
        return tuple(sorted(abstract))
    return tuple(sorted(order[number] for number in abstract))


def as_line(text: str) -> str:
    """Make a text fit for a document: one line, printable, at most :data:`TEXT_LIMIT` characters."""
    line = "".join(c if c.isprintable() else " " for c in text)
    return line if len(line) <= TEXT_LIMIT else line[: TEXT_LIMIT - 1] + "…"


def in_print(value: Any) -> Any:
    """A record, or a value in one, with all its texts :func:`as_line`."""
    if isinstance(value, str):
        return as_line(value)
    if isinstance(value, tuple):
        return tuple(map(in_print, value))
    if hasattr(value, "__dataclass_fields__"):
        return replace(value, **{name: in_print(inner) for name, inner in vars(value).items()})
    return value


def to_document(topology: NodeTopology) -> dict[str, Any]:
    """Convert a topology to a JSON document; lists of CPUs are texts such as ``0-3,8`` (the kernel's cpulist).

    What is not known of a GPU is left out, and its CPUs if they are those of its NUMA node: there may be 64 GPUs, and
    firmware may number the CPUs of two sockets by turns.

    Texts are :func:`as_line`, since a problem may quote anything; what is beyond a document's limits is not known.
    """
    topology = in_print(topology)
    gpus, nodes = (tuple(map(_within_limits, records)) for records in (topology.gpus, topology.numa_nodes))
    document = {"version": VERSION, **asdict(replace(topology, gpus=gpus, numa_nodes=nodes))}
    for part in (*document["gpus"], *document["numa_nodes"]):
        part["cpus"] = format_cpulist(part["cpus"])
    near = {node["id"]: node["cpus"] for node in document["numa_nodes"]}
    for gpu in document["gpus"]:
        beside = near.get(gpu["numa_node"])
        for name, value in list(gpu.items()):
            if value == beside if name == "cpus" else value in (None, "", ()):
                del gpu[name]
    cpus = {name: tuple(map(format_cpulist, document[name])) for name in ("siblings", "packages")}
    return {**document, **cpus}


def from_document(document: Mapping[str, Any]) -> NodeTopology:
    """Parse a topology document; raises ValueError that names the invalid field.

    Type and bounds of every field are checked, so the document may come from a compute node that is not trusted.
    """
    version = document.get("version") if isinstance(document, Mapping) else None
    if version not in (1, VERSION) or isinstance(version, bool):
        raise ValueError(f"version: must be 1 or {VERSION}, not {version!r:.40}")
    topology: NodeTopology = _record(NodeTopology)("", {k: v for k, v in document.items() if k != "version"})
    if version == 1:
        return topology
    near: dict[int | None, Any] = {node.id: node.cpus for node in topology.numa_nodes}
    gpus = (
        gpu if "cpus" in text else replace(gpu, cpus=near.get(gpu.numa_node, ()))
        for gpu, text in zip(topology.gpus, document.get("gpus", ()))
    )
    return replace(topology, gpus=tuple(gpus))


def _within_limits(record: Any) -> Any:
    """A GPU or a NUMA node without what no document may have of it, such as a number in a broken file."""
    unknown = {}
    for name, described in record.__dataclass_fields__.items():
        try:
            described.metadata["read"](name, getattr(record, name))
        except ValueError:
            unknown[name] = described.default
    return replace(record, **unknown)


def load(path: str) -> NodeTopology:
    """Read a topology file (JSON); raises OSError or ValueError."""
    with open(path, encoding="utf-8") as file:  # noqa: PTH123 - pathlib costs start-up time on the node
        return from_document(json.load(file))
