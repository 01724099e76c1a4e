"""Placing one server on its node: observe, get the grant, choose GPUs and CPUs, bind, set the environment.

CPU affinity and memory policy are set for this process, and read back; both survive ``exec``: sched_setaffinity(2),
set_mempolicy(2), get_mempolicy(2). The C library has no wrappers for the last two (libnuma does), so they are called by
number.
"""

from __future__ import annotations

import ctypes
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.node import grant
from jupyterhub_gpuspawner.node.grant import UNCHANGED, UNSAID, ControllerAnswers, GpuGrant
from jupyterhub_gpuspawner.node.hardware import observe
from jupyterhub_gpuspawner.placement import choice
from jupyterhub_gpuspawner.placement.choice import (
    aligned,
    choose_cpus,
    cores_of,
    memory_nodes,
    whole_cores,
)
from jupyterhub_gpuspawner.placement.topology import NodeTopology
from jupyterhub_gpuspawner.units import format_cpulist, parse_cpulist
from jupyterhub_gpuspawner.wire.documents import LaunchPlan, PlacedGpu, PlacementDocument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, MutableMapping, Sequence
    from typing import Any, TypeVar

    from jupyterhub_gpuspawner.node.hardware import Reader

    T = TypeVar("T")
    Cpus = tuple[int, ...]

THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
"""Set to the number of cores unless already set: some libraries start a thread for every CPU of the node."""
THREADS_SET = "GPUSPAWNER_THREADS"
"""Records the number that was set; tasks started by the server find it in their environment."""
SYSCALLS = {"x86_64": (238, 239), "aarch64": (237, 236), "ppc64le": (261, 260)}
"""Numbers of set_mempolicy and get_mempolicy, by machine."""
_MODES = {"default": 0, "preferred": 1, "bind": 2, "interleave": 3, "local": 4, "preferred-many": 5}
_MEMS_ALLOWED = 1 << 2
_BITS = 4096
"""Bits in a mask of NUMA nodes: more than any kernel's MAX_NUMNODES; get_mempolicy refuses fewer."""
_LONG = 8 * ctypes.sizeof(ctypes.c_ulong)
_FLAGS = 0xE000
"""Mode flags (MPOL_F_STATIC_NODES and the like), which get_mempolicy returns together with the mode."""


def entry(name: str) -> Any:
    """The function or class of a module in the archive; raises ImportError or AttributeError."""
    module, _, attribute = name.partition(":")
    return getattr(__import__(module, fromlist=[attribute]), attribute)


