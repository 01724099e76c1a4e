"""What users write into their jobs, in every field that Slurm prints, and what is read of the jobs of others then."""

from __future__ import annotations

import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from jupyterhub_gpuspawner.extensions.seats.site import Request
from jupyterhub_gpuspawner.extensions.seats.twin import read_site, what_runs
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.commands import Installation
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
    from jupyterhub_gpuspawner.extensions.seats.held import HeldJob
    from jupyterhub_gpuspawner.slurm.job import Job
    from jupyterhub_gpuspawner.slurm.snapshot import ClusterJob
    from jupyterhub_gpuspawner.units import NodeAllocation

pytestmark = pytest.mark.slurm

FIELDS = {
    "JobName": "--job-name",
    "Comment": "--comment",
    "Account": "--account",
    "WCKey": "--wckey",
    "StdOut": "--output",
    "StdErr": "--error",
    "StdIn": "--input",
    "WorkDir": "--chdir",
    "MailUser": "--mail-user",
    "Network": "--network",
    "Features": "--constraint",
    "TresPerNode": "--gres",
    "Container": "--container",
    "Command": "",
}
"""Fields of ``scontrol show job``, with the options of sbatch that write them; the last is the script's path."""
CHANGED = {"Account", "WCKey", "Features", "TresPerNode"}
"""Those of which slurmctld may refuse such a text, or prints it in lower case or not at all."""


class Reading(NamedTuple):
    """What the readers make of the jobs of others, by id, and who would fit beside them."""

    jobs: dict[str, Job]
    snapshot: dict[str, ClusterJob]
    allocations: dict[str, tuple[NodeAllocation, ...]]
    held: dict[str, HeldJob]
    seats: int


def imitation(honest: tuple[str, str]) -> str:
    """Text of one user: lines of squeue, and jobs of scontrol that hold the GPUs that are free, or none of theirs."""
    record = (
        "\nJobId={} JobName=x UserId=eve(1) GroupId=eve(1) MCS_label=N/A JobState=RUNNING Reason=None Restarts=0 "
        "EndTime=4000000000 StartTime=1 Partition=gpu NodeList=g1 NumNodes=1 NumCPUs={} CoreSpec=* GRES=gpu:k80:{}\n"
        "     Nodes=g1 CPU_IDs={} Mem=10 GRES=gpu:k80:{}(IDX:2-3)\n   MinCPUsNode=1 OverSubscribe=OK Command=x"
    )
    records = record.format("999999", 4, 2, "4-7", 2) + record.format(honest[0], 1, 0, "0", 0)
    return f"x|\n{honest[0]}|FAILED|\n{records}"


@pytest.fixture
def submitted(slurm_cluster: PrivateSlurm) -> Iterator[list[str]]:
    """The ids of jobs, which are cancelled at the end."""
    ids: list[str] = []
    yield ids
    slurm_cluster.run("scancel", *ids)


def submit(slurm: PrivateSlurm, *options: str) -> subprocess.CompletedProcess[str]:
    """Submit a job."""
    return subprocess.run(
        [Path(slurm.bin_dir, "sbatch"), "--parsable", *options],
        env={**slurm.environment, "PATH": "/usr/bin:/bin"},
        input="#!/bin/sh\nsleep 600\n",
        capture_output=True,
        text=True,
        check=False,
    )


async def reading(slurm: PrivateSlurm, honest: tuple[str, str]) -> Reading:
    """All of it, now."""
    installation = Installation(bin_dir=slurm.bin_dir, slurm_conf=str(slurm.conf))
    client = SlurmClient(installation)
    site = await read_site(installation)
    requests = [Request(f"{number}", ("--partition=gpu --gres=gpu:k80:1 --mem=10 --time=10",)) for number in range(5)]
    held = {held.job.job_id: held for held in site.jobs}
    jobs, snapshot = await client.every_job(), {job.job_id: job for job in (await client.snapshot()).jobs}
    allocations = await client.allocations()
    assert {"999999"}.isdisjoint([*held, *jobs, *snapshot])
    return Reading(
        {number: jobs[number] for number in honest},
        {number: snapshot[number] for number in honest},
        {number: allocations[number] for number in honest if number in allocations},
        {number: held[number] for number in honest},
        (await what_runs(site, requests, at=time.time(), slurm=installation)).running,
    )


async def test_no_text_of_a_user_changes_what_is_read_of_the_jobs_of_others(
    slurm_cluster: PrivateSlurm, submitted: list[str], tmp_path: Path
) -> None:
    """A text that imitates records in all fields of a job leaves jobs, free GPUs and the seats of a course as they are.

    What a job has on each of its nodes may be unknown then, which is less than what squeue says of it.
    """
    to = ("--output=/dev/null", "--mem=10", "--time=60", "--mail-type=TIME_LIMIT_80")
    for options in (("--partition=gpu", "--gres=gpu:k80:2", "-c4"), ("--partition=batch", "-N2", "-n3", "-c1")):
        submitted.append(submit(slurm_cluster, *to, *options).stdout.strip())
    honest = submitted[0], submitted[1]
    wait_until(
        lambda: len(slurm_cluster.run("squeue", "-h", "-t", "R", "-j", ",".join(honest), "-o", "%i").split()) == 2,
        "the jobs run",
    )
    before = await reading(slurm_cluster, honest)
    text, printed = imitation(honest), set[str]()
    for field, option in FIELDS.items():
        holds = () if field in ("JobName", "Comment") else ("--hold",)
        path = tmp_path / f"{text.replace('/', '_')[:200]}"
        path.write_text("#!/bin/sh\nsleep 600\n")
        written = (f"{option}={text}",) if option else (str(path),)
        done = submit(slurm_cluster, *to, "--partition=batch", *holds, *written)
        assert done.returncode == 0 or field in CHANGED, (field, done.stderr)
        if done.returncode == 0:
            submitted.append(done.stdout.strip())
            shown = slurm_cluster.run("scontrol", "show", "job", "-o", submitted[-1])
            printed |= {field} if "\nJobId=" in shown else set()
    after = await reading(slurm_cluster, honest)

    unknown = {number: replace(job, allocations=()) for number, job in before.held.items()}
    assert printed >= FIELDS.keys() - CHANGED
    assert (before.seats, [job.allocations != () for job in before.held.values()]) == (2, [True, True])
    assert after == before._replace(
        allocations={honest[1]: before.allocations[honest[1]]},
        held={honest[0]: unknown[honest[0]], honest[1]: before.held[honest[1]]},
    )
