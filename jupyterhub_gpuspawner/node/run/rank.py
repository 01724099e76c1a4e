"""One rank of a step, on its node: it is placed, gets its environment, runs the command, and says how that ended.

The command is a child of this process, so that its end can be told to ``gpuspawner-run`` with the node and the reason,
whatever has ended it. Signals from Slurm reach both.
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

from jupyterhub_gpuspawner.node import child
from jupyterhub_gpuspawner.node.grant import Slurm
from jupyterhub_gpuspawner.node.placing import THREADS, THREADS_SET, Placing
from jupyterhub_gpuspawner.node.run import step, variables
from jupyterhub_gpuspawner.node.run.srun import SPEC, loads
from jupyterhub_gpuspawner.placement import choice
from jupyterhub_gpuspawner.placement.affinity import choose_cpus
from jupyterhub_gpuspawner.placement.choice import opened
from jupyterhub_gpuspawner.wire.documents import recover_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping, Sequence
    from typing import Any, NoReturn, TypeVar

    from jupyterhub_gpuspawner.node.grant import GpuGrant
    from jupyterhub_gpuspawner.node.run.srun import Spec
    from jupyterhub_gpuspawner.placement.topology import NodeTopology
    from jupyterhub_gpuspawner.wire.documents import LaunchPlan, PlacementDocument

    T = TypeVar("T")
    Cpus = tuple[int, ...]
    Become = Callable[[Sequence[str], Mapping[str, str]], NoReturn]
    """Replaces this process with a command, see ``become`` of :mod:`~jupyterhub_gpuspawner.node.main`."""


# One task's share of a job step's GPUs and CPUs on a node.
#
# ``srun`` can start several tasks on a node and, by default, shows each of them all GPUs and CPUs of the step. Each
# task computes the same division, from what all tasks know, and takes its own share. What Slurm has already divided is
# left unchanged. (srun(1), "OUTPUT ENVIRONMENT VARIABLES".)


_TASKS = re.compile(r"(\d{1,6})(?:\(x(\d{1,6})\))?", re.ASCII)


@dataclass(frozen=True)
class Rank:
    """One of the tasks of a job step on this node."""

    local: int
    """From 0 (``SLURM_LOCALID``)."""
    count: int
    """Tasks of the step on this node."""

    def share(self, items: Sequence[T]) -> tuple[T, ...]:
        """This task's share of ``items``, see :func:`shares`."""
        return shares(items, self.count)[self.local]


def rank_of(environ: Mapping[str, str]) -> Rank | None:
    """This task's rank on its node; None outside a job step, for the only task of a node, or if Slurm does not say."""
    local, node = _number(environ.get("SLURM_LOCALID")), _number(environ.get("SLURM_NODEID"))
    counts = tasks_per_node(environ.get("SLURM_STEP_TASKS_PER_NODE", ""))
    if local is None or node is None or node >= len(counts) or not 0 <= local < counts[node] or counts[node] == 1:
        return None
    return Rank(local, counts[node])


def tasks_per_node(text: str) -> tuple[int, ...]:
    """Expand a list such as ``2(x3),1``; empty if the text has another form."""
    counts: list[int] = []
    for word in text.split(","):
        match = _TASKS.fullmatch(word)
        if match is None or len(counts) + int(match[2] or 1) > 1_000_000:
            return ()
        counts += [int(match[1])] * int(match[2] or 1)
    return tuple(counts)


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() else None


def shares(items: Sequence[T], count: int) -> tuple[tuple[T, ...], ...]:
    """Split ``items`` into ``count`` contiguous parts; if they are not equal, the first ones have one more.

    If there are fewer items than parts, the parts get one item each, in turn.
    """
    if 0 < len(items) < count:
        return tuple((items[n % len(items)],) for n in range(count))
    size, larger = divmod(len(items), count)
    starts = [n * size + min(n, larger) for n in range(count + 1)]
    return tuple(tuple(items[start:end]) for start, end in zip(starts, starts[1:]))


def has_own(kind: str, environ: Mapping[str, str], number: int) -> bool:
    """Whether Slurm gives this task fewer ``GPUS`` or ``CPUS`` than the step has here, by options or task/affinity."""
    return 0 < number < (_number(environ.get(f"SLURM_{kind}_ON_NODE")) or 0)


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
    inside = set(free)
    core_of = {cpu: core[0] for core in topology.siblings for cpu in core if cpu in inside}
    cores: dict[int, int] = {}
    for cpu in free:
        cores[core_of.get(cpu, cpu)] = cores.get(core_of.get(cpu, cpu), 0) + 1
    if len(cores) < tasks:
        return [len(part) for part in shares(free, tasks)]
    return [sum(part) for part in shares(sorted(cores.values(), reverse=True), tasks)]


def _is_near(topology: NodeTopology, cpu: int, gpus: Sequence[int]) -> bool:
    node = topology.numa_node_of_cpu(cpu)
    near = [topology.gpus[gpu] for gpu in gpus]
    return any(node == gpu.numa_node if None not in (node, gpu.numa_node) else cpu in gpu.cpus for gpu in near)


