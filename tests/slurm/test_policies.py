"""The sbatch options of the placement policies, tried on a real Slurm."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.batch.script import options
from jupyterhub_gpuspawner.demo.slurm_cluster import DEMO_CLUSTER, PrivateSlurm
from tests.standins.resources import resolved
from tests.waiting import wait_until

pytestmark = pytest.mark.slurm


@pytest.fixture
def half_full(needs_slurm: None, public_folder: Path) -> Iterator[PrivateSlurm]:
    """On g1 the first socket's cores and the second's GPUs are taken, so that free ones are on different sockets."""
    with PrivateSlurm(DEMO_CLUSTER, public_folder / "policies") as slurm:
        for job in (["-c12"], ["-c2", "--gres=gpu:k80:2"]):
            assert state(slurm, submit(slurm, *job)) == "RUNNING"
        yield slurm


def submit(slurm: PrivateSlurm, *words: str) -> str:
    """Submit a job on g1 that sleeps; return its id."""
    job_options = [word for word in words if not word.startswith("--partition")]
    return slurm.run(
        "sbatch", "--parsable", "-pgpu", "-wg1", "--mem=100", "--output=/dev/null", *job_options, "--wrap=sleep 600"
    )


def state(slurm: PrivateSlurm, job: str) -> str:
    """The job's state once Slurm has tried to schedule it."""
    for _ in range(600):
        job_state, _, reason = slurm.run("squeue", "-h", "-j", job, "-o", "%T %r").partition(" ")
        if job_state == "RUNNING" or reason == "Resources":
            return job_state
        time.sleep(0.1)
    raise AssertionError(f"job {job} is neither running nor waiting for resources")


def test_a_strict_policy_waits_where_gpu_and_cores_would_be_apart(half_full: PrivateSlurm) -> None:
    """Slurm allocates a GPU with cores of the other socket, unless the policy forbids it."""
    states = {}
    for policy in ("restricted", "best-effort", "none"):
        job = submit(half_full, *options(resolved(gpus=1, gpu_type="k80", cpus=4), policy))
        states[policy] = state(half_full, job)
        half_full.run("scancel", job)
        wait_until(lambda job=job: not half_full.run("squeue", "-h", "-j", job, "-o", "%i"))  # type: ignore[misc]

    assert states == {"restricted": "PENDING", "best-effort": "RUNNING", "none": "RUNNING"}


@pytest.mark.parametrize("policy", ["restricted", "best-effort", "none"])
def test_a_job_gets_the_cores_that_it_requests(slurm_cluster: PrivateSlurm, policy: str) -> None:
    """Under each policy, and not all that are beside its GPU."""
    job = submit(slurm_cluster, *options(resolved(gpus=1, gpu_type="k80", cpus=3), policy))
    try:
        assert state(slurm_cluster, job) == "RUNNING"
        cores = slurm_cluster.run("squeue", "-h", "-j", job, "-o", "%C")
    finally:
        slurm_cluster.run("scancel", job)

    assert cores == "3"
