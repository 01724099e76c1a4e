"""Only a limit of the queue itself ends the wait in it, and those who wait keep nobody else from starting."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta, timezone

import pytest

from jupyterhub_gpuspawner.demo.hub import HubProcess, server_path
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.fixtures.hubs import COMMAND, StartHub, stop_servers
from tests.fixtures.slurm import hanging
from tests.hub.servers import in_the_end, start, stored
from tests.hub.visitor import Visitor
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

START_TIMEOUT = 15
PEOPLE = 20
CONFIG = f"""
c.JupyterHub.tornado_settings = {{"slow_spawn_timeout": 0}}  # a start over REST is answered at once
c.JupyterHub.init_spawners_timeout = 1
c.JupyterHub.concurrent_spawn_limit = 3
c.JupyterHub.active_server_limit = {PEOPLE + 2}
c.GPUSlurmSpawner.start_timeout = {START_TIMEOUT}
c.GPUSlurmSpawner.slurm_timeout = 60
from jupyterhub_gpuspawner.slurm import watcher
watcher.ACTIVE_INTERVAL = 0.5
"""
NODE = "partition: gpu, constraint: k80, memory: 100M"
PROFILES = f"""
- display_name: Four of the node's 24 cores
  slug: crowd
  slurm: {{{NODE}, cpus: 4, time: "0:10:00"}}
  command: {COMMAND}
- display_name: Another node
  slug: light
  slurm: {{partition: batch, cpus: 1, memory: 100M, time: "0:10:00"}}
  command: {COMMAND}
- display_name: Short of time
  slug: brief
  slurm: {{{NODE}, cpus: 1, time: "0:10:00"}}
  queue_timeout: 0:02:00
  command: {COMMAND}
- display_name: Has to end soon
  slug: dated
  slurm: {{{NODE}, cpus: 24, time: "0:10:00", extra: ["--deadline=now+2hours"]}}
  command: {COMMAND}
- display_name: Never reports
  slug: stuck
  slurm: {{{NODE}, cpus: 24, time: "0:10:00"}}
  environment: {{setup: "sleep 300"}}
  start_timeout: 4
  command: {COMMAND}
"""


@pytest.fixture(scope="module")
def hub(start_light_hub: StartHub) -> HubProcess:
    """A hub that gives a start fifteen seconds, and starts three servers at once."""
    return start_light_hub(lines=CONFIG, profiles=PROFILES)


def enter(hub: HubProcess, user: str, profile: str) -> None:
    """Ask for a server as often as the hub says that too many others are being started."""
    hub.api("POST", f"/users/{user}")
    wait_until(lambda: hub.api("POST", server_path(user), {"profile": profile}).status_code < 400, hub.log_end)


def job_of(hub: HubProcess, user: str) -> str:
    """The id of the job of a server, in the hub's database; empty where there is none."""
    return str(stored(hub, user).get("job_id", ""))


def pending(hub: HubProcess, users: list[str]) -> list[str]:
    """Those of the users whose server is being started."""
    return [user for user in users if (hub.server(user) or {}).get("pending") == "spawn"]


@pytest.mark.nightly
def test_a_crowd_waits_longer_than_every_time_out_and_across_a_restart(
    hub: HubProcess, slurm_cluster: PrivateSlurm, holder: str
) -> None:
    """Twenty wait for one node, of which six have room at once, while another user starts at once elsewhere."""
    users = [f"waits{number}" for number in range(PEOPLE)]
    for user in users:
        enter(hub, user, "crowd")
    wait_until(lambda: all(job_of(hub, user) for user in users), hub.log_end)
    last_came = time.monotonic()
    jobs = {user: job_of(hub, user) for user in users}

    start(hub, "elsewhere", "light")
    hub.wait("elsewhere", ready=True)
    hub.restart()

    wait_until(lambda: pending(hub, users) == users, hub.log_end)
    start(hub, "elsewhere-too", "light")
    hub.wait("elsewhere-too", ready=True)
    refused = Visitor(hub, "one-too-many").start({"profile": "light"})
    assert (refused.status, refused.error[:43]) == (429, "This hub has as many servers as it is allow")
    time.sleep(max(0.0, 1.3 * START_TIMEOUT - (time.monotonic() - last_came)))
    assert pending(hub, users) == users
    assert {user: job_of(hub, user) for user in users} == jobs

    slurm_cluster.run("scancel", holder)
    released = datetime.now(timezone.utc).replace(microsecond=0)
    served, left = dict[str, str](), set(users)

    def stop_ready_servers() -> bool:
        for user in sorted(left):
            model = hub.server(user)
            assert model is not None, (user, hub.log_end())
            if model["ready"]:
                assert min(datetime.fromisoformat(model[age]) for age in ("started", "last_activity")) >= released
                served[user] = job_of(hub, user)
                hub.api("DELETE", server_path(user))  # the next ones start meanwhile
                left.remove(user)
        return not left

    wait_until(stop_ready_servers, hub.log_end, seconds=180)
    assert served == jobs
    stop_servers(hub)


