"""The GPUs and CPUs that Slurm granted to this job on this node. The launcher never uses more.

Four ways to count or name GPUs meet here (gres.conf(5), sbatch(1), srun(1); CUDA C++ Programming Guide, "CUDA
Environment Variables"). Each has a type of its own, and only functions of this module lead from one to another:

- :class:`SlurmIndex` counts the node's GPUs (or MIG devices) in the order of gres.conf: ``SLURM_JOB_GPUS``,
  ``SLURM_STEP_GPUS``, ``IDX:`` in ``scontrol show job -d``.
- :class:`CudaIndex` counts the GPUs that this process may open, in the order of their PCI bus ids: all of the node's,
  or in a device cgroup (``ConstrainDevices=yes``) those of the job, from 0.
- :class:`VisibleName` is an entry of ``CUDA_VISIBLE_DEVICES``: a CUDA index, or a UUID, as for MIG devices and with
  ``Flags=env_uuid``. Slurm writes the i-th name for the i-th of its indices.
- *The position* is the index into :attr:`NodeTopology.gpus`. NVML lists the GPUs that this process may open, so where
  it was asked, the position is the CUDA index. A topology file, and the kernel, list all GPUs of the node.

``Gpu.index``, the NVML index, is none of these: some drivers count GPUs that this process may not open.

Visible names keep the form in which Slurm wrote them; they are only filtered and reordered. A program that expects
numbers finds numbers, one that expects UUIDs finds UUIDs. CUDA takes no numbers for MIG devices, and Slurm's numbers of
GPUs beside them are not CUDA's: there all are UUIDs.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.node import child
from jupyterhub_gpuspawner.placement.choice import Choice
from jupyterhub_gpuspawner.placement.topology import kernel_cpus
from jupyterhub_gpuspawner.units import format_cpulist

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology
    from jupyterhub_gpuspawner.units import NodeAllocation


class SlurmIndex(int):
    """Slurm's index of a GPU or MIG device of a node."""

    __slots__ = ()


class CudaIndex(int):
    """The number by which CUDA knows a GPU that this process may open."""

    __slots__ = ()


class VisibleName(str):
    """An entry of ``CUDA_VISIBLE_DEVICES``."""

    __slots__ = ()


Numbers = tuple[int, ...]
Names = tuple[VisibleName, ...]
SlurmIndices = tuple[SlurmIndex, ...]


LISTS = {"amd": "ROCR_VISIBLE_DEVICES", "intel": "ZE_AFFINITY_MASK"}
"""The variables that list GPUs, by their makers other than NVIDIA."""
_OLD_MIG_NAME = "MIG-GPU-"
"""Begins the name that Slurm gives a MIG device for drivers before 470: the GPU's UUID, ``/``, instances of it."""
UNMANAGED = "Slurm does not allocate this node's GPUs, so other jobs may use them too."
"""The problem reported if all GPUs are granted because Slurm does not manage any."""


@dataclass(frozen=True)
class GpuGrant:
    """GPUs of this job: first all that Slurm granted, in its order; at last those of the server, in that of its ring.

    ``positions`` is None if it is not known which devices of the topology they are; then only ``names`` is valid.
    """

    names: Names | None = ()
    """Entries for ``CUDA_VISIBLE_DEVICES``; None leaves that variable unchanged, since they are not known."""
    positions: Numbers | None = ()
    slurm: SlurmIndices = ()
    """Slurm's indices, in the same order; empty if not known."""
    problems: tuple[str, ...] = ()
    choice: Choice = field(default_factory=Choice)
    """How they were chosen."""

    def __len__(self) -> int:
        return len(self.names if self.names is not None else self.positions or ())

    @property
    def visible(self) -> str | None:
        """Value of ``CUDA_VISIBLE_DEVICES``."""
        return None if self.names is None else ",".join(self.names)

    def take(self, order: Iterable[int], *problems: str) -> GpuGrant:
        """Some of these GPUs, by their place in the grant, in this order."""
        indices = tuple(order)
        return replace(
            self,
            names=None if self.names is None else tuple(self.names[n] for n in indices),
            positions=None if self.positions is None else tuple(self.positions[n] for n in indices),
            slurm=tuple(self.slurm[n] for n in indices) if self.slurm else (),
            problems=(*self.problems, *problems),
        )

    def because(self, why: str) -> GpuGrant:
        """The same GPUs, with this sentence on the choice."""
        return replace(self, choice=replace(self.choice, why=why))


