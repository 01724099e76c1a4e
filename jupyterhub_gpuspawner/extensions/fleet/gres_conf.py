"""The lines of gres.conf(5) that a node's topology implies: ``File=``, ``Type=``, ``Cores=`` and ``Links=``. Pure.

``Cores=`` takes Slurm's abstract core numbers: cores, not hardware threads, counted socket by socket
(:func:`~jupyterhub_gpuspawner.placement.topology.slurm_cores`). The numbers must be those of a whole socket: Slurm
chooses GPUs by socket, and from 24.11 on it drains a node whose ``Cores=`` are a part of one ("doesn't match socket
boundaries"). Where slurmd runs with ``numa_node_as_socket``, its sockets are the NUMA nodes that have CPUs.

``Links=`` takes the number of NVLinks to each GPU, in the order of PCI bus ids, as ``AutoDetect=nvml`` would. It is
left out where all pairs of GPUs have the same number, since then it tells Slurm nothing. What Slurm makes of it depends
on its version and on how a job asks for GPUs; the page "What gres.conf is worth" has measurements.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology, NumaNode, link_count, slurm_cores
from jupyterhub_gpuspawner.units import format_cpulist

LINKS_NOTE = (
    "Links=: Slurm 22.05 prefers linked GPUs. Slurm 24.11 and 26.05 do so for jobs with --gpus alone; for --gres and "
    "--gpus-per-node they were seen to prefer GPUs with fewer links. With these two versions, set "
    "c.GPUSlurmSpawner.gpus_option = 'gpus', or leave Links= out."
)
_NUMBERED = re.compile(
    r"(?<![a-z0-9])(?:quadro_)?(?:rtx|gtx|gts|gt)_(?:pro_)?\d+[a-z]*(?:_(?:ti|super|sff|ada|d|laptop|max-q))*(?![a-z0-9])",
    re.ASCII,
)
"""A model that is a number to be told apart by the words around it: ``rtx_6000_ada``, ``rtx_pro_6000``."""
_MODEL = re.compile(r"[a-z]{1,3}\d+[a-z]*", re.ASCII)
"""A model that is one word: ``a100``."""
_NO_MODEL = re.compile(r"(?:sxm|hbm|pcie|nvl|mig)\d*e?", re.ASCII)
_MAKER = re.compile(r"(?:nvidia|tesla|geforce|quadro|grid|amd|instinct)_(?=[a-z])", re.ASCII)
_IN_A_TYPE = re.compile(r"[a-z][a-z0-9_.-]*", re.ASCII)


@dataclass(frozen=True)
class GresLine:
    """A line of gres.conf, for one GPU."""

    file: str
    """The device file, such as ``/dev/nvidia0``; the files of a MIG device are in ``multiple_files``."""
    type: str = ""
    """Slurm's type; empty where the model is not known."""
    cores: str = ""
    """Slurm's core numbers of the GPU's socket (``0-19``); empty where they are not known."""
    links: tuple[int, ...] = ()
    """Links to each GPU, -1 for the GPU itself; empty: no ``Links=``."""

    def text(self, node: str = "") -> str:
        """The line, for one node or, if ``node`` is empty, for the node whose gres.conf it is in."""
        words = [f"NodeName={node}"] if node else []
        words += ["Name=gpu"]
        words += [f"Type={self.type}"] if self.type else []
        words += [f"File={self.file}"]
        words += [f"Cores={self.cores}"] if self.cores else []
        words += [f"Links={','.join(map(str, self.links))}"] if self.links else []
        return " ".join(words)


@dataclass(frozen=True)
class GresConf:
    """The lines for a node, and what an admin must know before using them."""

    lines: tuple[GresLine, ...] = ()
    notes: tuple[str, ...] = ()
    """Sentences: what is not known or was assumed, and what the lines need elsewhere."""

    def text(self, node: str = "") -> str:
        """The part of gres.conf; the notes are comments above the lines."""
        comments = [f"# {note}" for note in self.notes]
        return "".join(f"{line}\n" for line in (*comments, *(line.text(node) for line in self.lines)))


