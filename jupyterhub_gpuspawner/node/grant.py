"""What Slurm granted this job on this node: which GPUs, which CPUs. Never more than that is used.

Three number spaces meet here (gres.conf(5), sbatch(1), srun(1)):

- *Slurm's index* counts the node's GPUs (or MIG devices) in the order of gres.conf: ``SLURM_JOB_GPUS``,
  ``SLURM_STEP_GPUS``, ``IDX:`` in ``scontrol show job -d``.
- *The visible name* is an entry of ``CUDA_VISIBLE_DEVICES``: with ``ConstrainDevices=yes`` counted from 0 within the
  job, else Slurm's index; a UUID for MIG devices and with ``Flags=env_uuid``. The i-th name is the i-th Slurm index.
- *The position* is the place in :attr:`NodeTopology.gpus`. Inside a device cgroup NVML lists the job's GPUs alone.

The visible names are kept as Slurm wrote them, only fewer and in another order, since programs read them in the form
that their site has.
"""

from __future__ import annotations

from typing import Callable, List, Mapping, NamedTuple, Optional, Tuple

from jupyterhub_gpuspawner.topology import NodeTopology
from jupyterhub_gpuspawner.units import format_cpulist


class JobDetail(NamedTuple):
    """What ``scontrol show job -d`` says of this job on this node; None where it says nothing."""

    gpus: Optional[Tuple[int, ...]] = None
    """Slurm's indices."""
    cpus: Optional[Tuple[int, ...]] = None
    """Slurm's abstract CPU numbers: package by package, core by core, thread by thread."""


AskSlurm = Callable[[], JobDetail]
"""Costs a question to slurmctld; called only where the environment leaves something open."""


class GpuGrant(NamedTuple):
    """The job's GPUs, in Slurm's order.

    ``positions`` is None where it is not known which devices of the topology they are; then ``names`` alone holds.
    """

    names: Tuple[str, ...] = ()
    """Entries for ``CUDA_VISIBLE_DEVICES``."""
    positions: Optional[Tuple[int, ...]] = ()
    slurm: Tuple[int, ...] = ()
    """Slurm's indices, in the same order; empty where not known."""
    managed: bool = True
    """False where no scheduler hands out GPUs: outside a job."""
    problems: Tuple[str, ...] = ()


def in_job(environ: Mapping[str, str]) -> bool:
    """True inside a Slurm job."""
    return bool(environ.get("SLURM_JOB_ID") or environ.get("SLURM_JOBID"))


def gpus(environ: Mapping[str, str], topology: NodeTopology, ask_slurm: AskSlurm) -> GpuGrant:
    """The GPUs that are this job's, as positions and names; outside a job, all that the environment leaves visible."""
    names = _names(environ)
    indices = _indices(environ.get("SLURM_STEP_GPUS")) or _indices(environ.get("SLURM_JOB_GPUS"))
    if not in_job(environ):
        return _local(names, topology)
    count = _count(environ.get("SLURM_GPUS_ON_NODE"))
    if names and not all(name.isdigit() for name in names):
        return _by_uuid(names, indices, topology)
    if indices is None and _open(names, count, topology):
        indices = ask_slurm().gpus
    if indices:
        return _by_index(names, indices, topology)
    if names:
        return _by_name(names, topology)
    if count:
        return _by_count(count, topology)
    return GpuGrant()


def _names(environ: Mapping[str, str]) -> Tuple[str, ...]:
    """Entries of ``CUDA_VISIBLE_DEVICES``, else of ``GPU_DEVICE_ORDINAL``; none for Slurm's ``NoDevFiles``."""
    text = environ.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        text = environ.get("GPU_DEVICE_ORDINAL", "")
    names = [name.strip() for name in text.split(",")]
    return () if text == "NoDevFiles" else tuple(dict.fromkeys(name for name in names if name and name != "-1"))


def _indices(text: Optional[str]) -> Optional[Tuple[int, ...]]:
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    return tuple(dict.fromkeys(int(word) for word in words)) if words and all(w.isdigit() for w in words) else None


def _count(text: Optional[str]) -> int:
    return int(text) if text and text.isdigit() else 0


def _open(names: Tuple[str, ...], count: int, topology: NodeTopology) -> bool:
    """True where names or a count alone do not tell which devices are meant.

    NVML shows either the job's GPUs alone (then they are all meant) or every GPU, which happens only without a device
    cgroup, where names are Slurm's indices. A file always shows every GPU, so a name may be either.
    """
    granted = len(names) or count
    if not granted or granted == len(topology.gpus):
        return False
    return not names or topology.source == "file"


def _local(names: Tuple[str, ...], topology: NodeTopology) -> GpuGrant:
    if not names:
        everything = tuple(range(len(topology.gpus)))
        return GpuGrant(tuple(_own_name(topology, n) for n in everything), everything, managed=False)
    if all(name.isdigit() for name in names):
        return _by_name(names, topology)._replace(managed=False)
    return _by_uuid(names, None, topology)._replace(managed=False)


def _by_uuid(names: Tuple[str, ...], indices: Optional[Tuple[int, ...]], topology: NodeTopology) -> GpuGrant:
    """By UUID, of which CUDA takes any unambiguous beginning."""
    slurm = indices if indices is not None and len(indices) == len(names) else ()
    found = []
    for name in names:
        matches = [n for n, gpu in enumerate(topology.gpus) if gpu.uuid and gpu.uuid.startswith(name)]
        if len(matches) != 1:
            break
        found.append(matches[0])
    else:
        return GpuGrant(names, tuple(found), slurm)
    if len(names) == len(topology.gpus) and not any(gpu.uuid for gpu in topology.gpus):
        return GpuGrant(names, tuple(range(len(names))), slurm)
    return GpuGrant(names, None, slurm, problems=(f"No GPU of this node is known as {name}.",))