# Placing one of several tasks that ``srun`` started on a node: it gets a share of the step's GPUs and CPUs.


class StepPlacing(Placing):
    """The launch of one task. Its share follows from what all tasks of the step on this node know."""

    def __init__(self, plan: LaunchPlan, environ: MutableMapping[str, str], rank: Rank, **known: Any) -> None:
        super().__init__(plan, environ, **known)
        self.rank = rank
        self.keeps: tuple[str, ...] = ()
        """What Slurm binds by the user's choice: ``gpu``, ``cpu``."""
        self.opened = False
        """Whether the ring of this node is part of one over several nodes."""
        self.in_order: tuple[str, ...] = ()
        """The visible names of the GPUs of all tasks on this node, in the order of the tasks."""
        self._beside: tuple[tuple[int, ...], ...] = ((),) * rank.count
        """The GPUs of each task, by position; empty if not known."""
        self.sharing = 1
        """Processes that have this task's CPUs."""

    def _grant(self, topology: NodeTopology, cpus: Cpus) -> GpuGrant:
        """This task's part of the GPUs of all tasks on this node, or its own if Slurm has divided them."""
        granted = super()._grant(topology, cpus)
        if "gpu" in self.keeps:
            return granted
        if has_own("GPUS", self.environ, len(granted)):
            self._beside = shares(_of_the_job(self.environ.get("SLURM_JOB_GPUS", ""), topology), self.rank.count)
            return granted
        order = list(range(len(granted)))
        if granted.positions:
            count = len(granted)
            ring = choice.choose(topology, granted=granted.positions, count=count, policy=self.plan.policy).gpus
            ring = opened(topology, ring) if self.opened else ring
            order = [granted.positions.index(position) for position in ring]
            self._beside = shares(ring, self.rank.count)
        if 0 < len(order) < self.rank.count and self.rank.local == 0:
            self.problems.append(f"{self.rank.count} tasks share {len(order)} GPUs on this node.")
        self.in_order = granted.take(order).names or ()
        return granted.take(self.rank.share(order))

    def _gpus(self, topology: NodeTopology, cpus: Cpus) -> GpuGrant:
        gpus = super()._gpus(topology, cpus)
        return gpus.because(f"Task {self.rank.local} of {self.rank.count} on this node. {gpus.choice.why}".rstrip())

    def _cpus(self, topology: NodeTopology, granted: Cpus, gpus: GpuGrant) -> Cpus:  # noqa: ARG002 - only what all tasks know counts
        if has_own("CPUS", self.environ, len(granted)):
            return granted
        if self.plan.policy == "none":
            self.sharing *= self.rank.count
            return granted
        if 0 < len(granted) < self.rank.count and self.rank.local == 0:
            self.problems.append(f"{self.rank.count} tasks share {len(granted)} CPUs on this node.")
        per_task = self.plan.cpus or _number(self.environ.get("SLURM_CPUS_PER_TASK"))
        return divide_cpus(topology, granted, self._beside, per_task=per_task)[self.rank.local]

    def _export(self, topology: NodeTopology, cpus: Cpus, gpus: GpuGrant) -> None:
        # What was set for the server of the whole job does not hold for a part of it.
        whole = self.environ.pop(THREADS_SET, None)
        for name in [name for name in THREADS if self.environ.get(name, "") == whole]:
            del self.environ[name]
        super()._export(topology, cpus, gpus)

    def _threads(self, topology: NodeTopology, cpus: Cpus) -> int:
        return max(1, super()._threads(topology, cpus) // self.sharing)


def _of_the_job(indices: str, topology: NodeTopology) -> tuple[int, ...]:
    """Positions of the GPUs that the whole job has on this node; empty if some of them cannot be seen."""
    positions = {str(gpu.index): n for n, gpu in enumerate(topology.gpus) if gpu.mig is None}
    words = indices.split(",")
    return tuple(positions[word] for word in words) if all(word in positions for word in words) else ()


_PASSED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT, signal.SIGQUIT)
_TAIL = 4096
"""Bytes of a failed rank's log that are shown."""


