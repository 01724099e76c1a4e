"""Ends of servers that depend on Slurm's configuration, and a hub whose clock is wrong.

Each private Slurm here has one node, and lines in slurm.conf that the demo's cluster does not have.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest
import requests

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import (
    ClusterDescription,
    PrivateSlurm,
    SimulatedNode,
    SimulatedPartition,
    SlurmFailed,
)
from tests.fixtures.clock import OF_HUB, faketime
from tests.fixtures.hubs import COMMAND, STAND_IN, start_hub
from tests.fixtures.slurm import ChangedSlurm
from tests.hub.servers import environment, in_the_end, job_id, start, state, why_it_ended
from tests.hub.visitor import Visitor
from tests.waiting import true_within, wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

NODE = SimulatedNode("e1", machine="cpu", sockets=1, cores_per_socket=4, memory_mib=4000)
PARTITIONS = {"low": "PriorityTier=1 PreemptMode=CANCEL", "back": "PriorityTier=1 PreemptMode=REQUEUE"}
PARTITIONS |= {"high": "PriorityTier=10 PreemptMode=OFF"}
CLUSTER = ClusterDescription((NODE,), tuple(SimulatedPartition(name, ("e1",)) for name in PARTITIONS), name="ends")

PREEMPTS = "PreemptType=preempt/partition_prio\nPreemptMode=REQUEUE"
WATCHES_MEMORY = """JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill"""

CONFIG = """
c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 0}  # a start over REST is answered at once
from jupyterhub_gpuspawner.slurm import watcher
watcher.ACTIVE_INTERVAL = 0.3
watcher.REST_INTERVAL = 1.0
c.GPUSlurmSpawner.slurm_timeout = 2.0
"""
"""The hub itself polls every 30 s: what is noticed sooner comes from the watcher."""


def preempts_and_watches_memory(conf: str) -> str:
    """Partitions preempt each other, and slurmd checks the memory of jobs once a second."""
    conf = conf.replace("JobAcctGatherType=jobacct_gather/none", WATCHES_MEMORY)
    for name, words in PARTITIONS.items():
        conf = re.sub(rf"^(PartitionName={name} .*)$", rf"\1 {words}", conf, flags=re.MULTILINE)
    return f"{conf}{PREEMPTS}\n"


@pytest.fixture(scope="module")
def slurm(needs_slurm: None, public_folder: Path) -> Iterator[PrivateSlurm]:
    """A Slurm in which servers can be preempted, and killed for exceeding their memory."""
    with ChangedSlurm(CLUSTER, public_folder / "ends", preempts_and_watches_memory) as slurm:
        yield slurm


@pytest.fixture(autouse=True)
def no_job_is_left(slurm: PrivateSlurm) -> Iterator[None]:
    """Cancel all jobs after each test, since the next test needs the node."""
    yield
    for job in slurm.run("squeue", "-h", "-o", "%i").split():
        with suppress(SlurmFailed):
            slurm.run("scancel", job)
    wait_until(lambda: not slurm.run("squeue", "-h"))


GROW = "import time; held = bytearray(700 << 20); time.sleep(60)"


def profiles(trigger: Path) -> str:
    """One profile for each end; the second process of the server ``hungry`` needs memory once ``trigger`` exists."""
    hungry = (
        f"(while [ ! -e {trigger} ]; do sleep 0.2; done; exec {sys.executable} -c '{GROW}') & "
        f"exec {sys.executable} {STAND_IN}"
    )
    return f"""
- {{display_name: Low, slug: low, command: {COMMAND},
   slurm: {{partition: low, cpus: 1, memory: 300M, time: "0:10:00"}}}}
- {{display_name: Put back, slug: back, command: {COMMAND},
   slurm: {{partition: back, cpus: 1, memory: 300M, time: "0:10:00"}}}}
- {{display_name: Put back by its own wish, slug: requeued, command: {COMMAND},
   slurm: {{partition: back, cpus: 1, memory: 300M, time: "0:10:00", extra: [--requeue]}}}}
- {{display_name: High, slug: high, command: {COMMAND},
   slurm: {{partition: high, cpus: 1, memory: 300M, time: "0:10:00"}}}}
- display_name: Hungry
  slug: hungry
  slurm: {{partition: high, cpus: 1, memory: 400M, time: "0:10:00"}}
  command: [bash, -c, "{hungry}"]
