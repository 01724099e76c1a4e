"""One task of a job step on its node: its rank, and its part of the node's GPUs and CPUs, memory and environment.

``srun`` can start several tasks on a node and, by default, shows each of them all GPUs and CPUs of the step. Each task
computes the same division, from what all tasks know, and takes its own share. What Slurm has already divided is left
unchanged (srun(1), "OUTPUT ENVIRONMENT VARIABLES").

The command is a child of this process, so that its end can be reported to ``gpuspawner-run`` with the node and the
reason, whatever has ended it. Signals from Slurm reach both.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.extensions.several_nodes.node import variables
from jupyterhub_gpuspawner.extensions.several_nodes.node.network import rotate_to_slowest_link
from jupyterhub_gpuspawner.extensions.several_nodes.node.srun import SPEC, loads
from jupyterhub_gpuspawner.extensions.several_nodes.node.step import Message
from jupyterhub_gpuspawner.node import child
from jupyterhub_gpuspawner.node.grant import ControllerAnswers, number, positions_of, slurm_indices, visible_names
from jupyterhub_gpuspawner.node.placing import THREADS, THREADS_SET, Launch
from jupyterhub_gpuspawner.placement import choice
from jupyterhub_gpuspawner.placement.choice import choose_cpus, cores_of
from jupyterhub_gpuspawner.wire.documents import recover_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping, Sequence
    from typing import Any, NoReturn, TypeVar

    from jupyterhub_gpuspawner.extensions.several_nodes.node.srun import Spec
    from jupyterhub_gpuspawner.node.grant import GpuGrant
    from jupyterhub_gpuspawner.placement.topology import NodeTopology
    from jupyterhub_gpuspawner.wire.documents import LaunchPlan, PlacementDocument

    T = TypeVar("T")
    Cpus = tuple[int, ...]


_TASKS = re.compile(r"(\d{1,6})(?:\(x(\d{1,6})\))?", re.ASCII)


@dataclass(frozen=True)
class Rank:
    """One of the tasks of a job step, as Slurm numbers them."""

    number: int
    """Among all tasks of the step (``SLURM_PROCID``)."""
    local: int
    """Among those of its node (``SLURM_LOCALID``)."""
    node: int
    """Its node, among those of the step (``SLURM_NODEID``)."""
    tasks: tuple[int, ...]
    """Tasks on each node of the step."""

    @property
    def count(self) -> int:
        """Tasks of the step on this node."""
        return self.tasks[self.node]

    def share(self, items: Sequence[T]) -> tuple[T, ...]:
        """This task's share of ``items``, see :func:`shares`."""
        return shares(items, self.count)[self.local]

    def variables(self) -> dict[str, str]:
        """The numbers of the rank, as torch.distributed reads them; they replace any that are set."""
        return {
            "RANK": str(self.number),
            "WORLD_SIZE": str(sum(self.tasks)),
            "LOCAL_RANK": str(self.local),
            "LOCAL_WORLD_SIZE": str(self.count),
            "NODE_RANK": str(self.node),
            "GROUP_RANK": str(self.node),
        }


def rank_of(environ: Mapping[str, str]) -> Rank | None:
    """This task's rank; None outside a job step, or if Slurm does not say."""
    numbers = [number(environ.get(f"SLURM_{name}")) for name in ("PROCID", "LOCALID", "NODEID")]
    process, local, node = (-1 if value is None else value for value in numbers)
    tasks = tasks_per_node(environ.get("SLURM_STEP_TASKS_PER_NODE", ""))
    if process < 0 or not 0 <= node < len(tasks) or not 0 <= local < tasks[node]:
        return None
    return Rank(process, local, node, tasks)


def tasks_per_node(text: str) -> tuple[int, ...]:
    """Expand a list such as ``2(x3),1``; empty if the text has another form."""
    counts: list[int] = []
    for word in text.split(","):
        match = _TASKS.fullmatch(word)
        if match is None or len(counts) + int(match[2] or 1) > 1_000_000:
            return ()
        counts += [int(match[1])] * int(match[2] or 1)
    return tuple(counts)