class RankPlacing(StepPlacing):
    """A rank's placement: its part of its node, except for what Slurm binds by the user's choice."""

    def __init__(
        self,
        plan: LaunchPlan,
        environ: MutableMapping[str, str],
        rank: Rank,
        spec: Spec,
        command: Sequence[str] = (),
        **known: Any,
    ) -> None:
        known.setdefault("slurm", Slurm(environ, job=spec.allocation or None))
        super().__init__(plan, environ, rank, **known)
        self.spec, self.command, self.keeps = spec, command, spec.keeps
        self.opened = environ.get("SLURM_STEP_NUM_NODES", "1") != "1"

    def _gpus(self, topology: NodeTopology, cpus: Cpus) -> GpuGrant:
        gpus = super()._gpus(topology, cpus)
        if "gpu" in self.keeps:
            return replace(gpus, names=None)
        if not self.opened or not gpus.visible or not gpus.positions:
            return gpus
        return gpus.take(map(gpus.positions.index, opened(topology, gpus.positions)))

    def _cpus(self, topology: NodeTopology, granted: Cpus, gpus: GpuGrant) -> Cpus:
        if "cpu" not in self.keeps:
            return super()._cpus(topology, granted, gpus)
        self.sharing *= 1 if has_own("CPUS", self.environ, len(granted)) else self.rank.count
        return granted

    def _export(self, topology: NodeTopology, cpus: Cpus, gpus: GpuGrant) -> None:
        own = gpus.positions or ()
        if self.spec.torchrun:
            names = self.environ.get("CUDA_VISIBLE_DEVICES", "") if gpus.visible is None else gpus.visible
            self.sharing *= variables.processes(self.command, gpus=len(_words(names)), cpus=len(cpus))
        super()._export(topology, cpus, gpus)
        if self.spec.all_gpus and self.in_order and gpus.visible:
            self.environ["CUDA_VISIBLE_DEVICES"] = ",".join(self.in_order)
        whole = self._beside if any(self._beside) else (own,)
        positions = tuple(dict.fromkeys(position for part in whole for position in part))
        self.environ.update(variables.nearest_nics(self.environ, topology, own, positions))


def placed(spec: Spec, environ: MutableMapping[str, str], command: Sequence[str], where: variables.Position) -> None:
    """Place and bind this process, and set the environment of its rank."""
    plan = replace(recover_plan(spec.plan)[0], report=False, lab=False, claim=None, gpus=None, cpus=None)
    if "mem" in spec.keeps:
        plan = replace(plan, memory_policy="none")
    placing = RankPlacing(plan, environ, Rank(where.local, where.beside), spec, command)
    document, topology = placing.place()
    environ.update(variables.of_rank(where, environ, spec.master_addr, spec.master_port))
    route = variables.interface_to(environ.get("MASTER_ADDR", ""))
    environ.update(variables.interfaces(environ, route, infiniband=variables.has_infiniband()))
    placing.attempt("Providing NCCL's topology file", lambda: _bring_nccl_file(environ, topology), None)
    if where.local == 0:
        for problem in dict.fromkeys(placing.problems):
            _say(problem)
    if spec.verbose:
        _say(f"{placing.node} rank {where.rank}: {binding(document, environ.get('CUDA_VISIBLE_DEVICES'))}")


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
        file = os.memfd_create("nccl.xml")
        os.write(file, text.encode())
        environ["NCCL_TOPO_FILE"] = f"/proc/{os.getpid()}/fd/{file}"


def position(environ: Mapping[str, str]) -> variables.Position:
    """The rank's place in the step, as Slurm numbers it; raises KeyError or ValueError outside a step."""
    node = int(environ["SLURM_NODEID"])
    counts = tasks_per_node(environ["SLURM_STEP_TASKS_PER_NODE"])
    return variables.Position(
        rank=int(environ["SLURM_PROCID"]),
        world=int(environ["SLURM_STEP_NUM_TASKS"]),
        local=int(environ["SLURM_LOCALID"]),
        beside=counts[node],
        node=node,
        nodes=len(counts),
    )


def main(command: Sequence[str], become: Become) -> NoReturn:
    """Run ``command`` as this rank, and exit with its exit code (128 + N, if signal N ended it)."""
    environ = os.environ
    spec = loads(environ.pop(SPEC))
    where = position(environ)
    placed(spec, environ, command, where)
    if spec.torchrun:
        gpus = _words(environ.get("CUDA_VISIBLE_DEVICES", ""))
        command, port = variables.torchrun(command, where, environ, processes=max(1, len(gpus)))
        environ.update({**port, **environ})
    node = environ.get("SLURMD_NODENAME") or os.uname().nodename
    log = os.path.join(spec.logs, f"rank-{where.rank}.{node}.log") if spec.logs else ""
    alive = step.Beat(where.rank).line(spec.token).encode()
    status = _run(command, environ, log, become, beat=partial(_beat, spec.beat, alive) if spec.beat else None)
    code, number = (0, -status) if status < 0 else (status, 0)
    if log and status:
        _show_end(log)
    line = step.Ending(where.rank, node, code, number, log).line(spec.token)
    os.write(2, line.encode())
    raise SystemExit(128 + number if number else code)


def _run(
    command: Sequence[str],
    environ: Mapping[str, str],
    log: str,
    become: Become,
    beat: Callable[[], object] | None = None,
) -> int:
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
            become(command, environ)
        except SystemExit as end:
            os._exit(end.code if isinstance(end.code, int) else 1)
        finally:
            os._exit(126)
    for number in _PASSED:
        signal.signal(number, lambda *_: None)  # Slurm sends signals to the child, too
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


def _words(names: str) -> list[str]:
    return [name for name in names.split(",") if name]


def _say(sentence: str) -> None:
    os.write(2, f"gpuspawner: {sentence}\n".encode(errors="replace"))


def _show_end(log: str) -> None:
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.path.getsize(log) - _TAIL))
            lines = file.read().splitlines()[-20:]
        os.write(2, b"".join(line + b"\n" for line in lines))
    except OSError:
        return
