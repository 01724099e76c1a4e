"""The GPUs and CPUs that Slurm granted to this job on this node. The launcher never uses more.

Three index spaces meet here (gres.conf(5), sbatch(1), srun(1)):

- *Slurm's index* counts the node's GPUs (or MIG devices) in the order of gres.conf: ``SLURM_JOB_GPUS``,
  ``SLURM_STEP_GPUS``, ``IDX:`` in ``scontrol show job -d``.
- *The visible name* is an entry of ``CUDA_VISIBLE_DEVICES``: with ``ConstrainDevices=yes`` counted from 0 within the
  job, otherwise Slurm's index; a UUID for MIG devices and with ``Flags=env_uuid``. The i-th name belongs to the i-th
  Slurm index.
- *The position* is the index into :attr:`NodeTopology.gpus`. Inside a device cgroup NVML lists only the job's GPUs,
  numbered from 0; without one it lists all GPUs of the node.

Visible names keep the form in which Slurm wrote them; they are only filtered and reordered. A program that expects
numbers finds numbers, one that expects UUIDs finds UUIDs. CUDA takes no numbers for MIG devices: they are always UUIDs.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.cpulist import format_cpulist
from jupyterhub_gpuspawner.node import child
from jupyterhub_gpuspawner.placement.affinity import kernel_cpus
from jupyterhub_gpuspawner.placement.choice import Choice

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jupyterhub_gpuspawner.placement.topology import NodeTopology
    from jupyterhub_gpuspawner.units import NodeAllocation


Numbers = tuple[int, ...]
Names = tuple[str, ...]


UNMANAGED = "Slurm does not allocate this node's GPUs, so other jobs may use them too."
"""The problem reported if all GPUs are granted because Slurm does not manage any."""


@dataclass(frozen=True)
class GpuGrant:
    """GPUs of this job: first all that Slurm granted, in its order; at last those of the server, in that of its ring.

    ``positions`` is None if it is not known which devices of the topology they are; then only ``names`` is valid.
    """

    names: Names | None = ()
    """Entries for ``CUDA_VISIBLE_DEVICES``; None leaves that variable unchanged."""
    positions: Numbers | None = ()
    slurm: Numbers = ()
    """Slurm's indices, in the same order; empty if not known."""
    problems: tuple[str, ...] = ()
    choice: Choice = field(default_factory=Choice)
    """How they were chosen."""

    def __len__(self) -> int:
        return len(self.names or ())

    @property
    def visible(self) -> str | None:
        """Value of ``CUDA_VISIBLE_DEVICES``."""
        return None if self.names is None else ",".join(self.names)

    def take(self, order: Iterable[int], *problems: str) -> GpuGrant:
        """Some of these GPUs, by their place in the grant, in this order."""
        indices = tuple(order)
        return replace(
            self,
            names=tuple((self.names or ())[n] for n in indices),
            positions=None if self.positions is None else tuple(self.positions[n] for n in indices),
            slurm=tuple(self.slurm[n] for n in indices) if self.slurm else (),
            problems=(*self.problems, *problems),
        )

    def because(self, why: str) -> GpuGrant:
        """The same GPUs, with this sentence on the choice."""
        return replace(self, choice=replace(self.choice, why=why))


UNCHANGED = GpuGrant(names=None)
"""No GPU that is known: the environment stays as it is."""


def in_job(environ: Mapping[str, str]) -> bool:
    """True inside a Slurm job."""
    return bool(environ.get("SLURM_JOB_ID"))


def gpus(environ: Mapping[str, str], topology: NodeTopology, slurm: Slurm) -> GpuGrant:
    """The GPUs granted to this job; outside a job, all that the environment makes visible."""
    names = visible_names(environ)
    granted = _job_gpus(environ, names, topology, slurm) if in_job(environ) else _visible(names, topology)
    if granted.positions is None and "CUDA_VISIBLE_DEVICES" not in environ:
        # perhaps AMD's, which have ROCR_VISIBLE_DEVICES; HIP takes this variable for a number among those
        return replace(granted, names=None, slurm=())
    return _reachable(granted, topology)


