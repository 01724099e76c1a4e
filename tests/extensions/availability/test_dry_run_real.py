"""``sbatch --test-only`` of a real Slurm: here, of another cluster, and where the site's plugin refuses the job."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from jupyterhub_gpuspawner.errors import SlurmUnavailable, SubmitRejected
from jupyterhub_gpuspawner.extensions.availability.dry_run import will_run
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.commands import Installation
from jupyterhub_gpuspawner.slurm.job import Phase
from tests.extensions.availability.test_availability_real import emptied
from tests.fixtures.accounting import two_clusters
from tests.fixtures.login_node import write_wrappers
from tests.fixtures.slurm import next_number
from tests.slurm.test_another_cluster_real import client_of
from tests.slurm.test_client_real import Jobs
from tests.slurm.test_site_words_real import WORDS, client_with_plugin

pytestmark = pytest.mark.slurm

SCRIPT = "#!/bin/sh\n#SBATCH --chdir=/ --output=/dev/null --mem=100 --partition=batch --comment=hub\n:\n"


@pytest.fixture
async def jobs(slurm_cluster: PrivateSlurm, public_folder: Path) -> AsyncIterator[Jobs]:
    """Jobs of one test on an empty cluster."""
    await emptied(slurm_cluster)
    installation = Installation(bin_dir=slurm_cluster.bin_dir, environment=slurm_cluster.environment)
    yield Jobs(SlurmClient(installation), public_folder)
    await emptied(slurm_cluster)


async def test_a_trial_tells_the_start_and_makes_no_job(jobs: Jobs, slurm_cluster: PrivateSlurm) -> None:
    """The start is now if GPUs are free, else the end of the job that holds them; a refusal names the field."""
    listing = ("squeue", "-h", "-a", "-t", "all", "-o", "%i")
    before = set(slurm_cluster.run(*listing).split())
    script = "#!/bin/sh\n#SBATCH --partition=gpu\n#SBATCH --gres=gpu:k80:4\n#SBATCH --time=5\n"
    sent_at = time.time()
    free = await will_run(jobs.client, script)
    answered_at = time.time()
    held = await jobs.submit("--partition=gpu", "--nodelist=g1", "--gres=gpu:k80:2", "--time=10")
    running = await jobs.until_phase(held, Phase.RUNNING)
    later = await will_run(jobs.client, script)
    with pytest.raises(SubmitRejected) as refused:
        await will_run(jobs.client, script.replace("--partition=gpu", "--partition=nosuch"))
    assert sent_at - 60 < free.starts_at < answered_at + 60  # Slurm's estimate is not to the second
    assert (free.nodes, free.partition) == (("g1",), "gpu")
    assert running.ends_at is not None
    assert 0 <= later.starts_at - running.ends_at < 60
    assert (str(refused.value), refused.value.field) == (
        "Slurm refused the job: there is no partition nosuch. Check `partition` in the profile.",
        "slurm.partition",
    )
    assert set(slurm_cluster.run(*listing).split()) - before == {held}


@pytest.fixture(scope="module")
def clusters(needs_slurm: None, site_folder: Path) -> Iterator[tuple[PrivateSlurm, PrivateSlurm]]:
    """``juniper``, which is this machine's, and ``cedar``."""
    with two_clusters(site_folder / "two") as both:
        yield both


@pytest.mark.nightly
async def test_a_trial_is_of_the_other_cluster(clusters: tuple[PrivateSlurm, PrivateSlurm]) -> None:
    """By its name."""
    assert (await will_run(client_of(clusters[0]), SCRIPT)).nodes == ("c1",)


@pytest.mark.nightly
@pytest.mark.users
async def test_a_script_with_the_clusters_name_in_its_environment(
    clusters: tuple[PrivateSlurm, PrivateSlurm], two_users: tuple[str, str], public_folder: Path
) -> None:
    """It takes no argument, so the name is at its line marked SITE."""
    juniper, _ = clusters
    folder = public_folder / "trial"
    folder.mkdir()
    wrappers, _ = write_wrappers(folder, juniper, *two_users)
    text = (wrappers / "trial").read_text()
    (wrappers / "trial").write_text(text.replace('"SLURM_CONF"', '"SLURM_CLUSTERS": "cedar", "SLURM_CONF"'))
    before = next_number(juniper)
    client, prefix = client_of(juniper, wrapper_dir=str(wrappers)), ("runuser", "-u", two_users[1], "--")
    trial = await will_run(client, SCRIPT, prefix=prefix)
    assert trial.nodes == ("c1",)
    assert next_number(juniper) == before


@pytest.mark.nightly
async def test_a_cluster_that_was_shut_down_is_silent(clusters: tuple[PrivateSlurm, PrivateSlurm]) -> None:
    """slurmdbd no longer knows its address, which is no refusal."""
    juniper, cedar = clusters
    cedar.stop_controller()
    try:
        with pytest.raises(SlurmUnavailable, match=r"slurmdbd does not know where the cluster's slurmctld is"):
            await will_run(client_of(juniper), SCRIPT)
    finally:
        cedar.start_controller()


@pytest.fixture(scope="module")
def with_plugin(needs_slurm: None, public_folder: Path) -> Iterator[SlurmClient]:
    """A client of a Slurm whose plugin refuses a job with its comment."""
    with client_with_plugin(public_folder / "plugin-trial") as client:
        yield client


@pytest.mark.parametrize("words", WORDS)
async def test_a_plugins_sentence_is_told_and_is_no_outage(with_plugin: SlurmClient, words: str) -> None:
    """Also where it is one of Slurm's own about an outage."""
    script = f'#!/bin/sh\n#SBATCH --comment="{words}"\n#SBATCH --output=/dev/null\ntrue\n'
    with pytest.raises(SubmitRejected) as refused:
        await will_run(with_plugin, script)
    assert refused.value.message == f"Slurm refused the job: {words}."
