"""A busy site whose jobs preempt each other by their QOS (preempt/qos, slurmdbd), with limits of QOS and accounts."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.fixtures.accounting import SMALL, AccountedSlurm, Accounting, slurmdbd
from tests.fixtures.hubs import COMMAND, offer, start_hub
from tests.hub.servers import in_the_end, job_id, start, state, why_it_ended
from tests.hub.visitor import Visitor
from tests.nightly.sites.main_job import CONFIG, MainJob, Site, profiles
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

LINES = (
    "AccountingStorageEnforce=associations,limits,qos",
    "AccountingStorageTRES=gres/gpu",
    "PreemptType=preempt/qos",
    "PreemptMode=REQUEUE",
)
ACCOUNTING = (
    "add qos scavenger",
    "modify qos normal set preempt=scavenger",
    "add qos single set maxjobsperuser=1",
    "add qos gpu set maxtresperuser=gres/gpu=1",
    "add qos pool set grptres=cpu=1",
    "add qos small set maxtresperjob=cpu=1",
    "add qos strict set maxtresperjob=cpu=1 flags=denyonlimit",
    "add qos short set maxwall=5",
    "add account course",
    "add account poor set grptres=cpu=1",
    "add user {me} account=course",
    "add user {me} account=poor",
    "modify user {me} where account=course set defaultaccount=course "
    "qos=normal,scavenger,single,gpu,pool,small,strict,short defaultqos=normal",
)
"""What sacctmgr is asked to do; ``{me}`` is the account of all jobs."""
REQUESTS = {
    "scavenger": "qos: scavenger, gpus: 1, cpus: 1",
    "single": "qos: single, cpus: 1",
    "gpu": "qos: gpu, gpus: 1, cpus: 1",
    "pool": "qos: pool, cpus: 1",
    "poor": "account: poor, cpus: 1",
    "small": "qos: small, cpus: 2",
    "short": "qos: short, cpus: 1",
    "strict": "qos: strict, cpus: 2",
}
OFFERED = "".join(
    f"""
- {{display_name: In {name}, slug: {name}, command: {COMMAND},
   slurm: {{partition: gpu, {request}, memory: 600M, time: "0:20:00"}}}}
"""
    for name, request in REQUESTS.items()
)


@pytest.fixture(scope="module")
def accounting(needs_slurm: None, public_folder: Path) -> Iterator[Accounting]:
    """The site's slurmdbd."""
    with slurmdbd(public_folder / "qos") as accounting:
        yield accounting


@pytest.fixture(scope="module")
def slurm(accounting: Accounting, public_folder: Path) -> Iterator[PrivateSlurm]:
    """A cluster all of whose GPUs scavengers have."""
    with ExitStack() as stack:
        folder = public_folder / "qos" / "slurm"
        slurm = stack.enter_context(AccountedSlurm(replace(SMALL, name="qos"), folder, accounting, *LINES))
        for line in ACCOUNTING:
            slurm.run("sacctmgr", "-i", *line.format(me=slurm.layout.user).split())
        for _ in range(4):
            slurm.run(
                *("sbatch", "--requeue", "-p", "gpu", "--qos=scavenger", "--gpus=1", "--mem=100", "--chdir=/"),
                *("--output=/dev/null", "--wrap=sleep 900"),
            )
        wait_until(lambda: slurm.run("squeue", "-h", "-o", "%T").split() == ["RUNNING"] * 4, seconds=60)
        yield slurm