class Launch:
    """One launch: its plan, its environment, and the problems so far. :meth:`place` runs all steps."""

    without_choice = UNCHANGED
    """What the server gets if choosing GPUs fails: the GPUs as Slurm set them."""

    def __init__(
        self,
        plan: LaunchPlan,
        environ: MutableMapping[str, str],
        *,
        slurm: ControllerAnswers | None = None,
        topology: NodeTopology | None = None,
    ) -> None:
        """``slurm``, ``topology``: what is asked, and used, instead."""
        self.plan = plan
        self.environ = environ
        self.node = environ.get("SLURMD_NODENAME") or os.uname().nodename
        self.problems: list[str] = []
        self.slurm = slurm or ControllerAnswers(environ)
        self._topology = topology
        self.readers: list[Reader] = []
        for name in plan.readers:
            self.attempt(f"Preparing {name}", lambda name=name: self.readers.append(entry(name)(environ)), None)  # type: ignore[misc]

    def attempt(self, doing: str, work: Callable[[], T], otherwise: T) -> T:
        """Return what ``work`` returns; if it raises, add a problem that names ``doing`` and return ``otherwise``."""
        try:
            return work()
        except Exception as error:  # noqa: BLE001 - the notebook always starts
            self.problems.append(f"{doing} failed: {type(error).__name__}: {error}")
            return otherwise

    def with_problems(self, document: PlacementDocument) -> PlacementDocument:
        """The document with all problems so far, without duplicates."""
        return replace(document, problems=tuple(dict.fromkeys(self.problems)))

    def place(self) -> tuple[PlacementDocument, NodeTopology]:
        """Observe, choose, bind, and set the environment; returns the placement and the topology it is based on."""
        try:
            return self._place()
        finally:
            for reader in self.readers:
                self.attempt("Naming the GPUs", reader.leave, None)

    def _place(self) -> tuple[PlacementDocument, NodeTopology]:
        topology = self.attempt("Reading the hardware", self._observe, NodeTopology(hostname=self.node))
        for reader in self.readers:
            topology = self.attempt("Naming the GPUs", lambda r=reader, known=topology: r.enter(known), topology)  # type: ignore[misc]
        self.problems.extend(topology.problems)
        nothing: Cpus = ()
        allowed = self.attempt("Reading the CPU affinity", allowed_cpus, nothing)
        cpus = self.attempt("Reading the granted CPUs", lambda: self._granted_cpus(topology, allowed), allowed)
        gpus = self.attempt("Choosing GPUs", lambda: self._gpus(topology, cpus), self.without_choice)
        self.problems.extend(faults(topology, gpus.positions or ()))
        cpus = self.attempt("Choosing CPUs", lambda: self._cpus(topology, cpus, gpus), cpus)
        memory = "none"
        if not topology.simulated:  # whose numbers are not those of the real machine
            wanted = cpus
            cpus = self.attempt("Binding CPUs", lambda: self._noted(bind_cpus(wanted)), allowed) if cpus else ()
            memory = self.attempt("Binding memory", lambda: self._bind_memory(topology, cpus, gpus), "none")
        self.attempt("Setting the environment", lambda: self._export(topology, cpus, gpus), None)
        document = PlacementDocument(
            job_id=self.environ.get("SLURM_JOB_ID"),
            node=self.node,
            partition=self.environ.get("SLURM_JOB_PARTITION"),
            simulated=topology.simulated,
            gpus=_gpu_documents(gpus, topology),
            cpus=format_cpulist(cpus),
            numa_nodes=_numa_nodes(topology, cpus) or gpus.choice.numa_nodes,
            memory_policy=memory,
            policy=self.plan.policy,
            aligned=self.attempt("Checking the alignment", lambda: self._aligned(topology, gpus, cpus, memory), None),
            weakest_link=gpus.choice.weakest_link,
            why=gpus.choice.why,
            started_at=utc(time.time()),
            ends_at=self.attempt("Reading the job's end", self._ends_at, None),
        )
        return self.with_problems(document), topology

    def _observe(self) -> NodeTopology:
        plan = self.plan
        return self._topology or observe(
            node=self.node, topology_file=plan.topology_file, deadline=plan.deadline, readers=self.readers
        )

    def _noted(self, result: tuple[T, tuple[str, ...]]) -> T:
        """The value of a step that returns problems with it."""
        self.problems.extend(result[1])
        return result[0]

    def _granted_cpus(self, topology: NodeTopology, allowed: Cpus) -> Cpus:
        return self._noted(grant.cpus(self.environ, topology, allowed, self.slurm))

    def _grant(self, topology: NodeTopology, cpus: Cpus) -> GpuGrant:  # noqa: ARG002 - for subclasses
        """The GPUs from which this server's are chosen; ``cpus`` are the CPUs granted to it."""
        return grant.gpus(self.environ, topology, self.slurm)

    def _gpus(self, topology: NodeTopology, cpus: Cpus) -> GpuGrant:
        promised = self.plan.gpus or 0
        if not promised and not grant.in_job(self.environ):
            return UNCHANGED
        granted = self._grant(topology, cpus)
        self.problems.extend(granted.problems)
        if promised > len(granted) and granted.positions is not None:
            gpus = f"{promised} GPU{'s' if promised != 1 else ''}"
            self.problems.append(f"The profile promises {gpus}; only {len(granted)} available.")
        if not len(granted):
            return self._no_gpus(topology, granted)
        count = promised if promised and granted.names is not None else len(granted)
        if granted.positions is None:
            return granted.take(range(min(count, len(granted))))
        plan, among = self.plan, granted.positions
        best = choice.choose(
            topology, granted=among, count=count, cpus=cpus, policy=plan.policy, gpu_type=plan.gpu_type
        )
        chosen = replace(granted.take(map(granted.positions.index, best.gpus)), choice=best)
        return chosen.because(best.why + _in_slurms_words(chosen, topology))

    def _no_gpus(self, topology: NodeTopology, granted: GpuGrant) -> GpuGrant:
        """Hide the node's GPUs from a job that has none; change nothing if the job has GPUs that were not found."""
        if not topology.gpus or not grant.in_job(self.environ):
            return UNCHANGED
        if granted == UNSAID:
            if not self.plan.gpus:
                return GpuGrant().because(
                    "Slurm does not say that this job has a GPU; the node's GPUs are hidden from it."
                )
            self.problems.append("Slurm does not say which GPUs this job has; all that it may open are left visible.")
        if granted.positions is None:
            return UNCHANGED
        if granted.problems:
            return GpuGrant().because("The GPUs of this job are hidden from its server.")
        return GpuGrant().because("This job has no GPU; the node's GPUs are hidden from it.")

    def _cpus(self, topology: NodeTopology, granted: Cpus, gpus: GpuGrant) -> Cpus:
        """The server's: all that Slurm allocated of the NUMA nodes on which those that were promised are."""
        threads = self._threads_of_a_cpu(topology, granted)
        available = len(granted) // threads
        promised = self.plan.cpus or available
        if promised > available > 0:
            self.problems.append(f"The profile promises {promised} CPUs; only {available} available.")
        if promised >= available or self.plan.policy == "none":
            return granted
        beside = gpus.positions or ()
        nodes = _numa_nodes(topology, choose_cpus(topology, granted=granted, count=promised * threads, gpus=beside))
        near = [cpu for cpu in granted if topology.numa_node_of_cpu(cpu) in nodes] or granted
        allocated = max(promised, grant.number(self.environ.get("SLURM_CPUS_ON_NODE")) or 0)
        chosen = choose_cpus(topology, granted=near, count=allocated * threads, gpus=beside)
        return whole_cores(topology, near, chosen)

    def _threads_of_a_cpu(self, topology: NodeTopology, granted: Cpus) -> int:
        """How many of the ``granted`` CPUs are one of those that Slurm counts as granted.

        More than one where Slurm gives out cores and counts each as one CPU: for a job with ``--hint=nomultithread``,
        and on a node with fewer ``CPUs`` than threads in slurm.conf.
        """
        cores = len(cores_of(topology, granted))
        return len(granted) // cores if grant.number(self.environ.get("SLURM_CPUS_ON_NODE")) == cores > 0 else 1

    def _bind_memory(self, topology: NodeTopology, cpus: Cpus, gpus: GpuGrant) -> str:
        nodes = memory_nodes(topology, cpus, gpus.positions or ())
        return self._noted(bind_memory(self.plan.memory_policy, nodes, _numa_nodes(topology, cpus)))

    def _aligned(self, topology: NodeTopology, gpus: GpuGrant, cpus: Cpus, memory: str) -> bool | None:
        near = aligned(topology, gpus.positions or (), cpus)
        nodes = _numa_nodes(topology, cpus)
        if near is not True or topology.simulated or not nodes or memory == "none":
            return near
        return memory_is_on(memory, nodes)

    def _export(self, topology: NodeTopology, cpus: Cpus, gpus: GpuGrant) -> None:
        if gpus.visible is not None:
            self.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
            self.environ["CUDA_VISIBLE_DEVICES"] = gpus.visible
            self.environ["GPUSPAWNER_GPUS"] = gpus.visible
        self.environ["GPUSPAWNER_CPUS"] = format_cpulist(cpus)
        self.environ["GPUSPAWNER_NUMA_NODES"] = format_cpulist(_numa_nodes(topology, cpus))
        if self.plan.set_threads and cpus:
            for name in (*THREADS, THREADS_SET):
                self.environ.setdefault(name, str(self._threads(topology, cpus)))

    def _threads(self, topology: NodeTopology, cpus: Cpus) -> int:
        """The number of physical cores of these CPUs."""
        return len(cores_of(topology, cpus))

    def _ends_at(self) -> str | None:
        end = self.environ.get("SLURM_JOB_END_TIME", "")
        return utc(int(end)) if end else None


