"""The nodes of the job, and what it has on each: from the environment and from ``scontrol show job -d``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.cpulist import parse_cpulist
from jupyterhub_gpuspawner.units import GPU_GRES, expand_nodelist, parse_gres

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Job:
    """The job in which a step is to run."""

    id: str
    nodes: tuple[str, ...]
    """In Slurm's order, in which it also numbers the tasks of a step."""
    gpus: tuple[int, ...]
    """Number of GPUs, MIG devices and shares of GPUs on each node, in the same order."""
    here: str = ""
    """The node on which this process runs; empty if it is not one of the job's."""
    allocation: str = ""
    """The lines of ``scontrol show job -d`` about nodes, for the ranks; empty if there was no answer."""
    cpus: tuple[int, ...] = ()
    """Number of CPUs on each node, in the same order; empty if it is not known."""
    gpus_in_all: bool = False
    """Whether the job asked for GPUs of all its nodes together (``--gpus``); Slurm then gives a step none by itself."""


def read(environ: Mapping[str, str], answer: str) -> Job:
    """The job of this process. ``answer``: that of ``scontrol show job -d``, perhaps empty.

    Raises ValueError outside a job, or if its nodes are not known.
    """
    job = environ.get("SLURM_JOB_ID", "")
    if not job:
        raise ValueError("there is no Slurm job here: SLURM_JOB_ID is not set")
    lines = [line.strip() for line in answer.splitlines()]
    listed = [line.partition("=")[2] for line in lines if line.startswith("NodeList=")]
    text = environ.get("SLURM_JOB_NODELIST") or next(iter(listed), "")
    nodes = expand_nodelist(text) if text else ()
    if not nodes:
        raise ValueError(f"the nodes of job {job} are not known: neither SLURM_JOB_NODELIST nor scontrol names them")
    per_node = [line for line in lines if line.startswith("Nodes=") and "CPU_IDs=" in line]
    granted = {node: count for line in per_node for node, count in _gpus(line).items()}
    cpus = {node: count for line in per_node for node, count in _cpus(line).items()}
    here = environ.get("SLURMD_NODENAME", "")
    here = here if here in nodes else ""
    # GPUs that the server has claimed, or that Slurm did not name, are known by its environment alone.
    own = environ.get("SLURM_GPUS_ON_NODE", "")
    own_count = int(own) if own.isascii() and own.isdigit() else len(_words(environ.get("CUDA_VISIBLE_DEVICES", "")))
    if not per_node or (len(nodes) == 1 and not sum(granted.values())):
        granted = dict.fromkeys(nodes, own_count)
    return Job(
        job,
        nodes,
        tuple(granted.get(node, 0) for node in nodes),
        here,
        "\n".join(per_node),
        cpus=tuple(cpus[node] for node in nodes) if all(node in cpus for node in nodes) else (),
        gpus_in_all=any(line.startswith(("TresPerJob=", "TresPerSocket=")) and "gpu" in line for line in lines),
    )


def _gpus(line: str) -> dict[str, int]:
    """Each node of a line such as ``Nodes=g[1-2] CPU_IDs=0-3 Mem=4000 GRES=gpu:k80:2(IDX:0-1)`` with its GPUs."""
    fields = dict(word.partition("=")[::2] for word in line.split())
    try:
        gres = [one for one in parse_gres(fields.get("GRES", "")) if one.name in GPU_GRES]
        count = sum(one.count if one.name == "gpu" else len(one.indices) for one in gres)
        return dict.fromkeys(expand_nodelist(fields["Nodes"]), count)
    except ValueError:
        return {}


def _cpus(line: str) -> dict[str, int]:
    """The same with its CPUs."""
    fields = dict(word.partition("=")[::2] for word in line.split())
    try:
        return dict.fromkeys(expand_nodelist(fields["Nodes"]), len(parse_cpulist(fields["CPU_IDs"])))
    except (KeyError, ValueError):
        return {}


def _words(text: str) -> list[str]:
    return [
        word for word in text.split(",") if word.strip() and word.strip() not in ("-1", "NoDevFiles", "none", "void")
    ]