def _job_gpus(environ: Mapping[str, str], names: Names | None, topology: NodeTopology, slurm: Slurm) -> GpuGrant:
    if names == ():
        return GpuGrant()
    indices = _indices(environ.get("SLURM_STEP_GPUS")) or _indices(environ.get("SLURM_JOB_GPUS"))
    if names and not _is_numeric(names):
        return _by_uuid(names, indices, topology)
    count = len(names or ()) or number(environ.get("SLURM_GPUS_ON_NODE")) or 0
    if not indices and count and _is_open(names, count, topology):
        indices = slurm.allocation().gpu_indices
    if indices or names:
        return _by_index(names if indices else None, indices or tuple(int(name) for name in names or ()), topology)
    return _by_count(count, topology) if count else _without_grant(topology, slurm)


def _without_grant(topology: NodeTopology, slurm: Slurm) -> GpuGrant:
    """No GPU; or all of them, if Slurm does not manage this node's GPUs, or has given the job the whole node."""
    if not topology.gpus:
        return GpuGrant()
    if slurm.hands_out_gpus() is False:
        return replace(_visible(None, topology), problems=(UNMANAGED,))
    return _visible(None, topology) if slurm.gives_nodes_alone() else GpuGrant()


def visible_names(environ: Mapping[str, str]) -> Names | None:
    """Entries of ``CUDA_VISIBLE_DEVICES``, or else of ``GPU_DEVICE_ORDINAL``; None if both are unset.

    CUDA reads up to the first invalid entry, such as ``-1`` or Slurm's ``NoDevFiles``.
    """
    text = environ.get("CUDA_VISIBLE_DEVICES", environ.get("GPU_DEVICE_ORDINAL"))
    if text is None:
        return None
    names: list[str] = []
    for name in text.split(","):
        if name.strip() in ("", "-1", "NoDevFiles", "none", "void"):
            break
        names.append(name.strip())
    return tuple(dict.fromkeys(names))


def _is_numeric(names: Names) -> bool:
    return all(name.isascii() and name.isdigit() for name in names)


def _indices(text: str | None) -> Numbers:
    words = tuple(word.strip() for word in (text or "").split(",") if word.strip())
    return tuple(dict.fromkeys(int(word) for word in words)) if _is_numeric(words) else ()


def number(text: str | None) -> int | None:
    """A whole number that Slurm writes into the environment; None without one."""
    return int(text) if text and _is_numeric((text,)) else None


def _is_open(names: Names | None, count: int, topology: NodeTopology) -> bool:
    """Whether the names, or the count, leave open which devices are meant.

    NVML shows either only the job's GPUs (then all of them are meant) or, without a device cgroup, every GPU (then the
    names are Slurm's indices). A topology file always shows every GPU, so a name may be of either kind.
    """
    return count != len(topology.gpus) and (not names or topology.is_from_file)


def _visible(names: Names | None, topology: NodeTopology) -> GpuGrant:
    if names is None:
        everything = tuple(range(len(topology.gpus)))
        return GpuGrant(tuple(_own_name(topology, n) for n in everything), everything)
    if _is_numeric(names):
        return _by_index(None, tuple(int(name) for name in names), topology) if names else GpuGrant()
    return _by_uuid(names, (), topology)


def _by_uuid(names: Names, indices: Numbers, topology: NodeTopology) -> GpuGrant:
    """The grant by UUID; like CUDA, any unambiguous prefix is accepted."""
    slurm = indices if len(indices) == len(names) else ()
    positions = []
    for name in names:
        matches = [n for n, gpu in enumerate(topology.gpus) if gpu.uuid and gpu.uuid.startswith(name)]
        if len(matches) != 1:
            return GpuGrant(names, None, slurm, (f"No GPU on this node matches {name}.",))
        positions.append(matches[0])
    return GpuGrant(names, tuple(positions), slurm)


def _by_index(names: Names | None, indices: Numbers, topology: NodeTopology) -> GpuGrant:
    """The grant by Slurm's indices; the names are kept, each with its index."""
    mine = indices
    problems: tuple[str, ...] = ()
    if names is None:
        names = tuple(str(index) for index in indices)
    else:
        pairs = _paired(names, indices, topology)
        if len(pairs) < max(len(names), len(indices)):
            listed = f"CUDA_VISIBLE_DEVICES is {','.join(names)}, but Slurm granted GPU {format_cpulist(indices)}"
            problems = (f"{listed}; only GPUs in both are used.",)
        names, mine = tuple(name for name, _ in pairs), tuple(index for _, index in pairs)
    position_of = _positions(indices, topology)
    if position_of is None:
        return GpuGrant(names, None, mine, (*problems, _missing(mine, topology)))
    positions = tuple(position_of[index] for index in mine)
    named = tuple(
        _own_name(topology, position) if topology.gpus[position].mig else name
        for name, position in zip(names, positions)
    )
    return GpuGrant(named, positions, mine, problems)