UNCHANGED = GpuGrant(names=None)
"""No GPU that is known: the environment stays as it is."""
UNSAID = GpuGrant(names=None, positions=None)
"""Neither the environment nor slurmctld says whether this job has GPUs."""


def in_job(environ: Mapping[str, str]) -> bool:
    """True inside a Slurm job."""
    return bool(environ.get("SLURM_JOB_ID"))


def gpus(environ: Mapping[str, str], topology: NodeTopology, slurm: ControllerAnswers) -> GpuGrant:
    """The GPUs granted to this job; outside a job, all that the environment makes visible."""
    names = visible_names(environ)
    granted = _job_gpus(environ, names, topology, slurm) if in_job(environ) else _visible(names, topology)
    if granted.positions is None and "CUDA_VISIBLE_DEVICES" not in environ:
        # perhaps AMD's, which have ROCR_VISIBLE_DEVICES; HIP takes this variable for a number among those
        return replace(granted, names=None, slurm=())
    return _reachable(granted, topology)


def _job_gpus(
    environ: Mapping[str, str], names: Names | None, topology: NodeTopology, slurm: ControllerAnswers
) -> GpuGrant:
    indices = slurm_indices(environ.get("SLURM_STEP_GPUS")) or slurm_indices(environ.get("SLURM_JOB_GPUS"))
    if names == ():
        return GpuGrant(problems=(f"{_granted_words(indices)}, but none is visible to this job.",) if indices else ())
    if names and not _is_numeric(names):
        return _by_uuid(names, indices, topology)
    count = len(names or ()) or number(environ.get("SLURM_GPUS_ON_NODE")) or 0
    if not indices and count and _is_open(names, count, topology):
        indices = _asked(slurm)
    if indices:
        return _by_index(names, indices, topology)
    if names:
        return _visible(names, topology)
    return _by_count(count, topology) if count else _without_grant(topology, slurm)


def _asked(slurm: ControllerAnswers) -> SlurmIndices:
    return tuple(map(SlurmIndex, slurm.allocation().gpu_indices))


def _without_grant(topology: NodeTopology, slurm: ControllerAnswers) -> GpuGrant:
    """What slurmctld says, where the environment names no GPU.

    All of them, if Slurm does not manage this node's GPUs, or has given the job the whole node.
    """
    if not topology.gpus:
        return GpuGrant()
    if slurm.hands_out_gpus() is False:
        return replace(_visible(None, topology), problems=(UNMANAGED,))
    indices = _asked(slurm)
    if indices:
        return _by_index(None, indices, topology)
    if slurm.gives_nodes_alone():
        return _visible(None, topology)
    return GpuGrant() if slurm.answers() else UNSAID


def visible_names(environ: Mapping[str, str]) -> Names | None:
    """Entries of ``CUDA_VISIBLE_DEVICES``, else ``ROCR_VISIBLE_DEVICES`` or ``GPU_DEVICE_ORDINAL``; None without any.

    CUDA reads up to the first invalid entry, such as ``-1`` or Slurm's ``NoDevFiles``.
    """
    variables = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
    text = next((environ[name] for name in variables if name in environ), None)
    if text is None:
        return None
    names: list[VisibleName] = []
    for name in text.split(","):
        if name.strip() in ("", "-1", "NoDevFiles", "none", "void"):
            break
        names.append(VisibleName(name.strip()))
    return tuple(dict.fromkeys(names))


def _is_numeric(names: Iterable[str]) -> bool:
    return all(name.isascii() and name.isdigit() for name in names)


def slurm_indices(text: str | None) -> SlurmIndices:
    """The indices in a variable such as ``SLURM_JOB_GPUS``; empty without it, or if it has another form."""
    words = tuple(word.strip() for word in (text or "").split(",") if word.strip())
    return tuple(dict.fromkeys(SlurmIndex(int(word)) for word in words)) if _is_numeric(words) else ()


def number(text: str | None) -> int | None:
    """A whole number that Slurm writes into the environment; None without one."""
    return int(text) if text and _is_numeric((text,)) else None


def _shows_what_cuda_counts(topology: NodeTopology) -> bool:
    """Whether the topology lists the GPUs that this process may open, which is what NVML and CUDA do.

    A topology file and the kernel's ``/sys`` list all of the node's GPUs; its driver for AMD's (``kfd``) does not.
    """
    return not {"nvml", "kfd"}.isdisjoint(topology.source.split("+"))


