"""A busy site whose partitions preempt each other (preempt/partition_prio): owners' jobs go before scavengers'."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import requests

from jupyterhub_gpuspawner.demo.slurm_cluster import (
    DEMO_CLUSTER,
    ClusterDescription,
    PrivateSlurm,
    SimulatedPartition,
)
from tests.fixtures.hubs import COMMAND, offer, start_hub
from tests.fixtures.slurm import ChangedSlurm
from tests.hub.servers import state, why_it_ended
from tests.hub.visitor import Visitor
from tests.nightly.sites.main_job import CONFIG, MainJob, Site, profiles
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

GRACE = 15
"""Seconds that a scavenger's job has to end."""
PARTITIONS = {
    "gpu": ("g1", "PriorityTier=10 PreemptMode=OFF"),
    "cancel": ("g1", f"PriorityTier=1 PreemptMode=CANCEL GraceTime={GRACE}"),
    "requeue": ("g1", "PriorityTier=1 PreemptMode=REQUEUE"),
    "owners": ("c1", "PriorityTier=10 PreemptMode=OFF OverSubscribe=FORCE:1"),
    "suspend": ("c1", "PriorityTier=1 PreemptMode=SUSPEND OverSubscribe=FORCE:1"),
}
CLUSTER = ClusterDescription(
    nodes=tuple(node for node in DEMO_CLUSTER.nodes if node.name in ("g1", "c1")),
    partitions=tuple(SimulatedPartition(name, (node,)) for name, (node, _) in PARTITIONS.items()),
    name="scavengers",
)
REQUEST = {
    "cancel": "gpus: 1, cpus: 1",
    "requeue": "gpus: 1, cpus: 1",
    "suspend": "cpus: 1",
}
SCAVENGERS = "".join(
    f"""
- {{display_name: In {name}, slug: {name}, command: {COMMAND},
   slurm: {{partition: {name}, {request}, memory: 300M, time: "0:20:00"}}}}
"""
    for name, request in REQUEST.items()
)


def preempts(conf: str) -> str:
    """Each partition has its tier and its mode; to suspend jobs Slurm needs the gang scheduler."""
    for name, (_, words) in PARTITIONS.items():
        conf = re.sub(rf"^(PartitionName={name} .*)$", rf"\1 {words}", conf, flags=re.MULTILINE)
    return f"{conf}PreemptType=preempt/partition_prio\nPreemptMode=SUSPEND,GANG\n"


def scavenge(slurm: PrivateSlurm) -> None:
    """Have requeueable jobs of others occupy all four GPUs, until they are preempted."""
    jobs = [
        slurm.run(
            *("sbatch", "--parsable", "--requeue", "-p", "requeue", "--gpus=1", "--mem=100", "--output=/dev/null"),
            *("--chdir=/", "--wrap=sleep 900"),
        )
        for _ in range(4)
    ]
    wait_until(lambda: {state(slurm, job) for job in jobs} == {"RUNNING"}, lambda: slurm.run("squeue"), seconds=60)