class NoGpus(Launch):
    """The launch of a server that uses no GPU: any of them might be another server's."""

    without_choice = GpuGrant().because("The node's GPUs are hidden from this server.")

    def _place(self) -> tuple[PlacementDocument, NodeTopology]:
        """Whichever step fails, the server sees no GPU."""
        try:
            return super()._place()
        finally:
            self.environ["CUDA_VISIBLE_DEVICES"] = ""

    def _gpus(self, topology: NodeTopology, cpus: Cpus) -> GpuGrant:  # noqa: ARG002 - the same in every case
        return self.without_choice


def faults(topology: NodeTopology, positions: Iterable[int]) -> list[str]:
    """A sentence for each of these GPUs with a fault that a problem of the topology does not name already.

    The latter are those of a driver, or a GPU, that does not answer, which then has no UUID.
    """
    gpus = (topology.gpus[position] for position in positions)
    return [f"GPU {gpu.index}: {gpu.fault}" for gpu in gpus if gpu.fault and gpu.uuid]


def _gpu_documents(gpus: GpuGrant, topology: NodeTopology) -> tuple[PlacedGpu, ...]:
    """GPUs for the report; the index is the number in ``CUDA_VISIBLE_DEVICES``, if that contains numbers."""
    if gpus.positions is None:
        numbers = [int(name) if name.isdigit() else None for name in gpus.names or ()]
        return tuple(
            PlacedGpu(index=number or 0, uuid=name if number is None else "")
            for number, name in zip(numbers, gpus.names or ())
        )
    names: Sequence[str] = gpus.names if gpus.names is not None else [""] * len(gpus.positions)
    return tuple(
        PlacedGpu(
            index=int(name) if name.isdigit() else topology.gpus[position].index,
            uuid=topology.gpus[position].uuid,
            pci=topology.gpus[position].pci,
            name=topology.gpus[position].name,
            memory_mib=topology.gpus[position].memory_mib,
            numa_node=topology.gpus[position].numa_node,
            mig=topology.gpus[position].mig,
            mig_device=topology.mig_device(position),
        )
        for name, position in zip(names, gpus.positions)
    )