def gres_conf(
    topology: NodeTopology,
    *,
    numa_node_as_socket: bool = False,
    threads_per_core: int | None = None,
) -> GresConf:
    """The lines for a node.

    ``numa_node_as_socket`` is slurmd's parameter of that name. ``threads_per_core`` is used where the topology does not
    say which CPUs share a core; without either there are no ``Cores=``.
    """
    notes = []
    gpus = in_pci_order(topology)
    whole = [position for position in gpus if topology.gpus[position].mig is None]
    sliced = [position for position in gpus if topology.gpus[position].mig is not None]
    cores, core_notes = _cores(
        topology, gpus, numa_node_as_socket=numa_node_as_socket, threads_per_core=threads_per_core
    )
    notes += core_notes
    links = {} if sliced else _links(topology, whole)
    notes += [LINKS_NOTE] if links else []
    if links and cores and _linked_across(links, [cores.get(position, "") for position in whole]):
        notes.append(
            "Some GPUs have their most NVLinks to a GPU of another socket. Slurm prefers GPUs of one socket to linked "
            "ones, so with Cores= it may separate them; compare without."
        )
    unnumbered = [position for position in whole if topology.gpus[position].minor is None]
    if unnumbered:
        notes.append(
            "The numbers of the device files are not known; they are assumed to be in the order of PCI bus ids. "
            + _minors(topology.gpus[unnumbered[0]])
        )
    lines = []
    for number, position in enumerate(whole):
        gpu = topology.gpus[position]
        lines.append(
            GresLine(
                file=_device_file(gpu, number),
                type=slurm_type(gpu.name),
                cores=cores.get(position, ""),
                links=links.get(position, ()),
            )
        )
    notes += _mig_notes(
        [topology.gpus[position] for position in sliced], [cores.get(position, "") for position in sliced]
    )
    return GresConf(tuple(lines), tuple(notes))


def _minors(gpu: Gpu) -> str:
    return "ls -l /dev/dri/by-path prints them." if gpu.vendor else "nvidia-smi -q prints them as Minor Number."


def _device_file(gpu: Gpu, number: int) -> str:
    """The file of a GPU, the ``number``th of the node, where the driver does not say which it is."""
    if gpu.vendor:
        return f"/dev/dri/renderD{128 + number if gpu.minor is None else gpu.minor}"
    return f"/dev/nvidia{number if gpu.minor is None else gpu.minor}"


def in_pci_order(topology: NodeTopology) -> list[int]:
    """The positions of a node's GPUs in the order in which Slurm numbers them: by PCI bus id, or else by index."""
    positions = range(len(topology.gpus))
    if all(gpu.pci for gpu in topology.gpus):
        return sorted(positions, key=lambda position: (topology.gpus[position].pci, position))
    return sorted(positions, key=lambda position: (topology.gpus[position].index, position))


def slurm_type(name: str) -> str:
    """A short type for a driver's name of a GPU: ``a100`` for ``NVIDIA A100-SXM4-80GB``; empty for an empty name.

    It is a part of the name as AutoDetect writes it, in lower case and with ``_`` for blanks, so that Slurm finds the
    one in the other. It begins with a letter: Slurm takes ``gpu:4090`` for 4090 GPUs.
    """
    whole = "_".join(name.lower().split())
    numbered = _NUMBERED.search(whole)
    if numbered:
        return numbered[0]
    words = re.split(r"[^a-z0-9]+", whole)
    model = next((word for word in words if _MODEL.fullmatch(word) and not _NO_MODEL.fullmatch(word)), None)
    while model is None and (maker := _MAKER.match(whole)):
        whole = whole[maker.end() :]
    rest = _IN_A_TYPE.search(whole)
    return model or (rest[0].rstrip("_.-") if rest else f"gpu_{whole}" if whole else "")


def sockets(topology: NodeTopology, *, numa_node_as_socket: bool = False) -> list[frozenset[int]]:
    """The CPUs of each of Slurm's sockets, in Slurm's order; empty if they are not known."""
    return [frozenset(chain(*cores)) for cores in slurm_cores(topology, numa_node_as_socket=numa_node_as_socket)]


def with_nodes_of_gpus(topology: NodeTopology) -> NodeTopology:
    """A topology whose NUMA nodes are not known, with those that the CPUs beside its GPUs imply.

    ``nvidia-smi topo -m`` says no more, and outside of jobs each of its sets of CPUs is a NUMA node's. They are taken
    only if they are all CPUs up to the last one: Slurm counts the cores of a socket without a GPU, too.
    """
    near = sorted({gpu.cpus for gpu in topology.gpus if gpu.cpus})
    cpus = sorted(chain(*near))
    if topology.numa_nodes or topology.packages or len(near) < 2 or cpus != list(range(len(cpus))):
        return topology
    return replace(topology, numa_nodes=tuple(NumaNode(number, cpus) for number, cpus in enumerate(near)))


def socket_of(topology: NodeTopology, position: int, socket_cpus: Sequence[frozenset[int]]) -> int | None:
    """Which of these sockets a GPU is attached to; None if that is not known."""
    gpu = topology.gpus[position]
    cpus: frozenset[int] = frozenset()
    if gpu.numa_node is not None:
        cpus = next((frozenset(node.cpus) for node in topology.numa_nodes if node.id == gpu.numa_node), frozenset())
    cpus = cpus or frozenset(gpu.cpus)
    touched = [number for number, socket in enumerate(socket_cpus) if socket & cpus]
    return touched[0] if len(touched) == 1 else None