def shares(items: Sequence[T], count: int) -> tuple[tuple[T, ...], ...]:
    """Split ``items`` into ``count`` contiguous parts; if they are not equal, the first ones have one more.

    If there are fewer items than parts, the parts get one item each, in turn.
    """
    if 0 < len(items) < count:
        return tuple((items[n % len(items)],) for n in range(count))
    size, larger = divmod(len(items), count)
    starts = [n * size + min(n, larger) for n in range(count + 1)]
    return tuple(tuple(items[start:end]) for start, end in zip(starts, starts[1:]))


def has_own(kind: str, environ: Mapping[str, str], count: int) -> bool:
    """Whether Slurm gives this task fewer ``GPUS`` or ``CPUS`` than the step has here, by options or task/affinity."""
    return 0 < count < (number(environ.get(f"SLURM_{kind}_ON_NODE")) or 0)


def divide_cpus(
    topology: NodeTopology, granted: Sequence[int], gpus: Sequence[Sequence[int]], *, per_task: int | None = None
) -> tuple[tuple[int, ...], ...]:
    """CPUs for each task, given the positions of its GPUs; CPUs are shared only if there are fewer than tasks.

    ``per_task`` is the number of CPUs promised to a task. If it is None or too large, all CPUs are divided, in whole
    cores if there are enough. Each task first takes CPUs near to its GPUs, then what is missing from the rest.
    """
    free = sorted(set(granted))
    if len(free) < len(gpus):
        return shares(free, len(gpus))
    sizes = _sizes(topology, free, len(gpus), per_task)
    parts: list[tuple[int, ...]] = [()] * len(gpus)
    for nearby in (True, False):
        for n, mine in enumerate(gpus):
            field = [cpu for cpu in free if not nearby or _is_near(topology, cpu, mine)]
            missing = min(sizes[n] - len(parts[n]), len(field))
            chosen = choose_cpus(topology, granted=field, count=missing, gpus=mine) if missing else ()
            parts[n] += chosen
            free = [cpu for cpu in free if cpu not in chosen]
    return tuple(tuple(sorted(part)) for part in parts)


def _sizes(topology: NodeTopology, free: Sequence[int], tasks: int, per_task: int | None) -> list[int]:
    if per_task and per_task * tasks <= len(free):
        return [per_task] * tasks
    cores = sorted((len(cpus) for cpus, _ in cores_of(topology, free)), reverse=True)
    return [sum(part) for part in shares(cores if len(cores) >= tasks else [1] * len(free), tasks)]


def _is_near(topology: NodeTopology, cpu: int, gpus: Sequence[int]) -> bool:
    node = topology.numa_node_of_cpu(cpu)
    near = [topology.gpus[gpu] for gpu in gpus]
    return any(node == gpu.numa_node if None not in (node, gpu.numa_node) else cpu in gpu.cpus for gpu in near)