def _paired(names: Names, indices: Numbers, topology: NodeTopology) -> list[tuple[str, int]]:
    """Each name with its Slurm index; names that do not belong to the job are left out.

    Slurm writes the i-th name for the i-th index. A site's own shell lines may have removed or reordered names: then a
    name is a number within the job if the driver shows only the job's GPUs, and otherwise Slurm's index.
    """
    numbers = tuple(int(name) for name in names)
    alone = not topology.is_from_file and len(topology.gpus) == len(indices)
    if numbers in (indices, tuple(range(len(indices)))):
        return list(zip(names, indices))
    if not set(numbers) <= set(indices) and (alone or max(numbers) < len(indices)):
        return [(name, indices[number]) for name, number in zip(names, numbers) if number < len(indices)]
    return [(name, number) for name, number in zip(names, numbers) if number in indices]


def _by_count(count: int, topology: NodeTopology) -> GpuGrant:
    everything = _visible(None, topology)
    if count == len(everything):
        return everything
    visible = len(topology.gpus)
    problem = f"Slurm granted {count} GPU{'s' if count != 1 else ''}, but does not say which; {visible} were found."
    return GpuGrant((), None, problems=(problem,))


def _positions(indices: Numbers, topology: NodeTopology) -> dict[int, int] | None:
    """The position in the topology of each of Slurm's indices; None if that is not known.

    Either the topology counts as Slurm does, or it shows only the job's GPUs, in the same order.
    """
    if any(gpu.mig for gpu in topology.gpus):
        positions = {n: n for n in range(len(topology.gpus))}
    else:
        positions = {gpu.index: n for n, gpu in enumerate(topology.gpus)}
    if all(index in positions for index in indices):
        return positions
    if len(indices) == len(topology.gpus):
        return {index: n for n, index in enumerate(sorted(indices))}
    return None


def _own_name(topology: NodeTopology, position: int) -> str:
    """The visible name if Slurm gives none: the index of a whole GPU, the UUID of a MIG device."""
    gpu = topology.gpus[position]
    return gpu.uuid if gpu.mig and gpu.uuid else str(gpu.index)


def _missing(indices: Numbers, topology: NodeTopology) -> str:
    present = format_cpulist(gpu.index for gpu in topology.gpus)
    text = f"only GPU {present} was found" if present else "no NVIDIA GPU was found"
    return f"GPU {format_cpulist(indices)} was granted, but {text} on this node."


def _reachable(granted: GpuGrant, topology: NodeTopology) -> GpuGrant:
    """Drop GPUs that the driver counts but cannot identify (lost from the bus), if any others are left.

    CUDA fails entirely if one of its visible devices fails.
    """
    if not granted.positions or "nvml" not in topology.source:
        return granted
    gpus = topology.gpus
    lost = {n for n in granted.positions if not gpus[n].uuid and (gpus[n].fault or not gpus[n].pci)}
    keep = [i for i, n in enumerate(granted.positions) if n not in lost]
    if not lost or not keep:
        return granted
    left_out = format_cpulist(topology.gpus[n].index for n in lost)
    return granted.take(keep, f"GPU {left_out} was granted but does not respond; it is not used.")


def cpus(
    environ: Mapping[str, str], topology: NodeTopology, allowed: Numbers, slurm: Slurm
) -> tuple[Numbers, tuple[str, ...]]:
    """The CPUs granted to this job, by kernel number, and problems.

    These are the CPUs that the kernel allows (``allowed``, this process's affinity), restricted to what Slurm granted
    if that is less. On a simulated node ``allowed`` is ignored, and the numbers are those of the simulated node.
    """
    count = number(environ.get("SLURM_CPUS_ON_NODE"))
    field = tuple(sorted(cpu for node in topology.numa_nodes for cpu in node.cpus)) if topology.simulated else allowed
    if not in_job(environ) or not count or len(field) <= count:
        return field, ()
    abstract = slurm.allocation().cpu_ids
    if not abstract:
        return field, (
            f"Slurm granted {count} of {len(field)} CPUs, but does not bind the job to them or say which they are.",
        )
    granted = tuple(cpu for cpu in kernel_cpus(abstract, topology) if cpu in field)
    if not granted:
        return field, (
            f"Slurm granted CPUs {format_cpulist(abstract)}, but this process is not allowed to use any of them.",
        )
    return granted, ()


