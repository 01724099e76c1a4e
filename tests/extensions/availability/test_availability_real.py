"""Predicted availability compared with what a real Slurm says and does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from jupyterhub_gpuspawner.batch.script import options
from jupyterhub_gpuspawner.demo.slurm_cluster import (
    ClusterDescription,
    PrivateSlurm,
    SimulatedNode,
    SimulatedPartition,
    SlurmFailed,
)
from jupyterhub_gpuspawner.errors import SubmitRejected
from jupyterhub_gpuspawner.extensions.availability.dry_run import will_run
from jupyterhub_gpuspawner.extensions.availability.model.availability import availability
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.commands import Installation
from jupyterhub_gpuspawner.slurm.estimate import Chance
from jupyterhub_gpuspawner.slurm.job import Phase
from jupyterhub_gpuspawner.words import duration
from tests.slurm.test_client_real import Jobs
from tests.standins.resources import resolved

pytestmark = pytest.mark.slurm

HELD = (
    ("--partition=gpu", "--nodelist=g1", "--gres=gpu:k80:3", "-c", "4", "--time=20"),
    ("--partition=gpu", "--nodelist=d1", "--gres=gpu:p100:4", "-c", "30", "--time=30"),
    ("--partition=gpu", "--nodelist=d1", "--gres=gpu:2", "-c", "2", "--time=50"),
    ("--partition=gpu", "--nodelist=m1", "--gres=gpu:1g.10gb:4", "-c", "2", "--time=15"),
    ("--partition=batch", "--nodelist=c1", "--exclusive", "--time=40"),
)
REQUESTS: list[dict[str, Any]] = [
    {"partition": "gpu", "gpus": 1, "gpu_type": "k80"},
    {"partition": "gpu", "gpus": 2, "gpu_type": "k80"},
    {"partition": "gpu", "gpus": 2, "gpu_type": "p100"},
    {"partition": "gpu", "gpus": 3, "gpu_type": "p100"},
    {"partition": "gpu", "gpus": 8, "gpu_type": "p100"},
    {"partition": "gpu", "gpus": 1, "gpu_type": "p100", "cpus": 20},
    {"partition": "gpu", "gpus": 1, "gpu_type": "1g.10gb"},
    {"partition": "gpu", "gpus": 2, "gpu_type": "a100"},
    {"partition": "gpu", "gpus": 1, "constraint": "nvlink"},
    {"partition": "gpu", "gpus": 4, "constraint": "k80|mig"},
    {"partition": "batch", "cpus": 40},
    {"partition": "batch", "cpus": 4, "nodes": 2},
    {"partition": "batch", "exclusive": True},
    {"partition": "batch", "memory": 0, "nodes": 2},
    {"partition": "gpu", "gpus": 5, "gpu_type": "k80"},
    {"partition": "gpu", "gpus": 1, "gpu_type": "h100"},
    {"partition": "batch", "gpus": 1},
    {"partition": "batch", "cpus": 41},
    {"partition": "batch", "memory": 400_000},
    {"partition": "gpu", "constraint": "cpu"},
    {"partition": "batch", "nodes": 3},
    {"partition": "nowhere"},
    {"partition": "gpu", "reservation": "nosuch"},
]


@pytest.fixture
async def busy(slurm_cluster: PrivateSlurm) -> AsyncIterator[SlurmClient]:
    """A client of the demo's cluster with five jobs running."""
    client = SlurmClient(Installation(bin_dir=slurm_cluster.bin_dir, environment=slurm_cluster.environment))
    submit = ("sbatch", "--parsable", "--mem=100", "--output=/dev/null", "--wrap=sleep 3000")
    await emptied(slurm_cluster)
    jobs = [slurm_cluster.run(*submit, *held) for held in HELD]
    try:
        while {status.state for status in (await client.jobs(jobs)).values()} != {"RUNNING"}:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
        yield client
    finally:
        await emptied(slurm_cluster)


async def emptied(slurm: PrivateSlurm) -> None:
    """Cancel all jobs and wait until the cluster is empty."""
    if jobs := slurm.run("squeue", "-h", "-o", "%A").split():
        slurm.run("scancel", *jobs)
    while slurm.run("squeue", "-h"):  # noqa: ASYNC110
        await asyncio.sleep(0.2)


async def test_page_and_slurm_tell_the_same(busy: SlurmClient) -> None:
    """For every kind of request the form says now, later or never as sbatch --test-only does."""
    snapshot = await busy.snapshot()
    now = time.time()
    predictions: dict[str, str] = {}
    answers: dict[str, str] = {}
    for request in REQUESTS:
        resources = resolved(time=600, **{"memory": 100, **request})
        predictions[str(request)] = availability(resources, snapshot, now=now).chance.value
        script = "\n".join(
            ["#!/bin/sh", *(f"#SBATCH {option}" for option in options(resources, "best-effort")), "true", ""]
        )
        try:
            answers[str(request)] = "now" if (await will_run(busy, script)).starts_at - now < 60 else "later"
        except SubmitRejected:
            answers[str(request)] = "never"
    assert predictions == answers
    assert set(answers.values()) == {"now", "later", "never"}


async def test_several_partitions_count_as_their_best_one(busy: SlurmClient, slurm_cluster: PrivateSlurm) -> None:
    """If the predicted start is now, the job starts; 22.05's --test-only considers only the first partition."""
    resources = resolved("gpu,batch", cpus=36, memory=100, time=600)
    prediction = availability(resources, await busy.snapshot(), now=time.time())
    lines = [f"#SBATCH {option}" for option in (*options(resources, "best-effort"), "--output=/dev/null")]
    script = "\n".join(["#!/bin/sh", *lines, "sleep 300", ""])
    job_id = await busy.submit(script)
    try:
        status = (await busy.jobs([job_id]))[job_id]
        ends_at = time.monotonic() + 60
        while status.state != "RUNNING" and time.monotonic() < ends_at:
            await asyncio.sleep(0.2)
            status = (await busy.jobs([job_id]))[job_id]
    finally:
        slurm_cluster.run("scancel", job_id)
    assert (prediction.chance, prediction.partition) == (Chance.NOW, "batch")
    assert (status.state, status.partition) == ("RUNNING", "batch")


