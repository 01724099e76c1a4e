"""A site whose Prolog takes 90 s and whose Epilog takes 45 s (PrologFlags=Alloc)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.demo.slurm_cluster import DEMO_CLUSTER, ClusterDescription, SimulatedPartition
from tests.fixtures.hubs import start_hub
from tests.fixtures.slurm import ChangedSlurm
from tests.hub.servers import job_id, start
from tests.hub.visitor import Visitor
from tests.nightly.sites.main_job import CONFIG, MainJob, Site, profiles
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

PROLOG = "#!/bin/sh\nsleep 90\n"
EPILOG = "#!/bin/sh\nsleep 45\n"
CLUSTER = ClusterDescription(
    nodes=tuple(node for node in DEMO_CLUSTER.nodes if node.name == "g1"),
    partitions=(SimulatedPartition("gpu", ("g1",), default=True),),
    name="prolog",
)
LINES = f"""
{CONFIG}
c.GPUSlurmSpawner.start_timeout = 60  # less than the prolog takes
"""


@pytest.fixture(scope="module")
def site(needs_slurm: None, public_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Slurm with both scripts."""
    files = {"prolog": PROLOG, "epilog": EPILOG}
    lines = "Prolog={folder}/prolog\nEpilog={folder}/epilog\nPrologFlags=Alloc\nBatchStartTimeout=200\n"
    with ExitStack() as stack:
        slurm = stack.enter_context(ChangedSlurm(CLUSTER, public_folder / "p", lambda conf: conf + lines, files))
        # the time of a Prolog is part of the job's time limit
        offered = profiles().replace("0:01:00", "0:04:00")
        hub = start_hub(stack, slurm, tmp_path_factory.mktemp("hub"), lines=LINES, profiles=offered)
        yield Site(hub, slurm)


class TestMainJob(MainJob):
    """The main job."""


def test_the_page_says_meanwhile_that_the_node_is_prepared_and_a_stop_does_not_wait_for_that(site: Site) -> None:
    """Slurm says that the job runs. Its Prolog and its Epilog go on after the server is gone."""
    user = Visitor(site.hub, "eve")
    start(site.hub, "eve", "main")
    job = job_id(site.hub, "eve")
    wait_until(lambda: "Slurm is preparing node g1 for the job." in user.pending().text, site.hub.log_end, seconds=170)
    by_slurm = site.slurm.run("squeue", "-h", "-j", job, "-o", "%T %r")
    site.hub.end("eve")

    assert by_slurm == "RUNNING Prolog"
    assert site.slurm.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%T") == "COMPLETING"


def test_check_with_a_job_waits_for_the_prolog(site: Site) -> None:
    """The script, and with it the log, come after it."""
    wait_until(lambda: site.slurm.run("sinfo", "-h", "-o", "%T") == "idle", seconds=170)
    findings = site.check("--submit", "--user", "eve", "--profile", "main")

    of_job = [finding for finding in findings if finding["code"] in ("job-ran", "prolog-long", "job-log-unread")]
    assert [(finding["code"], finding["severity"]) for finding in of_job] == [("job-ran", "ok")], findings