def _in_slurms_words(chosen: GpuGrant, topology: NodeTopology) -> str:
    """Slurm's own indices, if the driver counts differently: in a device cgroup, or with MIG devices."""
    if chosen.slurm == tuple(topology.gpus[position].index for position in chosen.positions or ()) or not chosen.slurm:
        return ""
    subject = "these are GPUs" if len(chosen) > 1 else "this is GPU"
    return f" To Slurm {subject} {format_cpulist(chosen.slurm)}."


def _numa_nodes(topology: NodeTopology, cpus: Sequence[int]) -> tuple[int, ...]:
    nodes = {topology.numa_node_of_cpu(cpu) for cpu in cpus}
    return tuple(sorted(node for node in nodes if node is not None))


def utc(seconds: float) -> str:
    """ISO 8601 in UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def allowed_cpus() -> tuple[int, ...]:
    """The CPUs that this process may use, by kernel number, sorted."""
    return tuple(sorted(os.sched_getaffinity(0)))


def bind_cpus(cpus: Iterable[int]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Bind this process to those of ``cpus`` that it may already use.

    Returns the CPUs that the kernel allows afterwards, and problems. (Given a set that contains other CPUs too, the
    kernel would silently use the rest; so only the rest is passed to it.)
    """
    allowed = allowed_cpus()
    wanted = tuple(sorted(set(cpus)))
    possible = tuple(cpu for cpu in wanted if cpu in allowed)
    if not wanted:
        return allowed, ()
    if not possible:
        problem = (
            f"This process is not allowed to use CPUs {format_cpulist(wanted)}; it remains on CPUs "
            f"{format_cpulist(allowed)}."
        )
        return allowed, (problem,)
    try:
        os.sched_setaffinity(0, possible)
    except OSError as error:
        return allowed_cpus(), (f"The kernel refused to bind to CPUs {format_cpulist(possible)}: {error.strerror}.",)
    return allowed_cpus(), ()


