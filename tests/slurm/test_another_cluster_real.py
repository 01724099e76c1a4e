"""The client with a real slurmdbd: what is asked of another cluster by its name, and never of this machine's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.check.questions import licenses
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from jupyterhub_gpuspawner.errors import ConfigError, SlurmUnavailable
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.commands import Installation
from tests.fixtures.accounting import two_clusters
from tests.fixtures.login_node import write_wrappers
from tests.fixtures.slurm import advance, next_number

pytestmark = [pytest.mark.slurm, pytest.mark.nightly]

SCRIPT = "#!/bin/sh\n#SBATCH --chdir=/ --output=/dev/null --mem=100 --partition=batch --hold --comment=hub\n:\n"


@pytest.fixture(scope="module")
def running(needs_slurm: None, site_folder: Path) -> Iterator[tuple[PrivateSlurm, PrivateSlurm]]:
    """``juniper``, which is this machine's, and ``cedar``."""
    with two_clusters(site_folder / "two") as both:
        yield both


@pytest.fixture
def clusters(running: tuple[PrivateSlurm, PrivateSlurm]) -> Iterator[tuple[PrivateSlurm, PrivateSlurm]]:
    """The same without unfinished jobs; those of a test do not stay."""
    yield running
    for slurm in running:
        slurm.run("scancel", "--state=PENDING")


def client_of(juniper: PrivateSlurm, *, wrapper_dir: str = "") -> SlurmClient:
    """A client of cedar on juniper's login node."""
    conf = str(juniper.conf)
    return SlurmClient(Installation(bin_dir=juniper.bin_dir, slurm_conf=conf, cluster="cedar", wrapper_dir=wrapper_dir))


async def test_each_command_is_about_the_other_clusters_job_of_the_same_number(
    clusters: tuple[PrivateSlurm, PrivateSlurm],
) -> None:
    """Submit, watch, extend and cancel; the job of this cluster stays as it was."""
    juniper, cedar = clusters
    client = client_of(juniper)
    number = max(next_number(slurm) for slurm in clusters)
    for slurm in clusters:
        advance(slurm, number)
    own = juniper.run("sbatch", "--parsable", "--hold", "-o", "/dev/null", "--comment=own", "--wrap", "true")
    job, second = await client.submit(SCRIPT), await client.submit(SCRIPT)
    statuses = await client.jobs([job, second])
    next_statuses = await client.jobs([job, second])  # by their states alone, where squeue can
    details = await client.job(job)
    snapshot = await client.snapshot()
    config = await client.config()

    assert (own, job) == (str(number), str(number))
    assert {job_id: status.tag for job_id, status in statuses.items()} == {job: "hub", second: "hub"}
    assert next_statuses == statuses
    assert details is not None
    assert details.state == "PENDING"
    assert (config.cluster_name, set(snapshot.job_by_id)) == ("cedar", {job, second})
    assert await client.address("g1") == "127.0.0.1"
    assert await licenses(client) == {}

    assert (await client.installation.run("scontrol", "update", f"JobId={job}", "TimeLimit=+5")).code == 0
    await client.cancel(job)

    assert cedar.run("squeue", "-h", "-t", "all", "-o", "%T %l", "-j", job) == "CANCELLED 1:05:00"
    assert juniper.run("squeue", "-h", "-t", "all", "-o", "%T %l", "-j", own) == "PENDING 1:00:00"


@pytest.mark.users
async def test_scripts_with_the_clusters_name_in_their_environment(
    clusters: tuple[PrivateSlurm, PrivateSlurm], two_users: tuple[str, str], public_folder: Path
) -> None:
    """They take no argument, so the name is at their lines marked SITE; without it no server counts as started."""
    juniper, cedar = clusters
    folder = public_folder / "scripts"
    folder.mkdir()
    wrappers, _ = write_wrappers(folder, juniper, *two_users)
    client, prefix = client_of(juniper, wrapper_dir=str(wrappers)), ("runuser", "-u", two_users[1], "--")
    with pytest.raises(ConfigError, match=r"submitted to the cluster of slurm\.conf instead of cedar"):
        await client.submit(SCRIPT, prefix=prefix)
    for script in ("submit", "cancel"):
        text = (wrappers / script).read_text()
        (wrappers / script).write_text(text.replace('"SLURM_CONF"', '"SLURM_CLUSTERS": "cedar", "SLURM_CONF"'))
    before = next_number(juniper)
    job = await client.submit(SCRIPT, prefix=prefix, environment={"A": "1"})
    user = (await client.jobs([job]))[job].user
    await client.cancel(job, prefix=prefix)

    assert user == two_users[1]
    assert cedar.run("squeue", "-h", "-t", "all", "-o", "%T", "-j", job) == "CANCELLED"
    assert next_number(juniper) == before


async def test_a_cluster_that_was_shut_down_is_silent(clusters: tuple[PrivateSlurm, PrivateSlurm]) -> None:
    """slurmdbd no longer knows its address, which is neither a refusal nor a job that is gone."""
    juniper, cedar = clusters
    client = client_of(juniper)
    job = await client.submit(SCRIPT)
    cedar.stop_controller()
    try:
        for question in (client.submit(SCRIPT), client.cancel(job), client.jobs([job])):
            with pytest.raises(SlurmUnavailable, match=r"slurmdbd does not know where the cluster's slurmctld is"):
                await question
    finally:
        cedar.start_controller()

    assert (await client.jobs([job]))[job].state == "PENDING"