@pytest.fixture(scope="module")
def site(slurm: PrivateSlurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The main job is one of the QOS that preempts scavengers'; it is its owner's default, so no profile names it."""
    with ExitStack() as stack:
        hub = start_hub(stack, slurm, tmp_path_factory.mktemp("hub"), lines=CONFIG, profiles=profiles())
        yield Site(hub, slurm)


class TestMainJob(MainJob):
    """The main job, whose start preempts those of scavengers."""


@pytest.fixture(scope="module")
def offered(site: Site) -> None:
    """A profile in each QOS, and one in the account that has one CPU."""
    offer(site.hub, "offered", OFFERED)


def of_profile(site: Site, slug: str) -> tuple[str, str]:
    """The last of what the form says that one gets with a profile, and when a job of it would start."""
    card = Visitor(site.hub, "eve").look("/hub/spawn").soup.select_one(f".gs-choice:has(input[value={slug}])")
    assert card is not None
    availability = card.select(".gs-when > .gs-state")[0].get_text(" ")
    return card.select(".gs-got li")[-1].get_text(), " ".join(availability.split())


@pytest.mark.usefixtures("offered")
def test_a_scavenging_server_says_before_and_afterwards_that_it_is_preempted(site: Site) -> None:
    """While all GPUs are in use it waits, for its QOS preempts none; that of others may, and ends it."""
    hold = site.slurm.run(
        *("sbatch", "--parsable", "-p", "gpu", "--gpus=4", "--mem=100", "--chdir=/", "--output=/dev/null"),
        "--wrap=sleep 900",
    )
    wait_until(lambda: state(site.slurm, hold, "PENDING") == "RUNNING")
    full = wait_until(lambda: re.match(r"Full\.", of_profile(site, "scavenger")[1]))
    for job in site.slurm.run("squeue", "-h", "-o", "%i").split():  # those that were preempted would come back
        site.slurm.run("scancel", job)
    wait_until(lambda: not site.slurm.run("squeue", "-h"))
    user = Visitor(site.hub, "bob")
    own = site.hub.spawn("bob", {"profile": "scavenger"})["job_id"]
    other = site.slurm.run(
        *("sbatch", "--parsable", "-p", "gpu", "--gpus=4", "--mem=100", "--chdir=/", "--output=/dev/null"),
        "--wrap=sleep 900",
    )
    wait_until(lambda: not site.hub.server("bob"), site.hub.log_end, seconds=60)
    site.slurm.run("scancel", other)

    assert full
    assert of_profile(site, "scavenger")[0] == "may be ended at any time for a job with higher priority"
    assert of_profile(site, "single")[0] == "20 min"
    assert state(site.slurm, own) == "PREEMPTED"
    assert "The job was preempted: a job with higher priority needed its resources." in user.look("/hub/home").text


@pytest.mark.usefixtures("offered")
@pytest.mark.parametrize(
    ("profile", "reason"),
    [
        ("single", "Waiting: your own jobs have reached a limit (running jobs)."),
        ("gpu", "Waiting: your own jobs have reached a limit (GPUs)."),
        ("pool", "Waiting: all jobs of this QOS together have reached a limit (CPUs)."),
        ("poor", "Waiting: all jobs of this account together have reached a limit (CPUs)."),
    ],
)
def test_a_server_over_a_limit_waits_until_another_ends_and_says_for_which(
    site: Site, profile: str, reason: str
) -> None:
    """All jobs here belong to one account, as those of one participant do elsewhere."""
    first, second = f"{profile}-1", f"{profile}-2"
    visitor = Visitor(site.hub, second)
    site.hub.spawn(first, {"profile": profile})
    start(site.hub, second, profile)
    wait_until(lambda: reason in visitor.pending().text, lambda: visitor.pending().text, seconds=20)
    site.hub.end(first)
    site.hub.wait(second, ready=True)
    site.hub.end(second)


@pytest.mark.usefixtures("offered")
@pytest.mark.parametrize(
    ("profile", "reason"),
    [
        ("small", "The job asks for more CPUs than its QOS allows for one job, so it will never start."),
        ("short", "The job asks for more time than its QOS allows for one job, so it will never start."),
    ],
)
def test_a_server_beyond_a_limit_for_one_job_is_given_up_at_once_and_says_so(
    site: Site, profile: str, reason: str
) -> None:
    """Slurm would keep such a job pending for ever."""
    start(site.hub, profile, profile)
    job = job_id(site.hub, profile)
    wait_until(lambda: not site.hub.server(profile), site.hub.log_end, seconds=30)

    assert in_the_end(site.slurm, job) == "CANCELLED"
    assert why_it_ended(site.hub, profile) == reason


@pytest.mark.usefixtures("offered")
def test_where_slurm_refuses_jobs_beyond_a_limit_the_form_says_so_before_the_click(site: Site) -> None:
    """DenyOnLimit: the trial has Slurm's answer."""
    trial = site.hub.api("POST", "/gpuspawner/trial/eve", {"user_options": {"profile": "strict"}}).json()
    assert (trial["chance"], trial["sentence"]) == (
        "never",
        "the job asks for more CPUs than its QOS allows for one job",
    )


@pytest.mark.usefixtures("offered")
def test_check_names_the_profiles_that_a_limit_keeps_from_starting(site: Site) -> None:
    """Limits for one job alone: others are reached by jobs together, or end by themselves."""
    findings = [finding for finding in site.check() if finding["code"] == "qos-limit"]
    assert sorted((re.findall("profile ([a-z]+)", finding["where"])[0], finding["text"]) for finding in findings) == [
        ("short", "QOS short allows a job 5 min, not 20 min, so it never starts."),
        ("small", "QOS small allows a job 1 CPU, not 2 CPUs, so it never starts."),
        ("strict", "QOS strict allows a job 1 CPU, not 2 CPUs, so it never starts."),
    ]


@pytest.mark.usefixtures("offered")
def test_while_slurmdbd_hangs_a_restarted_hub_judges_profiles_and_starts_servers(
    site: Site, accounting: Accounting
) -> None:
    """Of QOS nothing is known then, and so nothing said; slurmctld keeps its own copy of what it enforces."""
    os.kill(accounting.pid, signal.SIGSTOP)
    try:
        site.hub.restart()
        wait_until(lambda: of_profile(site, "scavenger")[1].startswith("Starts now"), site.hub.log_end, seconds=60)
        gets, _ = of_profile(site, "scavenger")
        site.hub.spawn("hal", {"profile": "scavenger"})
    finally:
        os.kill(accounting.pid, signal.SIGCONT)
    site.hub.end("hal")

    assert gets == "20 min"