def _by_index(names: Tuple[str, ...], indices: Tuple[int, ...], topology: NodeTopology) -> GpuGrant:
    """By Slurm's indices; names that go with them are kept, if there are as many."""
    if names and len(names) != len(indices):
        return _narrowed(names, indices, topology)
    positions = _positions(indices, topology)
    if positions is None:
        return GpuGrant(names or _words(indices), None, indices, problems=(_unknown(indices, topology),))
    own = tuple(_own_name(topology, position) for position in positions)
    if any(topology.gpus[position].mig for position in positions):
        return GpuGrant(own, positions, indices)
    return GpuGrant(names or own, positions, indices)


def _narrowed(names: Tuple[str, ...], indices: Tuple[int, ...], topology: NodeTopology) -> GpuGrant:
    """The environment names fewer GPUs (or others) than Slurm granted: what both allow."""
    numbers = tuple(int(name) for name in names)
    both = tuple(number for number in numbers if number in indices)
    if both != numbers and max(numbers) < len(indices):
        both = tuple(indices[number] for number in numbers)
        return _by_index(names, both, topology)
    problem = (
        f"CUDA_VISIBLE_DEVICES is {','.join(names)} though Slurm granted GPUs {','.join(_words(indices))}; "
        f"what both allow is used."
    )
    granted = _by_index((), both, topology) if both else GpuGrant()
    return granted._replace(problems=(problem, *granted.problems))


def _by_name(names: Tuple[str, ...], topology: NodeTopology) -> GpuGrant:
    numbers = tuple(int(name) for name in names)
    positions = _positions(numbers, topology)
    if positions is None:
        return GpuGrant(names, None, problems=(_unknown(numbers, topology),))
    return GpuGrant(names, positions)


def _by_count(count: int, topology: NodeTopology) -> GpuGrant:
    positions = tuple(range(len(topology.gpus)))
    if count == len(positions):
        return GpuGrant(tuple(_own_name(topology, n) for n in positions), positions)
    return GpuGrant(
        (), None, problems=(f"Slurm granted {count} GPUs of {len(positions)} but does not say which; none is hidden.",)
    )


def _positions(numbers: Tuple[int, ...], topology: NodeTopology) -> Optional[Tuple[int, ...]]:
    """Where the GPUs of these indices stand in the topology; None where one of them does not."""
    if len(numbers) == len(topology.gpus):
        ranks = sorted(numbers)
        return tuple(ranks.index(number) for number in numbers)
    if any(gpu.mig for gpu in topology.gpus):
        places = {n: n for n in range(len(topology.gpus))}
    else:
        places = {gpu.index: n for n, gpu in enumerate(topology.gpus)}
    if any(number not in places for number in numbers):
        return None
    return tuple(places[number] for number in numbers)


def _own_name(topology: NodeTopology, position: int) -> str:
    """The name without Slurm's help: the index for whole GPUs, the UUID for MIG devices."""
    gpu = topology.gpus[position]
    return gpu.uuid if gpu.mig and gpu.uuid else str(gpu.index)


def _words(numbers: Tuple[int, ...]) -> Tuple[str, ...]:
    return tuple(str(number) for number in numbers)


def _unknown(numbers: Tuple[int, ...], topology: NodeTopology) -> str:
    seen = f"{len(topology.gpus)} GPU{'s' if len(topology.gpus) != 1 else ''}" if topology.gpus else "no GPU"
    return f"Slurm granted GPU {','.join(_words(numbers))}, but {seen} could be found on this node."


class CpuGrant(NamedTuple):
    """CPUs by kernel number; of a simulated node, its own numbers."""

    cpus: Tuple[int, ...] = ()
    problems: Tuple[str, ...] = ()


def cpus(
    environ: Mapping[str, str], topology: NodeTopology, allowed: Tuple[int, ...], ask_slurm: AskSlurm
) -> CpuGrant:
    """The CPUs that are this job's: what the kernel allows, and where that is more than Slurm granted, only those.

    ``allowed`` is this process's affinity; on a simulated node it says nothing.
    """
    count = _count(environ.get("SLURM_CPUS_ON_NODE"))
    field = tuple(sorted(cpu for node in topology.numa_nodes for cpu in node.cpus)) if topology.simulated else allowed
    if not in_job(environ) or not count or len(field) <= count:
        return CpuGrant(field)
    abstract = ask_slurm().cpus
    if abstract is None:
        return CpuGrant(field, (f"Slurm granted {count} CPUs but does not hold the job to them, or say which.",))
    granted = tuple(cpu for cpu in kernel_cpus(abstract, topology) if cpu in field)
    if not granted:
        return CpuGrant(
            field, (f"Slurm granted CPUs {format_cpulist(abstract)}, of which this process may use none.",)
        )
    return CpuGrant(granted)


def kernel_cpus(abstract: Tuple[int, ...], topology: NodeTopology) -> Tuple[int, ...]:
    """Kernel numbers of Slurm's abstract CPUs, which count package by package, core by core, thread by thread.

    Where the node's cores and packages are not known, the numbers are taken as they are.
    """
    order: List[int] = []
    cores = {core[0]: core for core in topology.siblings}
    for package in topology.packages:
        for cpu in package:
            order.extend(cores.get(cpu, () if topology.siblings else (cpu,)))
    if not order or max(abstract, default=0) >= len(order):
        return abstract
    return tuple(sorted(order[number] for number in abstract))
