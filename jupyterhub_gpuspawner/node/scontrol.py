"""``scontrol show job -d``: the last resort for what Slurm granted on this node."""

from __future__ import annotations

from typing import Mapping, Optional

from jupyterhub_gpuspawner.node import child
from jupyterhub_gpuspawner.node.grant import JobDetail
from jupyterhub_gpuspawner.units import expand_nodelist, parse_cpulist, parse_gres


def ask(environ: Mapping[str, str], seconds: float = 3.0) -> JobDetail:
    """Ask slurmctld about this job; what it does not say in ``seconds`` is None."""
    job = environ.get("SLURM_JOB_ID", environ.get("SLURM_JOBID", ""))
    if not job.isdigit():
        return JobDetail()
    answer = child.run(["scontrol", "--oneliner", "--details", "show", "job", job], seconds)
    return read(answer.output.decode(errors="replace"), environ.get("SLURMD_NODENAME", ""))


def read(text: str, node: str) -> JobDetail:
    """Our node's part of the answer, ``Nodes=g1 CPU_IDs=0-3 Mem=4000 GRES=gpu:k80:2(IDX:0-1)``."""
    words = text.split()
    for n, word in enumerate(words):
        name, _, value = word.partition("=")
        if name != "Nodes" or n + 1 >= len(words) or not words[n + 1].startswith("CPU_IDs="):
            continue
        try:
            if node and node not in expand_nodelist(value):
                continue
            cpus = parse_cpulist(words[n + 1].partition("=")[2])
        except ValueError:
            continue
        gres = next((w.partition("=")[2] for w in words[n + 1 : n + 4] if w.startswith("GRES=")), "")
        return JobDetail(gpus=_indices(gres), cpus=cpus or None)
    return JobDetail()


def _indices(gres: str) -> Optional[tuple[int, ...]]:
    try:
        found = [index for one in parse_gres(gres) if one.name in ("gpu", "shard") for index in one.indices]
    except ValueError:
        return None
    return tuple(sorted(set(found))) or None
