"""Four nodes with four GPUs each, and a server on them, from whose environment programs are started."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.batch.launcher import launcher_archive
from jupyterhub_gpuspawner.demo.slurm_cluster import (
    ClusterDescription,
    PrivateSlurm,
    SimulatedNode,
    SimulatedPartition,
    SlurmFailed,
    whole_gpus,
)
from jupyterhub_gpuspawner.extensions.several_nodes.carried import CARRIED, RUN
from jupyterhub_gpuspawner.wire.documents import LaunchPlan
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAMES = ("r1", "r2", "r3", "r4")
NODES = tuple(
    SimulatedNode(
        name,
        machine="k80-2socket",
        sockets=2,
        cores_per_socket=12,
        memory_mib=64000,
        gpus=(whole_gpus("k80", range(2), cores="0-11"), whole_gpus("k80", range(2, 4), cores="12-23")),
    )
    for name in NAMES
)
CLUSTER = ClusterDescription(NODES, (SimulatedPartition("gpu", NAMES, default=True),), name="ranks")
WITHIN = 120.0
"""Seconds for anything that happens soon."""


@dataclass(frozen=True)
class Server:
    """A server on all four nodes, of which only the environment matters."""

    job: str
    environ: dict[str, str]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run gpuspawner-run as in one of the server's terminals."""
        return subprocess.run(
            [self.environ["GPUSPAWNER_RUN"], *arguments],
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=WITHIN,
            check=False,
        )

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """The same, without waiting for its end."""
        return subprocess.Popen([self.environ["GPUSPAWNER_RUN"], *arguments], env=self.environ)


@contextmanager
def serving(slurm: PrivateSlurm, folder: Path, *options: str) -> Iterator[Server]:
    """A job that the launcher starts as it starts a server; ``options``: of sbatch, by default all that there is."""
    home = folder / f"gpuspawner.{time.monotonic_ns() % 10**10:010}"
    home.mkdir()
    (home / "launch.pyz").write_bytes(launcher_archive((CARRIED,)))
    plan = LaunchPlan(topology_file=slurm.topology_pattern, before=(RUN,))
    (home / "plan.json").write_text(plan.dumps())
    dump, script = home / "environment.json", home / "job.sh"
    show = "import json, os, sys, time; json.dump(dict(os.environ), open(sys.argv[1], 'w')); time.sleep(600)"
    launch = f"{sys.executable} -I {home}/launch.pyz --plan {home}/plan.json --"
    script.write_text(f'#!/bin/sh\nexport JUPYTERHUB_API_TOKEN=secret\n{launch} {sys.executable} -c "{show}" {dump}\n')
    everything = ("--nodes=4", "--ntasks-per-node=1", "--cpus-per-task=24", "--gres=gpu:k80:4")
    job = slurm.run("sbatch", "--parsable", f"--output={home}/log", *(options or everything), str(script))
    try:
        wait_until(
            dump.exists,
            lambda: (home / "log").read_text() if (home / "log").exists() else "the job has not started",
            seconds=WITHIN,
        )
        time.sleep(0.2)
        environ = json.loads(dump.read_text())
        yield Server(job, {**environ, **slurm.environment, "PATH": f"{environ['PATH']}:{slurm.bin_dir}"})
    finally:
        with suppress(SlurmFailed):
            slurm.run("scancel", "--full", "--signal=KILL", job)
        wait_until(
            lambda: slurm.run("squeue", "-h", "--jobs", job, "--states=running,completing") == "",
            "the job goes on",
            seconds=WITHIN,
        )
