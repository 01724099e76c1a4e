"""A site whose Slurm is in a federation (fed_display): commands show both clusters, and jobs start on either."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.fixtures.accounting import two_clusters
from tests.fixtures.hubs import start_hub
from tests.hub.servers import job_id, start
from tests.hub.visitor import Visitor
from tests.nightly.sites.main_job import CONFIG, MainJob, Site, profiles
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

OWN_CLUSTER = 'c.GPUSlurmSpawner.req_cluster = "juniper"'
"""What an admin sets on such a site, as ``gpuspawner check`` says."""


@pytest.fixture(scope="module")
def clusters(needs_slurm: None, public_folder: Path) -> Iterator[tuple[PrivateSlurm, PrivateSlurm]]:
    """``juniper``, which is the hub's, and ``cedar``, with the same nodes and partitions."""
    with two_clusters(public_folder / "federation", "FederationParameters=fed_display") as (juniper, cedar):
        juniper.run("sacctmgr", "-i", "add", "federation", "trees", "clusters=juniper,cedar")
        wait_until(lambda: "Synced:Yes" in juniper.run("scontrol", "show", "federation"))
        yield juniper, cedar


@pytest.fixture(scope="module")
def site(clusters: tuple[PrivateSlurm, PrivateSlurm], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A hub that keeps its servers on its own cluster."""
    with ExitStack() as stack:
        lines = f"{CONFIG}\n{OWN_CLUSTER}"
        hub = start_hub(stack, clusters[0], tmp_path_factory.mktemp("hub"), lines=lines, profiles=profiles())
        yield Site(hub, clusters[0])


class TestMainJob(MainJob):
    """The main job, while every job's id has the cluster's number in its upper bits."""


@pytest.fixture
def full(clusters: tuple[PrivateSlurm, PrivateSlurm]) -> Iterator[None]:
    """All GPUs of the hub's own cluster are in use."""
    juniper, _ = clusters
    answer = juniper.run(
        *("sbatch", "--parsable", "--clusters=juniper", "-p", "gpu", "--exclusive", "--mem=100", "--chdir=/"),
        *("--output=/dev/null", "--wrap=sleep 900"),
    )
    job = answer.partition(";")[0]
    wait_until(lambda: states(juniper)[job] == "RUNNING")
    yield
    juniper.run("scancel", job)


def states(slurm: PrivateSlurm) -> dict[str, str]:
    """The states of a cluster's own jobs, ended ones too, by their ids."""
    lines = slurm.run("squeue", "--local", "-h", "-t", "all", "-o", "%i %T").splitlines()
    return dict(line.split() for line in lines)


ELSEWHERE = "Another cluster of the federation has started the job, where this hub does not look. It is cancelled."


@pytest.mark.usefixtures("full")
def test_a_server_waits_for_its_own_cluster_while_the_other_is_free(
    site: Site, clusters: tuple[PrivateSlurm, PrivateSlurm]
) -> None:
    """The form says that all is in use here, and the job is submitted to this cluster alone."""
    juniper, cedar = clusters
    ann = Visitor(site.hub, "ann")
    form = ann.look("/hub/spawn").text
    start(site.hub, "ann", "main")
    job = job_id(site.hub, "ann")
    wait_until(lambda: "All matching GPUs are in use." in ann.pending().text, site.hub.log_end)
    there = states(cedar)
    site.hub.end("ann")

    assert "Full." in form
    assert job not in there
    assert states(juniper)[job] == "CANCELLED"


@pytest.mark.usefixtures("full")
def test_without_the_setting_a_job_that_starts_elsewhere_is_cancelled_and_named(
    clusters: tuple[PrivateSlurm, PrivateSlurm], tmp_path: Path
) -> None:
    """The job's state is REVOKED on the hub's cluster, whose slurmctld sends scancel on; `check` says it before."""
    juniper, cedar = clusters
    with ExitStack() as stack:
        hub = start_hub(stack, juniper, tmp_path / "hub", lines=CONFIG, profiles=profiles())
        findings = Site(hub, juniper).check()
        start(hub, "bob", "main")
        job = job_id(hub, "bob")
        wait_until(lambda: not hub.server("bob"), hub.log_end, seconds=60)
        wait_until(lambda: states(cedar).get(job) == "CANCELLED", lambda: f"{states(cedar)} {hub.log_end()}")
        page = Visitor(hub, "bob").pending().text

    assert [finding["fix"] for finding in findings if finding["code"] == "federation"] == [
        'Set c.GPUSlurmSpawner.req_cluster = "juniper"; with wrapper_dir, SLURM_CLUSTERS in each script as well.'
    ]
    assert ELSEWHERE in page