def _is_open(names: Names | None, count: int, topology: NodeTopology) -> bool:
    """Whether the names, or the count, leave open which devices are meant.

    All devices are meant if there are as many. Names are CUDA indices; which devices these are is only known where
    what CUDA counts is.
    """
    return count != len(topology.gpus) and not (names and (_shows_what_cuda_counts(topology) or not topology.gpus))


def _visible(names: Names | None, topology: NodeTopology) -> GpuGrant:
    """The grant by visible names alone; None: all GPUs."""
    if names is None:
        return _named(tuple(range(len(topology.gpus))), (), topology)
    if not _is_numeric(names):
        return _by_uuid(names, (), topology)
    numbers = [CudaIndex(int(name)) for name in names]
    shown = len(topology.gpus)
    if not (_shows_what_cuda_counts(topology) or topology.simulated or len(numbers) == shown):
        unknown = "Slurm does not say which of the node's GPUs these are"
        return GpuGrant(names, None, (), (f"{_listed(names, topology)}; {unknown}.",))
    valid = next((n for n, number in enumerate(numbers) if number >= shown), len(numbers))
    if valid == len(numbers):
        return _kept(names, tuple(numbers), (), topology)
    problem = f"{_listed(names, topology)}, but this job may open {shown} GPU{'s' if shown != 1 else ''}."
    if not valid:
        return GpuGrant(names, None, (), (problem,))
    return _kept(names[:valid], tuple(numbers[:valid]), (), topology, problem)


def _by_uuid(names: Names, indices: SlurmIndices, topology: NodeTopology) -> GpuGrant:
    """The grant by UUID; like CUDA, any unambiguous prefix is accepted.

    As many names as Slurm granted GPUs are Slurm's own; of more of them, those count that were granted.
    Only Slurm's index says which MIG device is meant by an older name.
    """
    positions: list[int] = []
    position_of = positions_of(indices, topology) or {}
    for name in names:
        matches = [n for n, gpu in enumerate(topology.gpus) if gpu.uuid and gpu.uuid.startswith(name)]
        if not matches and name.startswith(_OLD_MIG_NAME) and len(indices) == len(names):
            matches = [position_of[indices[len(positions)]]] if position_of else []
        if len(matches) != 1:
            written = indices if len(indices) == len(names) else ()
            return GpuGrant(names, None, written, (f"No GPU on this node matches {name}.",))
        positions.append(matches[0])
    index_at = {position: index for index, position in position_of.items()}
    if len(names) > len(indices) and index_at:
        both = [n for n, position in enumerate(positions) if position in index_at]
        kept = tuple(index_at[positions[n]] for n in both)
        problem = _in_both(names, indices, topology)
        return GpuGrant(tuple(names[n] for n in both), tuple(positions[n] for n in both), kept, (problem,))
    if all(position in index_at for position in positions):
        return GpuGrant(names, tuple(positions), tuple(index_at[position] for position in positions))
    return GpuGrant(names, tuple(positions), indices if len(indices) == len(names) else ())


def _by_index(names: Names | None, indices: SlurmIndices, topology: NodeTopology) -> GpuGrant:
    """The grant by Slurm's indices; of visible names, those are kept whose GPU was granted."""
    position_of = positions_of(indices, topology)
    if names is None:
        if position_of is None:
            return GpuGrant((), None, indices, (_missing(indices, topology),))
        return _named(tuple(position_of[index] for index in indices), indices, topology)
    pairs = _paired(names, indices, position_of, topology)
    problems = (_in_both(names, indices, topology),) if len(pairs) < max(len(names), len(indices)) else ()
    kept, mine = tuple(name for name, _ in pairs), tuple(index for _, index in pairs)
    if position_of is None:
        return GpuGrant(kept, None, mine, (*problems, _missing(indices, topology)))
    return _kept(kept, tuple(position_of[index] for index in mine), mine, topology, *problems)