"""


@pytest.fixture(scope="module")
def trigger(public_folder: Path) -> Path:
    """The file that makes the server ``hungry`` allocate memory."""
    return public_folder / "grow"


@pytest.fixture(scope="module")
def hub(slurm: PrivateSlurm, trigger: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    """A hub that uses this Slurm."""
    with ExitStack() as stack:
        yield start_hub(stack, slurm, tmp_path_factory.mktemp("ends"), lines=CONFIG, profiles=profiles(trigger))


@contextmanager
def whole_node(slurm: PrivateSlurm, *options: str) -> Iterator[str]:
    """Run an ordinary job in the high partition that occupies the whole node."""
    job = slurm.run(
        *("sbatch", "--parsable", "-p", "high", "--exclusive", "--mem=0", "--chdir=/", "--output=/dev/null"),
        *(*options, "--wrap=sleep 600"),
    )
    try:
        wait_until(lambda: state(slurm, job) == "RUNNING", lambda: slurm.run("squeue"), seconds=60)
        yield job
    finally:
        slurm.run("scancel", job)
        true_within(90, lambda: state(slurm, job) != "RUNNING")


def card(hub: HubProcess, user: str) -> str:
    """The text of the user's home page."""
    return Visitor(hub, user).look("/hub/home").text


PREEMPTED = "The job was preempted: a job with higher priority needed its resources."


@pytest.mark.parametrize("profile", ["low", pytest.param("back", marks=pytest.mark.nightly)])
def test_a_server_that_is_preempted_is_noticed_and_named(hub: HubProcess, slurm: PrivateSlurm, profile: str) -> None:
    """Preemption ends the server whether Slurm cancels or would requeue the job; our scripts forbid requeueing."""
    job = hub.spawn(profile, {"profile": profile})["job_id"]
    with whole_node(slurm):
        wait_until(lambda: not hub.server(profile), seconds=20)

    assert state(slurm, job) == "PREEMPTED"
    assert why_it_ended(hub, profile) == PREEMPTED
    text = card(hub, profile)
    assert PREEMPTED in text
    assert "Start again; the new server may have to wait in the queue." in text


def test_a_server_that_outgrows_its_memory_is_noticed_and_named(
    hub: HubProcess, slurm: PrivateSlurm, trigger: Path
) -> None:
    """Without cgroups slurmctld only reports signal 9; slurmd's message in the job's log gives the reason."""
    hub.spawn("hungry", {"profile": "hungry"})
    trigger.touch()
    wait_until(lambda: not hub.server("hungry"), hub.log_end)

    assert "The job exceeded its memory limit of 400 MiB." in card(hub, "hungry")
    log = Visitor(hub, "hungry").look("/hub/gpuspawner/log/hungry")
    assert "exceeded memory limit" in log.text
    noticed = re.findall("Job [0-9]+ of hungry has ended: (.*)", hub.log.read_text())
    assert noticed == ["The job exceeded its memory limit of 400 MiB."]


@pytest.mark.nightly
def test_an_end_after_the_hub_was_restarted_is_noticed_as_before(hub: HubProcess, slurm: PrivateSlurm) -> None:
    """Both servers were running before the restart: one is cancelled, the other requeued and would start again."""
    jobs = {user: hub.spawn(user, {"profile": "requeued"})["job_id"] for user in ("cora", "rene")}
    hub.restart()
    for user in jobs:
        hub.wait(user, ready=True)
    slurm.run("scancel", jobs["cora"])
    slurm.run("scontrol", "requeue", jobs["rene"])

    wait_until(lambda: not hub.server("cora") and not hub.server("rene"), seconds=20)
    assert in_the_end(slurm, jobs["rene"]) == "CANCELLED"
    assert why_it_ended(hub, "cora") == "The job was cancelled."


# --- a hub whose clock is wrong ---------------------------------------------------------------------

HOUR = 3600


def off_by(hub: HubProcess) -> float:
    """Seconds by which the hub's clock is ahead of ours, according to the hub."""
    answer = requests.get(f"http://127.0.0.1:{hub.ports[1]}/hub/health", timeout=10)
    return parsedate_to_datetime(answer.headers["Date"]).timestamp() - time.time()