class RankLaunch(Launch):
    """The launch of one task. Its share follows from what all tasks of the step on this node know."""

    def __init__(
        self,
        plan: LaunchPlan,
        environ: MutableMapping[str, str],
        rank: Rank,
        spec: Spec,
        command: Sequence[str] = (),
        **facts: Any,
    ) -> None:
        """``spec``: of ``gpuspawner-run``, which is to run ``command``."""
        super().__init__(plan, environ, **facts)
        self.rank, self.spec, self.command = rank, spec, command
        self.keeps = spec.keeps
        """What Slurm binds by the user's choice: ``gpu``, ``cpu``."""
        self.is_open = len(rank.tasks) > 1
        """Whether the ring of this node is part of one over several nodes."""
        self.in_order: tuple[str, ...] = ()
        """The visible names of the GPUs of all tasks on this node, in the order of the tasks."""
        self._beside: tuple[tuple[int, ...], ...] = ((),) * rank.count
        """The GPUs of each task on this node, by position; empty if not known."""
        self.sharing = 1
        """Processes that have this task's CPUs."""

    def _grant(self, topology: NodeTopology, cpus: Cpus) -> GpuGrant:
        """This task's part of the GPUs of all tasks on this node, or its own if Slurm has divided them."""
        granted = super()._grant(topology, cpus)
        if "gpu" in self.keeps:
            return granted
        if has_own("GPUS", self.environ, len(granted)):
            indices = slurm_indices(self.environ.get("SLURM_JOB_GPUS"))
            of_the_job = positions_of(indices, topology) or {}
            self._beside = shares(tuple(of_the_job.values()), self.rank.count)
            return granted
        order = list(range(len(granted)))
        if granted.positions:
            count = len(granted)
            ring = choice.choose(topology, granted=granted.positions, count=count, policy=self.plan.policy).gpus
            ring = rotate_to_slowest_link(topology, ring) if self.is_open else ring
            order = [granted.positions.index(position) for position in ring]
            self._beside = shares(ring, self.rank.count)
        self._note_shared(len(order), "GPUs")
        self.in_order = granted.take(order).names or ()
        return granted.take(self.rank.share(order))

    def _note_shared(self, count: int, what: str) -> None:
        if 0 < count < self.rank.count and self.rank.local == 0:
            self.problems.append(f"{self.rank.count} tasks share {count} {what} on this node.")

    def _gpus(self, topology: NodeTopology, cpus: Cpus) -> GpuGrant:
        gpus = super()._gpus(topology, cpus)
        gpus = gpus.because(f"Task {self.rank.local} of {self.rank.count} on this node. {gpus.choice.why}".rstrip())
        if "gpu" in self.keeps:
            return replace(gpus, names=None)
        if not self.is_open or not gpus.visible or not gpus.positions:
            return gpus
        return gpus.take(map(gpus.positions.index, rotate_to_slowest_link(topology, gpus.positions)))

    def _cpus(self, topology: NodeTopology, granted: Cpus, gpus: GpuGrant) -> Cpus:  # noqa: ARG002 - only what all tasks know counts
        if has_own("CPUS", self.environ, len(granted)):
            return granted
        if "cpu" in self.keeps or self.plan.policy == "none":
            self.sharing *= self.rank.count
            return granted
        self._note_shared(len(granted), "CPUs")
        per_task = self.plan.cpus or number(self.environ.get("SLURM_CPUS_PER_TASK"))
        if per_task is not None:
            per_task *= self._threads_of_a_cpu(topology, granted)
        return divide_cpus(topology, granted, self._beside, per_task=per_task)[self.rank.local]

    def _export(self, topology: NodeTopology, cpus: Cpus, gpus: GpuGrant) -> None:
        # What was set for the server of the whole job does not hold for a part of it.
        whole = self.environ.pop(THREADS_SET, None)
        for name in [name for name in THREADS if self.environ.get(name, "") == whole]:
            del self.environ[name]
        if self.spec.torchrun:
            names = visible_names(self.environ) if gpus.names is None else gpus.names
            self.sharing *= variables.processes(self.command, gpus=len(names or ()), cpus=len(cpus))
        super()._export(topology, cpus, gpus)
        if self.spec.all_gpus and self.in_order and gpus.visible:
            self.environ["CUDA_VISIBLE_DEVICES"] = ",".join(self.in_order)
        own = gpus.positions or ()
        of_all = dict.fromkeys(position for part in self._beside for position in part)
        self.environ.update(variables.nearest_nics(self.environ, topology, own, tuple(of_all) or own))

    def _threads(self, topology: NodeTopology, cpus: Cpus) -> int:
        return max(1, super()._threads(topology, cpus) // self.sharing)


_PASSED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT, signal.SIGQUIT)
_TAIL = 4096
"""Bytes of a failed rank's log that are shown."""


