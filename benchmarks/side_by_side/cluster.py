"""The benchmark's Slurm: a real slurmctld with nodes on this host, and its RPC counters."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from collections import Counter

from jupyterhub_gpuspawner.demo.slurm_cluster import (
    ClusterDescription,
    PrivateSlurm,
    SimulatedNode,
    SimulatedPartition,
    whole_gpus,
)

GPUS_A_NODE = 8
HELD_AT_MOST = 1200
_RPC = re.compile(r"^\s*(\w+)\s+\(\s*\d+\) count:(\d+)", re.MULTILINE)
NICE = 10
ASKING_ITSELF = "REQUEST_STATS_INFO"
"""The RPCs of sdiag itself."""


def cluster_for(users: int) -> ClusterDescription:
    """A GPU for each user, in nodes of eight, and one large node for jobs without processes."""
    count = -(-users // GPUS_A_NODE)
    gpu_nodes = tuple(
        SimulatedNode(
            f"d{number}",
            machine="dgx1",
            sockets=2,
            cores_per_socket=20,
            memory_mib=512000,
            gpus=(whole_gpus("p100", range(4), cores="0-19"), whole_gpus("p100", range(4, 8), cores="20-39")),
        )
        for number in range(1, count + 1)
    )
    wide = SimulatedNode("w1", machine="cpu", sockets=2, cores_per_socket=HELD_AT_MOST // 2, memory_mib=512000)
    return ClusterDescription(
        nodes=(*gpu_nodes, wide),
        partitions=(
            SimulatedPartition("gpu", tuple(node.name for node in gpu_nodes), default=True),
            SimulatedPartition("books", (wide.name,)),
        ),
        name="bench",
    )


def step_aside(slurm: PrivateSlurm) -> None:
    """Lower the priority of the nodes and their jobs, which on a cluster would run on other machines."""
    for name, pid in slurm.pids.items():
        if name.startswith("slurmd-"):
            os.setpriority(os.PRIO_PROCESS, pid, NICE)


def rpcs(slurm: PrivateSlurm) -> Counter[str]:
    """RPCs of slurmctld since its start, by kind, without those of this query."""
    statistics = slurm.run("sdiag").partition("Remote Procedure Call statistics by message type")[2]
    statistics = statistics.partition("Remote Procedure Call statistics by user")[0]
    counts = Counter({kind: int(count) for kind, count in _RPC.findall(statistics)})
    del counts[ASKING_ITSELF]
    return counts


def fill(slurm: PrivateSlurm, users: int) -> None:
    """Allocate all GPUs: one job without a process on each node."""
    for number in range(1, -(-users // GPUS_A_NODE) + 1):
        slurm.run("salloc", "--no-shell", "-p", "gpu", "-w", f"d{number}", "--gres=gpu:8", "--mem=100M", "-J", "full")


async def allocate(slurm: PrivateSlurm, count: int, *, comment: str, concurrency: int = 4) -> list[str]:
    """Start ``count`` jobs without a process (salloc(1), ``--no-shell``) and return their ids."""
    turns = asyncio.Semaphore(concurrency)

    async def one() -> str:
        async with turns:
            stderr = await asyncio.to_thread(_allocate_one, slurm, comment)
        match = re.search(r"Granted job allocation (\d+)", stderr)
        assert match, stderr
        return match[1]

    return list(await asyncio.gather(*(one() for _ in range(count))))


def _allocate_one(slurm: PrivateSlurm, comment: str) -> str:
    argv = [f"{slurm.bin_dir}/salloc", "--no-shell", "-p", "books", "-c1", "--mem=10M", "-J", "held"]
    done = subprocess.run(
        [*argv, f"--comment={comment}"],
        env={**os.environ, **slurm.environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stderr


async def cancel_all(slurm: PrivateSlurm) -> None:
    """Cancel all jobs, and wait until none is left."""
    await asyncio.to_thread(slurm.run, "scancel", "--user", slurm.layout.user)
    while await asyncio.to_thread(slurm.run, "squeue", "-h", "-o", "%i"):  # noqa: ASYNC110 - Slurm tells of nothing
        await asyncio.sleep(0.2)