@pytest.mark.nightly
async def test_a_job_that_outlasts_its_reservation_starts_and_ends_with_it(
    slurm_cluster: PrivateSlurm, public_folder: Path
) -> None:
    """Slurm looks every thirty seconds."""
    jobs = Jobs(
        SlurmClient(Installation(bin_dir=slurm_cluster.bin_dir, environment=slurm_cluster.environment)), public_folder
    )
    await emptied(slurm_cluster)
    reservation = ("starttime=now", "duration=1", "nodes=c1", "users=root")
    slurm_cluster.run("scontrol", "create", "reservation", "reservationname=short", *reservation)
    now = time.time()
    snapshot = await jobs.client.snapshot()
    said = availability(resolved("batch", reservation="short", time=3600), snapshot, now=now)
    job = await jobs.submit("--partition=batch", "--reservation=short", "--time=60")
    started = await jobs.until_phase(job, Phase.RUNNING)
    ended = await jobs.until(job, lambda status: status.phase is Phase.ENDED, seconds=120)
    (own,) = snapshot.reservations  # Slurm deletes it at its end
    assert (said.chance, started.nodes, ended.state) == (Chance.NOW, "c1", "TIMEOUT")
    assert own.end is not None
    assert said.sentence.endswith(f"; ends after {duration(own.end - now)}, with reservation short")


NODES = ClusterDescription(
    nodes=tuple(
        SimulatedNode(name, machine="cpu", sockets=2, cores_per_socket=20, memory_mib=190000) for name in ("c1", "c2")
    ),
    partitions=(SimulatedPartition("batch", ("c1", "c2"), default=True),),
    name="memory",
)
DEFAULTS = ("", "DefMemPerCPU=1000", "DefMemPerNode=60000", "DefMemPerCPU=0")
OWN = {
    "bycpu": "DefMemPerCPU=9000",
    "bynode": "DefMemPerNode=100000",
    "most": "MaxMemPerCPU=2000",
    "both": "DefMemPerCPU=1500 MaxMemPerCPU=2000",
}
"""Partitions with their own memory default or limit."""
SIZES: list[dict[str, Any]] = [
    {},
    {"cpus": 3},
    {"cpus": 10},
    {"cpus": 20, "nodes": 2},
    {"memory": 20000},
    {"memory": 0},
    {"memory": 60000, "cpus": 2},
]


class WithMemory(PrivateSlurm):
    """Two nodes; the partitions of :data:`OWN` besides ``batch``, and ``default`` for the whole cluster."""

    def __init__(self, folder: Path, default: str) -> None:
        super().__init__(NODES, folder)
        self._default = default

    def _write_files(self) -> None:
        super()._write_files()
        conf = self.conf.read_text().replace("DefMemPerCPU=1000\n", f"{self._default}\n")
        own = "".join(
            f"PartitionName={name} Nodes=c1,c2 DefaultTime=60 State=UP {words}\n" for name, words in OWN.items()
        )
        self.conf.write_text(conf + own)


@pytest.mark.parametrize("default", ["", *(pytest.param(words, marks=pytest.mark.nightly) for words in DEFAULTS[1:])])
async def test_memory_of_jobs_that_ask_for_none(needs_slurm: None, public_folder: Path, default: str) -> None:
    """A job without a memory request gets the partition's or cluster's default, or the whole node: Slurm agrees."""
    folder = public_folder / f"memory{DEFAULTS.index(default)}"
    with WithMemory(folder, default) as slurm:
        client = SlurmClient(Installation(bin_dir=slurm.bin_dir, environment=slurm.environment))
        jobs = [
            slurm.run(
                "sbatch", "--parsable", "-w", node, f"--mem={memory}", "-c1", "-t9", "-o/dev/null", "--wrap=sleep 900"
            )
            for node, memory in (("c1", 150000), ("c2", 110000))
        ]
        while {status.state for status in (await client.jobs(jobs)).values()} != {"RUNNING"}:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
        snapshot, now = await client.snapshot(), time.time()
        predictions: dict[str, str] = {}
        answers: dict[str, str] = {}
        for request in ({"partition": name, **size} for name in ("batch", *OWN) for size in SIZES):
            resources = resolved(**{"time": 600, **request})
            predictions[str(request)] = availability(resources, snapshot, now=now).chance.value
            lines = [f"#SBATCH {option}" for option in options(resources, "none")]
            try:
                start = (await will_run(client, "\n".join(["#!/bin/sh", *lines, "true", ""]))).starts_at
                answers[str(request)] = "now" if start - now < 60 else "later"
            except SubmitRejected:
                answers[str(request)] = "never"
            # --test-only does not see that all memory of a node needs more CPUs than it has (MaxMemPerCPU); sbatch does
            if (predictions[str(request)], answers[str(request)]) == ("never", "later"):
                with pytest.raises(SlurmFailed):
                    slurm.run("sbatch", *(word for line in lines for word in line.split()[1:]), "--wrap=true")
                answers[str(request)] = "never"
    assert {
        request: (predictions[request], answers[request])
        for request in answers
        if predictions[request] != answers[request]
    } == {}
    assert {"now", "later"} <= set(answers.values())