@pytest.mark.nightly
@pytest.mark.usefixtures("holder")
def test_a_start_that_is_expected_after_the_queues_limit_has_a_warning(hub: HubProcess) -> None:
    """On the form, and in Slurm's own answer about a choice: the node is taken for longer than two minutes."""
    hub.api("POST", "/users/ann")

    def sentences() -> tuple[str, str]:
        profiles = hub.api("GET", "/gpuspawner/profiles/ann").json()["profiles"]
        trial = hub.api("POST", "/gpuspawner/trial/ann", {"user_options": {"profile": "brief"}}).json()
        (brief,) = (profile for profile in profiles if profile["slug"] == "brief")
        return brief["availability"]["sentence"], trial["sentence"]

    warning = ", but a start may wait for at most 2 min here"
    wait_until(lambda: all(sentence.endswith(warning) for sentence in sentences()), sentences, seconds=90)


@pytest.mark.nightly
def test_a_jobs_own_deadline_is_told_as_the_end_of_its_place(
    hub: HubProcess, slurm_cluster: PrivateSlurm, holder: str
) -> None:
    """As Slurm works it out: the deadline less the time that the job needs."""
    visitor = Visitor(hub, "dana")
    start(hub, "dana", "dated")
    wait_until(lambda: "We keep your place in line until" in visitor.pending().text)
    shown = visitor.pending().soup.select_one('[data-fact="kept"] time')
    record = slurm_cluster.run("scontrol", "show", "job", job_of(hub, "dana"))
    deadline = re.search(r"Deadline=(\S+)", record)
    hub.end("dana")

    assert shown is not None
    assert deadline is not None
    until = datetime.fromisoformat(deadline[1]).astimezone() - timedelta(minutes=10)
    assert datetime.fromisoformat(str(shown["datetime"])) == until


@pytest.mark.usefixtures("holder")
def test_the_home_page_says_who_is_next_if_no_other_page_was_opened(hub: HubProcess) -> None:
    """It updates the hub's view of the queue itself."""
    visitor = Visitor(hub, "homely")
    start(hub, "homely", "crowd")
    wait_until(lambda: "You are next." in visitor.look("/hub/home").text, hub.log_end, seconds=60)
    hub.end("homely")


def test_starts_for_which_there_is_no_job_yet_count_for_the_limit(hub: HubProcess, slurm_cluster: PrivateSlurm) -> None:
    """Three wait for sbatch's answer: the form says in words that a fourth has to wait, and keeps the choice."""
    users, visitor = ["first", "second", "third"], Visitor(hub, "fourth")
    form = visitor.look("/hub/spawn")
    with hanging(slurm_cluster):
        for user in users:
            start(hub, user, "light")
        refused = visitor.send(form, {"profile": "light"})
    chosen = refused.soup.select_one("input[name=profile]:checked")

    assert refused.status == 429
    assert re.match(r"Many servers are being started at the moment, so yours was not\. .* in \d+ s\.", refused.error)
    assert chosen is not None
    assert chosen["value"] == "light"
    for user in users:
        hub.wait(user, ready=True)
    stop_servers(hub)


@pytest.mark.oldest
def test_the_time_of_a_start_counts_from_the_allocation(
    hub: HubProcess, slurm_cluster: PrivateSlurm, holder: str
) -> None:
    """A job that has waited for twice the start_timeout of its profile gets all of it, and no more."""
    visitor = Visitor(hub, "slow")
    start(hub, "slow", "stuck")
    wait_until(lambda: bool(job_of(hub, "slow")))
    job = job_of(hub, "slow")
    time.sleep(8)
    waited = pending(hub, ["slow"])
    slurm_cluster.run("scancel", holder)
    hub.wait("slow", ready=False)
    times = slurm_cluster.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%S %e").split()
    began, ended = map(datetime.fromisoformat, times)

    assert waited == ["slow"]
    assert in_the_end(slurm_cluster, job) == "CANCELLED"
    assert (ended - began).total_seconds() >= 3
    assert "Your server did not start within 4 s after Slurm had started its job" in visitor.pending().text