def _paired(
    names: Names, indices: SlurmIndices, position_of: Mapping[SlurmIndex, int] | None, topology: NodeTopology
) -> list[tuple[VisibleName, SlurmIndex]]:
    """Each name, a number, with its Slurm index; names that do not belong to the job are left out.

    The names are CUDA indices, so where what CUDA counts is known they are positions. A line such as
    ``CUDA_VISIBLE_DEVICES=$SLURM_JOB_GPUS`` means something else only in a device cgroup: there all of Slurm's indices
    are replaced by what CUDA calls these GPUs.

    Elsewhere Slurm writes the i-th name for the i-th index. If a site's own lines have removed or reordered names, a
    name is Slurm's index where it is one of them, and otherwise a number within the job.
    """
    numbers = tuple(CudaIndex(int(name)) for name in names)
    as_slurms = tuple(map(SlurmIndex, numbers))
    if position_of is not None and _shows_what_cuda_counts(topology) and not _has_mig(topology):
        index_at = {position_of[index]: index for index in indices}
        pairs = [(name, index_at[number]) for name, number in zip(names, numbers) if number in index_at]
        if len(pairs) == len(names) or set(as_slurms) != set(indices):
            return pairs
        own = {index: _name(topology, position_of[index], of=len(indices)) for index in as_slurms}
        return [(name, index) for index, name in own.items() if name is not None]
    if as_slurms == indices or numbers == tuple(range(len(indices))):
        return list(zip(names, indices))
    alone = _shows_what_cuda_counts(topology) and len(topology.gpus) == len(indices)
    if not set(as_slurms) <= set(indices) and (alone or max(numbers) < len(indices)):
        return [(name, indices[number]) for name, number in zip(names, numbers) if number < len(indices)]
    return [(name, index) for name, index in zip(names, as_slurms) if index in indices]


def _by_count(count: int, topology: NodeTopology) -> GpuGrant:
    everything = _visible(None, topology)
    if count == len(everything):
        return everything
    visible = len(topology.gpus)
    problem = f"Slurm granted {count} GPU{'s' if count != 1 else ''}, but does not say which; {visible} were found."
    return GpuGrant((), None, problems=(problem,))


def positions_of(indices: SlurmIndices, topology: NodeTopology) -> dict[SlurmIndex, int] | None:
    """The position in the topology of each of Slurm's indices; None if that is not known.

    Either the topology counts as Slurm does, or it shows only the job's GPUs, in the same order.
    """
    by_number = {n if _has_mig(topology) else gpu.index: n for n, gpu in enumerate(topology.gpus)}
    if all(index in by_number for index in indices):
        return {index: by_number[index] for index in indices}
    if len(indices) == len(topology.gpus):
        return {index: sorted(indices).index(index) for index in indices}
    return None


def _has_mig(topology: NodeTopology) -> bool:
    return any(gpu.mig for gpu in topology.gpus)


def _named(positions: Numbers, indices: SlurmIndices, topology: NodeTopology) -> GpuGrant:
    """These GPUs by names of our own; without a name for one of them, the environment stays as it is."""
    names = [_name(topology, position, of=len(positions)) for position in positions]
    known = tuple(name for name in names if name is not None)
    if len(known) == len(names):
        return GpuGrant(known, positions, indices)
    which = _granted_words(indices) if indices else "All GPUs of this node were granted"
    problem = f"{which}, but what programs call them is not known; all GPUs that this job may open are left visible."
    return GpuGrant(None, positions, indices, (problem,))


def _kept(names: Names, positions: Numbers, indices: SlurmIndices, topology: NodeTopology, *problems: str) -> GpuGrant:
    """These GPUs by the names that they have; by UUID on a node with MIG devices, which CUDA does not count."""
    if not _has_mig(topology):
        return GpuGrant(names, positions, indices, problems)
    uuids = (topology.gpus[position].uuid for position in positions)
    kept = tuple(VisibleName(uuid) if uuid else name for name, uuid in zip(names, uuids))
    if any(name.isdigit() for name in kept):
        text = f"Slurm names GPU {','.join(kept)}; CUDA counts none like that beside MIG devices."
        return GpuGrant(None, positions, indices, (*problems, text))
    return GpuGrant(kept, positions, indices, problems)


def _name(topology: NodeTopology, position: int, *, of: int) -> VisibleName | None:
    """What CUDA calls a GPU, one ``of`` so many that the job has: its CUDA index, or else its UUID."""
    index = _cuda_index(topology, position, of)
    if index is not None:
        return VisibleName(str(index))
    return VisibleName(topology.gpus[position].uuid) if topology.gpus[position].uuid else None


