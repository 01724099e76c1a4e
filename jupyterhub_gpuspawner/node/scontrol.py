"""``scontrol show job -d`` and ``scontrol show node``: the last resort for what Slurm granted on this node."""

from __future__ import annotations

from collections.abc import Mapping

from jupyterhub_gpuspawner.node import child
from jupyterhub_gpuspawner.node.grant import JobDetail
from jupyterhub_gpuspawner.units import expand_nodelist, parse_cpulist, parse_gres

SECONDS = 3.0
"""That one answer may take."""


def show_job(environ: Mapping[str, str]) -> JobDetail:
    """Ask slurmctld about this job; what it does not say in time is None."""
    return parse_job(_show("job", environ.get("SLURM_JOB_ID", "")), environ.get("SLURMD_NODENAME", ""))


def show_node_gpus(environ: Mapping[str, str]) -> bool | None:
    """Ask slurmctld whether this node's GPUs (or shares of them) are a generic resource; None without an answer."""
    return parse_node(_show("node", environ.get("SLURMD_NODENAME", "")))


def _show(what: str, name: str) -> str:
    if not name or name.startswith("-"):
        return ""
    return child.run(["scontrol", "--oneliner", "--details", "show", what, name], SECONDS).decode(errors="replace")


def parse_job(text: str, node: str) -> JobDetail:
    """Our node's part of the answer, ``Nodes=g1 CPU_IDs=0-3 Mem=4000 GRES=gpu:k80:2(IDX:0-1)``."""
    words = text.split()
    for n, word in enumerate(words[:-1]):
        if not word.startswith("Nodes=") or not words[n + 1].startswith("CPU_IDs="):
            continue
        try:
            if node and node not in expand_nodelist(word[len("Nodes=") :]):
                continue
            cpus = parse_cpulist(words[n + 1][len("CPU_IDs=") :])
        except ValueError:
            continue
        gres = next((w[len("GRES=") :] for w in words[n + 2 : n + 4] if w.startswith("GRES=")), "")
        return JobDetail(gpus=_indices(gres), cpus=cpus or None)
    return JobDetail()


def parse_node(text: str) -> bool | None:
    """Whether ``Gres=`` of the node names GPUs; None where the answer is of another form."""
    for word in text.split():
        if word.startswith("Gres="):
            try:
                return any(gres.name in ("gpu", "shard", "mps") for gres in parse_gres(word[len("Gres=") :]))
            except ValueError:
                return None
    return None


def _indices(gres: str) -> tuple[int, ...] | None:
    try:
        found = {index for one in parse_gres(gres) if one.name in ("gpu", "shard") for index in one.indices}
    except ValueError:
        return None
    return tuple(sorted(found)) or None