@pytest.fixture(params=[HOUR, -HOUR], ids=["ahead", "behind"])
def skewed(request: pytest.FixtureRequest, slurm: PrivateSlurm, tmp_path: Path) -> Iterator[tuple[HubProcess, int]]:
    """A hub whose own clock is an hour ahead or behind, and the difference in seconds."""
    seconds = request.param
    wrong = faketime(FAKETIME=f"{seconds:+d}", FAKETIME_DONT_FAKE_MONOTONIC="1")
    with ExitStack() as stack:
        lines, choices = f"{CONFIG}\n{OF_HUB}", profiles(tmp_path / "never")
        yield start_hub(stack, slurm, tmp_path / "hub", lines=lines, profiles=choices, **wrong), seconds


WRONG = {
    "ahead": ("Time is up: Slurm may end the server at any moment.", "soon (it was expected"),
    "behind": (r"1 h \d+ min", "if nobody with a higher priority comes."),
}
"""What pages show of a server with ten minutes left and a start in half an hour, by the hub's own clock."""


@pytest.mark.nightly
def test_a_hub_whose_clock_is_an_hour_off(skewed: tuple[HubProcess, int], slurm: PrivateSlurm) -> None:
    """Servers start, wait, end and are found after a restart; only the remaining time shown on pages is wrong."""
    hub, seconds = skewed
    left, estimate = WRONG["ahead" if seconds > 0 else "behind"]
    ada, bob = Visitor(hub, "ada"), Visitor(hub, "bob")

    assert abs(off_by(hub) - seconds) < HOUR / 10
    with whole_node(slurm, "--time=30"):
        start(hub, "bob", "high")
        wait_until(lambda: estimate in bob.pending().text, lambda: bob.pending().text)
    hub.wait("bob", ready=True)
    slurm.run("scancel", environment(hub, "bob")["SLURM_JOB_ID"])
    wait_until(lambda: not hub.server("bob"), seconds=20)
    assert "The job was cancelled." in bob.look("/hub/home").text

    placement = hub.spawn("ada", {"profile": "high"})
    ends_at = datetime.fromisoformat(placement["ends_at"]).timestamp()
    assert 300 < ends_at - time.time() < 660  # the stored end time is right
    assert re.search(left, ada.look("/hub/home").text)

    comment = slurm.run("squeue", "-h", "-j", placement["job_id"], "-O", "Comment:|").rstrip("|")
    twin = slurm.run(
        *("sbatch", "--parsable", "-p", "high", "-c", "1", "--mem=20M", "--chdir=/", "--output=/dev/null"),
        *("--comment", comment, "--wrap=sleep 600"),
    )
    hub.restart()
    assert in_the_end(slurm, twin) == "CANCELLED"
    hub.wait("ada", ready=True)
    assert environment(hub, "ada")["SLURM_JOB_ID"] == placement["job_id"]


@pytest.mark.nightly
@pytest.mark.timeout(420)  # two hubs and a full queue_timeout
def test_a_place_in_the_queue_is_given_up_in_its_own_time_by_a_hub_whose_clock_was_set_back(
    slurm: PrivateSlurm, tmp_path: Path
) -> None:
    """The clock was set back by an hour while no hub was running; the start is not given up an hour late."""
    wrong = faketime(FAKETIME=f"-{HOUR}", FAKETIME_DONT_FAKE_MONOTONIC="1")
    with ExitStack() as stack, whole_node(slurm):
        lines, choices = (
            f"{CONFIG}\n{OF_HUB}\nc.GPUSlurmSpawner.queue_timeout = '0:00:30'",
            profiles(tmp_path / "never"),
        )
        hub = start_hub(stack, slurm, tmp_path / "hub", lines=lines, profiles=choices)
        start(hub, "bob", "high")
        assert job_id(hub, "bob")  # the job id is stored
        hub.kill()
        hub.environment = {**hub.environment, **wrong}
        hub.start()

        assert abs(off_by(hub) + HOUR) < HOUR / 10
        wait_until(lambda: not hub.server("bob"), hub.log_end, seconds=240)
        assert "You waited 30 s in the queue, which is the limit here" in Visitor(hub, "bob").pending().text
        wait_until(lambda: not slurm.run("squeue", "-h", "-t", "PD", "-o", "%i"))