def nvlinks(word: str) -> int:
    """The number of NVLinks or XGMI links that a link word names; 0 for a path over PCIe."""
    return link_count(word)


def _cores(
    topology: NodeTopology, gpus: Sequence[int], *, numa_node_as_socket: bool, threads_per_core: int | None
) -> tuple[dict[int, str], list[str]]:
    """Slurm's core numbers for each GPU whose socket is known, and what to say about them."""
    socket_cpus = sockets(topology, numa_node_as_socket=numa_node_as_socket)
    if len(socket_cpus) < 2:
        reason = "The node has one socket" if socket_cpus else "The node's sockets are not known"
        return {}, [f"{reason}, so there are no Cores=."]
    counts = _core_counts(topology, socket_cpus, threads_per_core)
    if counts is None:
        return {}, [
            "How many hardware threads share a core is not known, so there are no Cores=. "
            "slurmd -C prints it as ThreadsPerCore; pass it as --threads-per-core."
        ]
    spans = [format_cpulist(range(sum(counts[:n]), sum(counts[: n + 1]))) for n in range(len(counts))]
    homes = {position: socket_of(topology, position, socket_cpus) for position in gpus}
    notes = _socket_notes(topology, len(socket_cpus), numa_node_as_socket=numa_node_as_socket)
    if len(set(counts)) > 1:
        notes.append("The sockets have different numbers of cores; Slurm counts the same number for each.")
    if None in homes.values():
        notes.append("The socket of some GPUs is not known; their lines have no Cores=.")
    return {position: spans[socket] for position, socket in homes.items() if socket is not None}, notes


def _socket_notes(topology: NodeTopology, count: int, *, numa_node_as_socket: bool) -> list[str]:
    """What slurmd must take for a socket, where that may differ."""
    if numa_node_as_socket:
        return ["These lines need SlurmdParameters=numa_node_as_socket in slurm.conf."]
    if not topology.packages:
        return ["The node's sockets are not known; each NUMA node is taken for one. Compare slurmd -C."]
    nodes = sum(1 for node in topology.numa_nodes if node.cpus)
    if nodes > count:
        return [
            f"Each socket has {nodes // count} NUMA nodes. With SlurmdParameters=numa_node_as_socket Slurm can tell "
            "them apart; then use the lines of --numa-node-as-socket."
        ]
    return []


def _core_counts(
    topology: NodeTopology, socket_cpus: Sequence[frozenset[int]], threads_per_core: int | None
) -> list[int] | None:
    """The number of cores of each socket; None if it is not known."""
    if topology.siblings:
        return [sum(1 for core in topology.siblings if socket & set(core)) for socket in socket_cpus]
    if threads_per_core:
        return [len(socket) // threads_per_core for socket in socket_cpus]
    return None


def _links(topology: NodeTopology, gpus: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """The value of ``Links=`` for each GPU; empty if it would not tell the GPUs apart, or if a link is not known."""
    words = {(a, b): topology.link(a, b) for a in gpus for b in gpus if a != b}
    if "?" in words.values() or len({nvlinks(word) for word in words.values()}) < 2:
        return {}
    return {a: tuple(-1 if a == b else nvlinks(words[a, b]) for b in gpus) for a in gpus}


def _linked_across(links: Mapping[int, Sequence[int]], cores: Sequence[str]) -> bool:
    """Whether a GPU has more links to a GPU of another socket than to any of its own."""
    for row in links.values():
        here = cores[row.index(-1)]
        inside = max((count for count, near in zip(row, cores, strict=True) if near == here), default=0)
        if max(row) > max(inside, 0):
            return True
    return False


def _mig_notes(devices: Sequence[Gpu], cores: Sequence[str]) -> list[str]:
    """How to write MIG devices, whose device files change with each partitioning."""
    if not devices:
        return []
    notes = [
        "MIG devices: with a slurmd that was built with NVML, use AutoDetect=nvml for this node instead of all lines "
        "here. Otherwise write a line for each device, with the numbers of /proc/driver/nvidia-caps/mig-minors (of its "
        "GPU instance and its compute instance) in place of GI and CI:"
    ]
    for gpu, near in zip(devices, cores, strict=True):
        minor = gpu.index if gpu.minor is None else gpu.minor
        caps = "/dev/nvidia-caps/nvidia-cap"
        line = f"Name=gpu Type={gpu.mig} MultipleFiles=/dev/nvidia{minor},{caps}GI,{caps}CI"
        notes.append(f"{line} Cores={near}" if near else line)
    return notes