def place(spec: Spec, environ: MutableMapping[str, str], command: Sequence[str], rank: Rank) -> None:
    """Place and bind this process, and set the environment of its rank."""
    plan = replace(recover_plan(spec.plan)[0], report=False, choose=None, gpus=None, cpus=None)
    if "mem" in spec.keeps:
        plan = replace(plan, memory_policy="none")
    slurm = ControllerAnswers(environ, job=spec.allocation or None)
    placing = RankLaunch(plan, environ, rank, spec, command, slurm=slurm)
    document, topology = placing.place()
    environ.update({**rank.variables(), **variables.master(environ, spec.master_addr, spec.master_port)})
    route = variables.interface_to(environ.get("MASTER_ADDR", ""))
    environ.update(variables.interfaces(environ, route, infiniband=variables.has_infiniband()))
    placing.attempt("Providing NCCL's topology file", lambda: _bring_nccl_file(environ, topology), None)
    if rank.local == 0:
        for problem in dict.fromkeys(placing.problems):
            child.complain(problem)
    if spec.verbose:
        bound = binding(document, environ.get("CUDA_VISIBLE_DEVICES"))
        child.complain(f"{placing.node} rank {rank.number}: {bound}")


def binding(document: PlacementDocument, gpus: str | None) -> str:
    """What a rank is bound to, in words. ``gpus``: its ``CUDA_VISIBLE_DEVICES``."""
    visible = f"GPUs {'not set' if gpus is None else gpus or 'none'}"
    if document.simulated:
        return f"{visible}; CPUs and memory not bound, because the node is simulated"
    return f"{visible}; CPUs {document.cpus or 'not known'}; memory {document.memory_policy}"


def _bring_nccl_file(environ: MutableMapping[str, str], topology: NodeTopology) -> None:
    """Keep NCCL's topology file in this process's memory, where it needs no removing; raises OSError."""
    text = variables.nccl_file(environ, topology)
    if text:
        file = child.unnamed_file("nccl.xml")
        os.write(file, text.encode())
        environ["NCCL_TOPO_FILE"] = f"/proc/{os.getpid()}/fd/{file}"


def main(command: Sequence[str]) -> NoReturn:
    """Run ``command`` as this rank, and exit with its exit code (128 + N, if signal N ended it)."""
    environ = os.environ
    spec, rank = loads(environ.pop(SPEC)), rank_of(environ)
    if rank is None:
        raise ValueError("Slurm does not say which rank this is")
    place(spec, environ, command, rank)
    if spec.torchrun:
        gpus = len(visible_names(environ) or ())
        command, port = variables.torchrun(command, environ, processes=max(1, gpus))
        environ.update({**port, **environ})
    node = environ.get("SLURMD_NODENAME") or os.uname().nodename
    log = os.path.join(spec.logs, f"rank-{rank.number}.{node}.log") if spec.logs else ""
    alive = Message(rank.number).line(spec.token).encode()
    status = _run(command, environ, log, beat=partial(_beat, spec.beat, alive) if spec.beat else None)
    if log and status:
        _show_end(log)
    end = Message(rank.number, node, status, log)
    os.write(2, end.line(spec.token).encode())
    raise SystemExit(end.exit_code)


def _run(command: Sequence[str], environ: Mapping[str, str], log: str, beat: Callable[[], object] | None = None) -> int:
    """The exit code of the command, or minus the number of the signal that ended it. ``beat`` runs beside it."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) if log else None
    parent = os.getpid()
    running = os.fork()
    if running == 0:
        try:
            child.die_with(parent)
            if output is not None:
                os.dup2(output, 1)
                os.dup2(output, 2)
            child.exec_command(command, environ)
        except SystemExit as end:
            os._exit(end.code if isinstance(end.code, int) else 1)
        finally:
            os._exit(126)
    for passed in _PASSED:
        signal.signal(passed, lambda *_: None)  # Slurm sends signals to the child, too
    if beat is not None:
        threading.Thread(target=beat, daemon=True).start()
    status = os.waitpid(running, 0)[1]
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _beat(seconds: float, line: bytes) -> None:
    """Say regularly that this rank is there. If slurmstepd has ended, nothing else would end the rank."""
    slurmstepd = os.getppid()
    while os.getppid() == slurmstepd:
        try:
            os.write(2, line)
        except OSError:
            return
        time.sleep(seconds)
    os.killpg(0, signal.SIGKILL)  # the step's processes on this node


def _show_end(log: str) -> None:
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.path.getsize(log) - _TAIL))
            lines = file.read().splitlines()[-20:]
        os.write(2, b"".join(line + b"\n" for line in lines))
    except OSError:
        return