# ``scontrol show job -d`` and ``scontrol show node``, asked if the environment does not show what Slurm granted.

SECONDS = 3.0
"""Time limit for one answer."""


class Slurm:
    """What slurmctld says about this job and its node: asked if the environment leaves something open, and once."""

    def __init__(self, environ: Mapping[str, str], *, job: str | None = None, node: str | None = None) -> None:
        """``job``, ``node``: answers of scontrol that are known already."""
        self._environ, self._job, self._node = environ, job, node

    def allocation(self) -> NodeAllocation:
        """What this job was granted on this node; empty what is not answered in time."""
        if self._job is None:
            self._job = answer_about_job(self._environ)
        return allocation_on(self._environ.get("SLURMD_NODENAME", ""), self._job)

    def hands_out_gpus(self) -> bool | None:
        """Whether this node's GPUs, or shares of them, are a generic resource at all; None without an answer."""
        if self._node is None:
            self._node = _show("node", self._environ.get("SLURMD_NODENAME", ""))
        return parse_node(self._node)

    def gives_nodes_alone(self) -> bool:
        """Whether the job requested GPUs, has its nodes for itself, and was assigned no GPU (SelectType=select/linear).

        That plugin gives out whole nodes: it counts a node's GPUs, and says nothing of them in a job.
        """
        held = self.allocation().gres
        words = (self._job or "").split()
        requested = any(word.startswith("TresPerNode=gres") and "gpu" in word for word in words)
        return requested and "OverSubscribe=NO" in words and not any(gres.count for gres in held)


def answer_about_job(environ: Mapping[str, str]) -> str:
    """What slurmctld says about this job, for :func:`allocations_of`; empty if it does not answer in time."""
    return _show("job", environ.get("SLURM_JOB_ID", ""))


def node_address(node: str) -> str:
    """The address by which Slurm's daemons reach a node (``NodeAddr``); empty without an answer."""
    words = _show("node", node).split()
    return next((word.partition("=")[2] for word in words if word.startswith("NodeAddr=")), "")


def _show(what: str, name: str) -> str:
    if not name or name.startswith("-"):
        return ""
    try:  # --local: do not ask the other clusters of a federation
        return child.run(["scontrol", "--local", "--details", "show", what, name], SECONDS).decode(errors="replace")
    except OSError:  # no process can be started
        return ""


def allocation_on(node: str, answer: str) -> NodeAllocation:
    """What the job holds on this node, by the answer; empty if it does not say. ``node``: empty if it is not known."""
    from jupyterhub_gpuspawner.units import NodeAllocation

    fitting = (allocation for allocation in allocations_of(answer) if node in ("", allocation.node))
    return next(fitting, NodeAllocation(node))


def allocations_of(answer: str) -> tuple[NodeAllocation, ...]:
    """What the job holds on each node, by lines such as ``     Nodes=g1 CPU_IDs=0-3 Mem=4000 GRES=gpu:k80:2(IDX:0-1)``.

    Output of ``--oneliner`` is not accepted: there, a job's name or comment could contain such words. What is malformed
    is left out.
    """
    from jupyterhub_gpuspawner.units import parse_allocations

    allocations: list[NodeAllocation] = []
    for line in answer.splitlines():
        if line.lstrip().startswith("Nodes="):
            for part in (line, line.partition(" GRES=")[0] + " GRES="):
                try:
                    allocations += parse_allocations(part)
                    break
                except ValueError:
                    continue
    return tuple(allocations)


def parse_node(text: str) -> bool | None:
    """Whether the node's ``Gres=`` names GPUs; None if the answer has another form."""
    from jupyterhub_gpuspawner.units import GPU_GRES, parse_gres

    for line in text.splitlines():
        name, _, value = line.strip().partition("=")
        if name == "Gres":
            try:
                return any(gres.name in GPU_GRES for gres in parse_gres(value))
            except ValueError:
                return None
    return None