def _cuda_index(topology: NodeTopology, position: int, granted: int) -> CudaIndex | None:
    """The CUDA index of a GPU of this job, which has ``granted`` GPUs; None if it is not known.

    It is not where only some GPUs of a description of the whole node were granted, which may be in a device cgroup;
    where there are MIG devices; and after a GPU that does not respond, which CUDA may leave out.
    """
    if _has_mig(topology):
        return None
    if _shows_what_cuda_counts(topology):
        return CudaIndex(position) if not any(map(_is_lost, topology.gpus[:position])) else None
    return CudaIndex(position) if topology.simulated or granted == len(topology.gpus) else None


def _is_lost(gpu: Gpu) -> bool:
    """Whether the driver counts it, but cannot say which it is."""
    return not gpu.uuid and bool(gpu.fault or not gpu.pci)


def _granted_words(indices: SlurmIndices) -> str:
    return f"Slurm granted GPU {format_cpulist(indices)}"


def _listed(names: Names, topology: NodeTopology) -> str:
    """What the job's environment lists; readers of other makers' GPUs have put their lists in CUDA's place."""
    makers = {gpu.vendor for gpu in topology.gpus}
    variable = next((LISTS[maker] for maker in makers if maker in LISTS), "CUDA_VISIBLE_DEVICES")
    return f"{variable} is {','.join(names)}"


def _in_both(names: Names, indices: SlurmIndices, topology: NodeTopology) -> str:
    return f"{_listed(names, topology)}, but {_granted_words(indices)}; only GPUs in both are used."


def _missing(indices: SlurmIndices, topology: NodeTopology) -> str:
    present = format_cpulist(gpu.index for gpu in topology.gpus)
    none = "none can be identified" if topology.devices else "no GPU was found"
    text = f"only GPU {present} was found" if present else none
    return f"GPU {format_cpulist(indices)} was granted, but {text} on this node."


def _reachable(granted: GpuGrant, topology: NodeTopology) -> GpuGrant:
    """Drop GPUs that the driver counts but cannot identify (lost from the bus), if any others are left.

    CUDA fails entirely if one of its visible devices fails.
    """
    if not granted.positions or "nvml" not in topology.source:
        return granted
    gpus = topology.gpus
    lost = {n for n in granted.positions if _is_lost(gpus[n])}
    keep = [i for i, n in enumerate(granted.positions) if n not in lost]
    if not lost or not keep:
        return granted
    left_out = format_cpulist(topology.gpus[n].index for n in lost)
    return granted.take(keep, f"GPU {left_out} was granted but does not respond; it is not used.")


def cpus(
    environ: Mapping[str, str], topology: NodeTopology, allowed: Numbers, slurm: ControllerAnswers
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


class ControllerAnswers:
    """What slurmctld says about this job and its node: asked if the environment leaves something open, and once."""

    def __init__(self, environ: Mapping[str, str], *, job: str | None = None, node: str | None = None) -> None:
        """``job``, ``node``: answers of scontrol that are known already."""
        self._environ, self._job, self._node = environ, job, node

    def allocation(self) -> NodeAllocation:
        """What this job was granted on this node; empty what is not answered in time."""
        if self._job is None:
            self._job = scontrol_show("job", self._environ.get("SLURM_JOB_ID", ""))
        return allocation_on(self._environ.get("SLURMD_NODENAME", ""), self._job)

    def answers(self) -> bool:
        """Whether it says anything about this job."""
        self.allocation()
        return bool(self._job)

    def hands_out_gpus(self) -> bool | None:
        """Whether this node's GPUs, or shares of them, are a generic resource at all; None without an answer."""
        if self._node is None:
            self._node = scontrol_show("node", self._environ.get("SLURMD_NODENAME", ""))
        return parse_node(self._node)

    def gives_nodes_alone(self) -> bool:
        """Whether the job requested GPUs, has its nodes for itself, and was assigned no GPU (SelectType=select/linear).

        That plugin gives out whole nodes: it counts a node's GPUs, and says nothing of them in a job.
        """
        held = self.allocation().gres
        words = (self._job or "").split()
        requested = any(word.startswith("TresPerNode=gres") and "gpu" in word for word in words)
        return requested and "OverSubscribe=NO" in words and not any(gres.count for gres in held)


def scontrol_show(what: str, name: str) -> str:
    """What slurmctld says about a ``job`` or a ``node``, in detail; empty if it does not answer in time."""
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