def bind_memory(policy: str, nodes: Iterable[int], local: Iterable[int] = ()) -> tuple[str, tuple[str, ...]]:
    """Set the memory policy ``preferred`` or ``bind`` on ``nodes`` (kernel numbers); ``none`` changes nothing.

    ``local``: the NUMA nodes of this process's CPUs. Without a policy the kernel prefers these, for each thread its
    own, so none is set if no other node is preferred. A kernel before 5.15 has no ``preferred-many``; there none is set
    for several nodes: to prefer one of them would take the memory of all threads from there.
    Returns the policy as read back from the kernel (``default``, ``preferred:0``, ``preferred-many:0-1``, ``bind:0``;
    ``none`` if it cannot be read), and problems.
    """
    wanted = tuple(dict.fromkeys(nodes))
    problems: tuple[str, ...] = ()
    try:
        if policy != "none" and wanted:
            problems = _set_policy(policy, wanted, frozenset(local))
    except OSError as error:
        problems = (f"The kernel refused the memory policy {policy}: {_reason(error)}.",)
    try:
        return read_memory(), problems
    except OSError as error:
        return "none", (*problems, f"The memory policy cannot be read from the kernel: {_reason(error)}.")


def _set_policy(policy: str, wanted: tuple[int, ...], local: frozenset[int]) -> tuple[str, ...]:
    allowed = get_mempolicy(_MEMS_ALLOWED)[1]
    nodes = tuple(node for node in wanted if node in allowed)
    if not nodes:
        problem = (
            f"This job is not allowed to use memory of NUMA nodes {format_cpulist(wanted)}, only of "
            f"{format_cpulist(allowed)}; no policy was set."
        )
        return (problem,)
    if policy == "preferred" and local.issuperset(nodes):
        return ()
    if policy == "bind" or len(nodes) == 1:
        set_mempolicy(_MODES[policy], nodes)
        return ()
    try:
        set_mempolicy(_MODES["preferred-many"], nodes)
    except OSError as error:
        import errno

        if error.errno != errno.EINVAL:
            raise
    return ()


def read_memory() -> str:
    """This process's memory policy, read from the kernel; raises OSError."""
    mode, nodes = get_mempolicy(0)
    name = next((name for name, number in _MODES.items() if number == mode & ~_FLAGS), f"mode {mode}")
    return f"{name}:{format_cpulist(nodes)}" if nodes else name


def memory_is_on(policy: str, nodes: Iterable[int]) -> bool:
    """Whether a policy, as returned by :func:`read_memory`, takes memory from exactly these NUMA nodes; raises OSError.

    Without a policy, memory comes from the node of the CPU that first touches it, if this job may use that node.
    """
    wanted, allowed = set(nodes), set(get_mempolicy(_MEMS_ALLOWED)[1])
    named = policy.partition(":")[2]
    return set(parse_cpulist(named)) & allowed == wanted if named else wanted <= allowed


def set_mempolicy(mode: int, nodes: tuple[int, ...]) -> None:
    """Set the mode and the NUMA nodes of the memory policy, as the kernel numbers them; raises OSError."""
    mask = (ctypes.c_ulong * (_BITS // _LONG))()
    for node in nodes:
        mask[node // _LONG] |= 1 << node % _LONG
    _system_call(0, ctypes.c_long(mode), mask, ctypes.c_ulong(_BITS + 1))


def get_mempolicy(flags: int) -> tuple[int, tuple[int, ...]]:
    """The mode of the memory policy and its NUMA nodes, as the kernel numbers them; raises OSError."""
    mode = ctypes.c_int()
    mask = (ctypes.c_ulong * (_BITS // _LONG))()
    _system_call(1, ctypes.byref(mode), mask, ctypes.c_ulong(_BITS), None, ctypes.c_ulong(flags))
    return mode.value, tuple(n for n in range(_BITS) if mask[n // _LONG] >> n % _LONG & 1)


def _system_call(which: int, *arguments: object | None) -> None:
    machine = os.uname().machine
    if machine not in SYSCALLS:
        import errno

        raise OSError(errno.ENOSYS, f"the number of the system call is unknown for {machine}")
    library = ctypes.CDLL(None, use_errno=True)
    if library.syscall(ctypes.c_long(SYSCALLS[machine][which]), *arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _reason(error: OSError) -> str:
    if isinstance(error, PermissionError):
        return f"{error.strerror} (seccomp without CAP_SYS_NICE, as in many containers)"
    return str(error.strerror)
