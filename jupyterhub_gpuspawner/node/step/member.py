"""One rank of a step, on its node: it is placed, gets its environment, runs the command, and says how that ended.

The command is a child of this process, so that its end can be told to ``gpuspawner-run`` with the node and the reason,
whatever has ended it. Signals from Slurm reach both.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.node import child, scontrol
from jupyterhub_gpuspawner.node.observation import observe
from jupyterhub_gpuspawner.node.step import endings, network, variables
from jupyterhub_gpuspawner.node.step.srun import SPEC, loads
from jupyterhub_gpuspawner.node.task.rank import Rank, has_own_cpus, tasks_per_node
from jupyterhub_gpuspawner.node.task.task import StepPlacing
from jupyterhub_gpuspawner.placement.choice import opened
from jupyterhub_gpuspawner.wire.documents import recover_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping, Sequence
    from typing import NoReturn

    from jupyterhub_gpuspawner.node.step.srun import Spec

    Become = Callable[[Sequence[str], Mapping[str, str]], NoReturn]
    """Replaces this process with a command, see ``become`` of :mod:`~jupyterhub_gpuspawner.node.launch`."""

    from jupyterhub_gpuspawner.node.allocation import GpuGrant, GrantedJob
    from jupyterhub_gpuspawner.node.placing import Gpus
    from jupyterhub_gpuspawner.placement.topology import NodeTopology
    from jupyterhub_gpuspawner.wire.documents import LaunchPlan, PlacementDocument

_PASSED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT, signal.SIGQUIT)
_TAIL = 4096
"""Bytes of a failed rank's log that are shown."""


class RankPlacing(StepPlacing):
    """A rank's placement: its part of its node, except for what Slurm binds by the user's choice."""

    def __init__(
        self,
        plan: LaunchPlan,
        environ: MutableMapping[str, str],
        node: str,
        observe_node: Callable[[], NodeTopology],
        *,
        rank: Rank,
        spec: Spec,
        command: Sequence[str] = (),
    ) -> None:
        super().__init__(plan, environ, node, observe_node, rank=rank)
        self.spec = spec
        self.command = command
        self.opened = environ.get("SLURM_STEP_NUM_NODES", "1") != "1"

    def job(self) -> GrantedJob:
        """From what ``gpuspawner-run`` has asked slurmctld; else slurmctld is asked."""
        return scontrol.parse_job(self.spec.allocation, self.node) if self.spec.allocation else super().job()

    def _grant(self, topology: NodeTopology, cpus: tuple[int, ...]) -> GpuGrant:
        if "gpu" in self.spec.keeps:
            return self._whole_grant(topology, cpus)
        return super()._grant(topology, cpus)

    def _gpus(self, topology: NodeTopology, cpus: tuple[int, ...]) -> Gpus:
        gpus = super()._gpus(topology, cpus)
        if "gpu" in self.spec.keeps:
            return replace(gpus, visible=None)
        if not self.opened or not gpus.visible:
            return gpus
        names = dict(zip(gpus.positions, zip(gpus.visible.split(","), gpus.placed)))
        ring = opened(topology, gpus.positions)
        return replace(
            gpus,
            positions=ring,
            visible=",".join(names[position][0] for position in ring),
            placed=tuple(names[position][1] for position in ring),
        )

    def _cpus(self, topology: NodeTopology, granted: tuple[int, ...], gpus: Gpus) -> tuple[int, ...]:
        if "cpu" not in self.spec.keeps:
            return super()._cpus(topology, granted, gpus)
        self.sharing *= 1 if has_own_cpus(self.environ, len(granted)) else self.rank.count
        return granted

    def _export(self, topology: NodeTopology, cpus: tuple[int, ...], gpus: Gpus) -> None:
        if self.spec.torchrun:
            names = self.environ.get("CUDA_VISIBLE_DEVICES", "") if gpus.visible is None else gpus.visible
            self.sharing *= variables.processes(self.command, gpus=len(_words(names)), cpus=len(cpus))
        super()._export(topology, cpus, gpus)
        if self.spec.all_gpus and self.in_order and gpus.visible:
            self.environ["CUDA_VISIBLE_DEVICES"] = ",".join(self.in_order)
        whole = self._beside if any(self._beside) else (gpus.positions,)
        positions = tuple(dict.fromkeys(position for part in whole for position in part))
        self.environ.update(variables.nearest_nics(self.environ, topology, gpus.positions, positions))


def placed(spec: Spec, environ: MutableMapping[str, str], command: Sequence[str]) -> None:
    """Place and bind this process, and set the environment of its rank."""
    plan = replace(recover_plan(spec.plan)[0], report=False, lab=False, claim=None, gpus=None, cpus=None)
    if "mem" in spec.keeps:
        plan = replace(plan, memory_policy="none")
    where = position(environ)
    node = environ.get("SLURMD_NODENAME") or os.uname().nodename
    observe_node = partial(observe, node=node, topology_file=plan.topology_file, deadline=plan.deadline)
    placing = RankPlacing(
        plan, environ, node, observe_node, rank=Rank(where.local, where.beside), spec=spec, command=command
    )
    document, topology = placing.place()
    environ.update(variables.of_rank(where, environ, spec.master_addr, spec.master_port))
    route = network.interface_to(environ.get("MASTER_ADDR", ""))
    environ.update(variables.interfaces(environ, route, infiniband=network.has_infiniband()))
    placing.attempt("Providing NCCL's topology file", lambda: _bring_nccl_file(environ, topology), None)
    if where.local == 0:
        for problem in dict.fromkeys(placing.problems):
            _say(problem)
    if spec.verbose:
        _say(f"{node} rank {where.rank}: {binding(document, environ.get('CUDA_VISIBLE_DEVICES'))}")


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
    placed(spec, environ, command)
    where = position(environ)
    if spec.torchrun:
        gpus = _words(environ.get("CUDA_VISIBLE_DEVICES", ""))
        command, port = variables.torchrun(command, where, environ, processes=max(1, len(gpus)))
        environ.update({**port, **environ})
    node = environ.get("SLURMD_NODENAME") or os.uname().nodename
    log = os.path.join(spec.logs, f"rank-{where.rank}.{node}.log") if spec.logs else ""
    alive = endings.Beat(where.rank).line(spec.token).encode()
    status = _run(command, environ, log, become, beat=partial(_beat, spec.beat, alive) if spec.beat else None)
    code, number = (0, -status) if status < 0 else (status, 0)
    if log and status:
        _show_end(log)
    line = endings.Ending(where.rank, node, code, number, log).line(spec.token)
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