@pytest.fixture(scope="module")
def site(needs_slurm: None, public_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The main job is one of the owners' partition, all of whose GPUs scavengers have."""
    with ExitStack() as stack:
        slurm = stack.enter_context(ChangedSlurm(CLUSTER, public_folder / "scavengers", preempts))
        scavenge(slurm)
        hub = start_hub(stack, slurm, tmp_path_factory.mktemp("hub"), lines=CONFIG, profiles=profiles())
        yield Site(hub, slurm)


def of_profile(site: Site, slug: str) -> tuple[list[str], str]:
    """What the form says that one gets with a profile, and when a job of it would start."""
    card = Visitor(site.hub, "eve").look("/hub/spawn").soup.select_one(f".gs-choice:has(input[value={slug}])")
    assert card is not None
    availability = card.select(".gs-when > .gs-state")[0].get_text(" ")
    return [item.get_text() for item in card.select(".gs-got li")], " ".join(availability.split())


def test_the_form_says_before_the_start_that_scavengers_jobs_give_way(site: Site) -> None:
    """Slurm's own answer, too: a job that preempts others starts now."""
    _, availability = of_profile(site, "main")
    trial = site.hub.api("POST", "/gpuspawner/trial/eve", {"user_options": {"profile": "main"}}).json()

    assert availability.startswith("Full.")
    assert trial["chance"] == "now", trial


class TestMainJob(MainJob):
    """The main job, whose start preempts those of scavengers."""


@contextmanager
def owners_job(slurm: PrivateSlurm, partition: str) -> Iterator[str]:
    """Run a job of the owners' partition on a whole node."""
    job = slurm.run(
        *("sbatch", "--parsable", "-p", partition, "--exclusive", "--mem=100", "--chdir=/", "--output=/dev/null"),
        "--wrap=sleep 900",
    )
    try:
        yield job
    finally:
        slurm.run("scancel", job)
        wait_until(lambda: state(slurm, job) == "CANCELLED")


@pytest.fixture(scope="module")
def scavenging(site: Site) -> None:
    """Servers are offered in the scavengers' partitions, and no other scavenger has GPUs or would come back."""
    offer(site.hub, "scavenging", SCAVENGERS)
    for job in site.slurm.run("squeue", "-h", "-p", "requeue", "-o", "%i").split():
        site.slurm.run("scancel", job)
    wait_until(lambda: not site.slurm.run("squeue", "-h", "-p", "requeue"))


PREEMPTED = "The job was preempted: a job with higher priority needed its resources."


@pytest.mark.usefixtures("scavenging")
@pytest.mark.parametrize("mode", ["cancel", "requeue"])
def test_a_scavenging_server_says_before_and_afterwards_that_it_is_preempted(site: Site, mode: str) -> None:
    """Slurm would requeue the job if its script did not forbid that. With GraceTime the user is warned meanwhile."""
    gets, _ = of_profile(site, mode)
    assert gets[-1] == "may be ended at any time for a job with higher priority"

    user = Visitor(site.hub, mode)
    job = site.hub.spawn(mode, {"profile": mode})["job_id"]
    with owners_job(site.slurm, "gpu") as other:
        if mode == "cancel":
            wait_until(lambda: "Save your work now." in user.look("/hub/home").text, site.hub.log_end)
        wait_until(lambda: not site.hub.server(mode), site.hub.log_end, seconds=60)
        assert state(site.slurm, other, "PENDING") == "RUNNING"

    assert state(site.slurm, job) == "PREEMPTED"
    assert why_it_ended(site.hub, mode) == PREEMPTED
    assert f"{PREEMPTED} It ended" in user.look("/hub/home").text


@pytest.mark.usefixtures("scavenging")
def test_a_suspended_server_says_why_it_does_not_answer_and_goes_on(site: Site) -> None:
    """Its job keeps its memory, and others have its CPUs until they end. JupyterHub would stop it after a restart."""
    gets, _ = of_profile(site, "suspend")
    assert gets[-1] == "may be paused at any time for a job with higher priority"
    sue = Visitor(site.hub, "sue")
    job = site.hub.spawn("sue", {"profile": "suspend"})["job_id"]
    with owners_job(site.slurm, "owners"):
        wait_until(lambda: state(site.slurm, job) == "SUSPENDED", lambda: site.slurm.run("squeue"))
        wait_until(lambda: "Slurm has suspended the server" in sue.look("/hub/home").text, site.hub.log_end)
        site.hub.restart()
        wait_until(lambda: "sue still running" in site.hub.log.read_text(), site.hub.log_end, seconds=60)
        site.hub.wait("sue", ready=True)
        suspended = state(site.slurm, job)
    assert suspended == "SUSPENDED"
    wait_until(lambda: state(site.slurm, job) == "RUNNING", lambda: site.slurm.run("squeue"), seconds=60)
    answer = requests.get(f"{site.hub.url}/user/sue/api", timeout=30, allow_redirects=False)
    assert answer.status_code == 200
    wait_until(lambda: "suspended" not in sue.look("/hub/home").text)
    site.hub.end("sue")
