"""``scontrol show job -d`` and ``scontrol show node``, asked if the environment does not show what Slurm granted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.cpulist import parse_cpulist
from jupyterhub_gpuspawner.node import child
from jupyterhub_gpuspawner.node.allocation import GrantedJob
from jupyterhub_gpuspawner.units import GPU_GRES, expand_nodelist, parse_gres

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
    for line in text.splitlines():
        fields = dict(word.partition("=")[::2] for word in line.split())
        if line.lstrip().startswith("Nodes=") and "CPU_IDs" in fields:
            try:
                if not node or node in expand_nodelist(fields["Nodes"]):
                    return GrantedJob(
                        gpus=_indices(fields.get("GRES", "")), cpus=parse_cpulist(fields["CPU_IDs"]) or None
                    )
            except ValueError:
                continue
    return GrantedJob()


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


def _indices(gres: str) -> tuple[int, ...] | None:
    """Slurm's indices of the GPUs that the job has, whole or a share of."""
    try:
        indices = {index for one in parse_gres(gres) if one.name in ("gpu", "shard") for index in one.indices}
    except ValueError:
        return None
    return tuple(sorted(indices)) or None
