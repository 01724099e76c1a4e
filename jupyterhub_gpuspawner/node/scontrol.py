"""``scontrol show job -d`` and ``scontrol show node``, asked if the environment does not show what Slurm granted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.node import child
from jupyterhub_gpuspawner.node.allocation import GrantedJob
from jupyterhub_gpuspawner.units import GPU_GRES, NodeAllocation, parse_allocations, parse_gres

if TYPE_CHECKING:
    from collections.abc import Mapping

SECONDS = 3.0
"""Time limit for one answer."""


def show_job(environ: Mapping[str, str]) -> GrantedJob:
    """Ask slurmctld about this job; fields that it does not answer in time are None."""
    return parse_job(answer_about_job(environ), environ.get("SLURMD_NODENAME", ""))


def answer_about_job(environ: Mapping[str, str]) -> str:
    """What slurmctld says about this job, for :func:`parse_job`; empty if it does not answer in time."""
    return _show("job", environ.get("SLURM_JOB_ID", ""))


def node_address(node: str) -> str:
    """The address by which Slurm's daemons reach a node (``NodeAddr``); empty without an answer."""
    words = _show("node", node).split()
    return next((word.partition("=")[2] for word in words if word.startswith("NodeAddr=")), "")


def show_node_gpus(environ: Mapping[str, str]) -> bool | None:
    """Ask slurmctld whether this node's GPUs, or shares of them, are a generic resource; None without an answer."""
    return parse_node(_show("node", environ.get("SLURMD_NODENAME", "")))


def _show(what: str, name: str) -> str:
    if not name or name.startswith("-"):
        return ""
    # --local: do not ask the other clusters of a federation
    return child.run(["scontrol", "--local", "--details", "show", what, name], SECONDS).decode(errors="replace")


def parse_job(text: str, node: str) -> GrantedJob:
    """Parse this node's line of the answer, such as ``     Nodes=g1 CPU_IDs=0-3 Mem=4000 GRES=gpu:k80:2(IDX:0-1)``.

    Output of ``--oneliner`` is not accepted: there, a job's name or comment could contain such words.
    """
    for allocation in allocations_of(text):
        if node in ("", allocation.node):
            indices = {index for gres in allocation.gres if gres.name in ("gpu", "shard") for index in gres.indices}
            return GrantedJob(gpus=tuple(sorted(indices)) or None, cpus=allocation.cpu_ids or None)
    return GrantedJob()


def allocations_of(text: str) -> tuple[NodeAllocation, ...]:
    """What the job holds on each node, by the lines of the answer that say so; what is malformed is left out."""
    allocations: list[NodeAllocation] = []
    for line in text.splitlines():
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
    for line in text.splitlines():
        name, _, value = line.strip().partition("=")
        if name == "Gres":
            try:
                return any(gres.name in GPU_GRES for gres in parse_gres(value))
            except ValueError:
                return None
    return None
