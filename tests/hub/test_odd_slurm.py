"""Slurm is silent, answers oddly, or changes a job: a server ends only when Slurm says so, and then at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
import requests

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm, SlurmFailed
from jupyterhub_gpuspawner.hub.lost_jobs import state_job_ids
from tests.fixtures.hubs import COMMAND, LIGHT, StartHub, stop_servers, wait_for_queries
from tests.fixtures.slurm import hanging
from tests.hub.commands import commands
from tests.hub.servers import in_the_end, start, state, stored, why_it_ended
from tests.hub.visitor import Visitor
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

CONFIG = """
c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 0}  # a start over REST is answered at once
from jupyterhub_gpuspawner.slurm import watcher
watcher.ACTIVE_INTERVAL = watcher.REST_INTERVAL = 0.3
c.GPUSlurmSpawner.slurm_timeout = 1.0
c.Spawner.poll_interval = 3600
"""
"""The hub itself polls every hour: what is noticed comes from the watcher."""
PROFILES = f"""{LIGHT}
- display_name: Put back
  slug: requeued
  slurm: {{partition: batch, cpus: 1, memory: 100M, time: "0:10:00", extra: [--requeue]}}
  command: {COMMAND}
- display_name: On the DGX-1
  slug: dgx
  slurm: {{partition: gpu, constraint: p100, cpus: 1, memory: 100M, time: "0:10:00"}}
  command: {COMMAND}
- display_name: One minute
  slug: minute
  slurm: {{partition: batch, cpus: 1, memory: 100M, time: "0:01:00"}}
  command: {COMMAND}
"""
SWITCH = """
case "$(cat FOLDER/switch 2>/dev/null)" in
    garbage) echo "slurm_load_jobs error: \x07 <html>" ;;
    nothing) ;;
    half) "$real" "$@" | head -c 30 ;;
    unknown) "$real" "$@" | sed 's/|RUNNING\\>/|HIBERNATING/' ;;
    refused) echo "squeue: error: Security violation" >&2; exit 1 ;;
    timeout) echo "slurm_load_jobs error: Socket timed out on send/recv operation" >&2; exit 1 ;;
    hang) sleep 60 ;;
    noise) echo "squeue: warning: the site's banner" >&2; exec "$real" "$@" ;;
    *) exec "$real" "$@" ;;
esac
"""


@pytest.fixture(scope="module")
def hub(start_light_hub: StartHub, slurm_cluster: PrivateSlurm, tmp_path_factory: pytest.TempPathFactory) -> HubProcess:
    """A hub whose squeue behaves as the file ``switch`` in its folder says."""
    folder = tmp_path_factory.mktemp("odd")
    changed = {"squeue": SWITCH.replace("FOLDER", str(folder))}
    bin_dir = commands(folder / "bin", slurm_cluster.bin_dir, changed)
    lines = f"{CONFIG}\nc.GPUSlurmSpawner.slurm_bin_dir = {str(bin_dir)!r}"
    return start_light_hub(lines=lines, profiles=PROFILES)


@pytest.fixture
def switch(hub: HubProcess) -> Iterator[Callable[[str], None]]:
    """Change what squeue does."""
    setting = re.search(r"slurm_bin_dir = '(.*)/bin'", hub.config.read_text())
    assert setting is not None
    file = Path(setting[1], "switch")

    def turn(to: str) -> None:
        part = file.with_suffix(".part")
        part.write_text(to)
        part.rename(file)

    yield turn
    turn("")


@pytest.fixture(autouse=True)
def no_server_is_left(hub: HubProcess) -> Iterator[None]:
    """Stop all servers after each test."""
    yield
    stop_servers(hub, but="minute")


@pytest.fixture(scope="module", autouse=True)
def minute(hub: HubProcess) -> str:
    """The job of a server whose time limit expires in a minute, while the other tests run."""
    return str(hub.spawn("minute", {"profile": "minute"})["job_id"])


def ready(hub: HubProcess, user: str) -> bool:
    model = hub.server(user)
    return bool(model and model["ready"])


def answers(hub: HubProcess, user: str) -> bool:
    return requests.get(f"{hub.url}/user/{user}/api", timeout=10, allow_redirects=False).status_code == 200


def outages(log: str) -> list[str]:
    """What the log says of outages: ``not responding`` where one begins, and ``responding again`` where it is over."""
    return re.findall("Slurm is (not responding|responding again)", log)


def no_repeats(lines: list[str]) -> bool:
    """Whether each outage has one line when it begins and one when it is over; a busy machine may make more of them."""
    return all(line != following for line, following in pairwise(lines))


SOME = ("half", "unknown", "hang")
OTHERS = ("garbage", "nothing", "refused", "timeout", "noise")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("odd", [SOME, pytest.param(OTHERS, marks=pytest.mark.nightly)], ids=["some", "the others"])
def test_an_odd_answer_ends_no_server(hub: HubProcess, switch: Callable[[str], None], odd: tuple[str, ...]) -> None:
    """Odd answers of squeue for some seconds end no server; no line is logged for each query."""
    hub.spawn("odd", {"profile": "light"})
    still_ready, logs = {}, {}
    for oddity in odd:
        begun = len(hub.log.read_text())
        switch(oddity)
        wait_for_queries(hub)
        still_ready[oddity] = ready(hub, "odd")
        switch("")
        wait_for_queries(hub, 1)
        still_ready[oddity] = still_ready[oddity] and ready(hub, "odd") and answers(hub, "odd")
        logs[oddity] = hub.log.read_text()[begun:]
    unknown = {oddity: re.findall(r"Job (\d+) has the unknown state HIBERNATING", log) for oddity, log in logs.items()}

    assert still_ready == dict.fromkeys(odd, True)
    assert [oddity for oddity, log in logs.items() if not no_repeats(outages(log))] == []
    assert [oddity for oddity, jobs in unknown.items() if jobs] == [oddity for oddity in odd if oddity == "unknown"]
    assert [jobs for jobs in unknown.values() if len(jobs) > len(set(jobs))] == []  # once for each server


def test_slurmctld_hangs_stops_and_starts_anew(hub: HubProcess, slurm_cluster: PrivateSlurm) -> None:
    """A server runs throughout; each outage is logged with one line when it begins and one when it is over."""
    hub.spawn("hugo", {"profile": "light"})
    begun = len(hub.log.read_text())

    def last() -> str:
        return (["", *outages(hub.log.read_text()[begun:])])[-1]

    with hanging(slurm_cluster):
        wait_until(lambda: last() == "not responding", hub.log_end)
        wait_for_queries(hub, 1)
        silent = ready(hub, "hugo")
    wait_until(lambda: last() == "responding again", hub.log_end)
    slurm_cluster.stop_controller()
    try:
        wait_until(lambda: last() == "not responding", hub.log_end)
        stopped = ready(hub, "hugo")
    finally:
        slurm_cluster.start_controller()
    wait_until(lambda: last() == "responding again", hub.log_end)

    assert (silent, stopped, ready(hub, "hugo"), answers(hub, "hugo")) == (True, True, True, True)
    assert no_repeats(outages(hub.log.read_text()[begun:]))


def cancelling(slurm: PrivateSlurm) -> bool:
    """Whether a scancel runs, on this cluster."""
    return any(
        process.info["name"] == "scancel"
        and (process.info["environ"] or {}).get("SLURM_CONF") == slurm.environment["SLURM_CONF"]
        for process in psutil.process_iter(["name", "environ"])
    )


def test_a_stop_that_slurm_did_not_hear_is_made_good_by_the_next_hub(
    hub: HubProcess, slurm_cluster: PrivateSlurm
) -> None:
    """slurmctld hangs, a user stops the server, and the hub is killed: the next hub cancels the job, and says so."""
    wes = Visitor(hub, "wes")
    job = hub.spawn("wes", {"profile": "light"})["job_id"]
    with hanging(slurm_cluster):
        wes.click("/hub/gpuspawner/stop/wes")
        hub.wait("wes", ready=False)
        hub.kill()

    def ended() -> bool:
        with suppress(SlurmFailed):
            return slurm_cluster.run("squeue", "-h", "-j", job, "-t", "PD,R") == ""
        return False

    wait_until(lambda: not cancelling(slurm_cluster))
    lost = not ended()
    hub.start()

    wait_until(ended, hub.log_end, seconds=60)
    if lost:
        wait_until(lambda: f"job {job} was cancelled." in why_it_ended(hub, "wes"), hub.log_end)
    assert (f"Job {job} (jupyterhub-gpuspawner/demo/wes/#" in hub.log.read_text()) is lost


def test_a_suspended_server_is_kept_and_goes_on(hub: HubProcess, slurm_cluster: PrivateSlurm) -> None:
    """The suspended process does not answer; Slurm resumes it later, and then it answers."""
    job = hub.spawn("susan", {"profile": "light"})["job_id"]
    slurm_cluster.run("scontrol", "suspend", job)
    wait_for_queries(hub)
    suspended, still_ready = state(slurm_cluster, job), ready(hub, "susan")
    slurm_cluster.run("scontrol", "resume", job)

    assert (suspended, still_ready) == ("SUSPENDED", True)
    wait_until(lambda: answers(hub, "susan"))


def test_a_server_is_not_put_back(hub: HubProcess, slurm_cluster: PrivateSlurm) -> None:
    """The server's script forbids requeueing, since its contents in memory do not come back with its job."""
    job = hub.spawn("rita", {"profile": "light"})["job_id"]
    with pytest.raises(SlurmFailed):
        slurm_cluster.run("scontrol", "requeue", job)

    assert state(slurm_cluster, job) == "RUNNING"
    assert answers(hub, "rita")


def test_a_server_that_slurm_puts_back_all_the_same_has_ended(hub: HubProcess, slurm_cluster: PrivateSlurm) -> None:
    """If a site allows requeueing, the server has ended, since it left its node; its job is cancelled."""
    job = hub.spawn("rolf", {"profile": "requeued"})["job_id"]
    wait_for_queries(hub)  # the watcher's answer must be newer than the server
    slurm_cluster.run("scontrol", "requeue", job)
    hub.wait("rolf", ready=False)

    assert in_the_end(slurm_cluster, job) == "CANCELLED"
    assert why_it_ended(hub, "rolf").startswith("Slurm requeued the job")


def test_job_arrays_of_the_same_user_are_no_noise(hub: HubProcess, slurm_cluster: PrivateSlurm) -> None:
    """Array tasks that share an id prefix and copy the server's comment start and end without effect on the server."""
    job = hub.spawn("arno", {"profile": "light"})["job_id"]
    comment = slurm_cluster.run("squeue", "-h", "-j", job, "-O", "Comment:|").rstrip("|")
    array = slurm_cluster.run(
        *("sbatch", "--parsable", "--array=0-9%3", "-p", "batch", "-c", "1", "--mem=20M", "--chdir=/"),
        *("--output=/dev/null", "--comment", comment, "--wrap=sleep 1"),
    )
    try:
        wait_until(lambda: "COMPLETED" in slurm_cluster.run("squeue", "-h", "-t", "all", "-j", array, "-o", "%T"))
        wait_for_queries(hub)
        assert ready(hub, "arno")
        assert answers(hub, "arno")
    finally:
        slurm_cluster.run("scancel", array)


def test_a_scancel_is_noticed_within_an_interval_and_named(hub: HubProcess, slurm_cluster: PrivateSlurm) -> None:
    """The watcher's query notices the end before the hub's poll: route and placement are gone, the reason is stored."""
    job = hub.spawn("sven", {"profile": "light"})["job_id"]
    slurm_cluster.run("scancel", job)

    hub.wait("sven", ready=False)
    assert why_it_ended(hub, "sven") == "The job was cancelled."
    assert list(stored(hub, "sven")) == ["ending"]
    assert hub.api("GET", "/gpuspawner/placement/sven").status_code == 404
    gone = requests.get(f"{hub.url}/user/sven/environ", timeout=10, allow_redirects=False)
    assert (gone.status_code, gone.headers["Location"]) == (302, "/hub/user/sven/environ")  # the hub, not the server


def test_a_server_that_ends_by_itself_is_noticed_within_an_interval_and_named(
    hub: HubProcess, slurm_cluster: PrivateSlurm
) -> None:
    """A server that is killed by a signal ends with a message that names the signal."""
    job = hub.spawn("karl", {"profile": "light"})["job_id"]
    slurm_cluster.run("scancel", "--batch", "--signal=KILL", job)

    hub.wait("karl", ready=False)
    assert why_it_ended(hub, "karl") == "The job was killed (signal 9), most often for its memory."


def resumed(slurm: PrivateSlurm, node: str) -> bool:
    """Whether the node is back in service; it is not available while it is completing."""
    with suppress(SlurmFailed):
        slurm.run("scontrol", "update", f"nodename={node}", "state=resume")
    return slurm.run("sinfo", "-h", "-n", node, "-o", "%T") in ("idle", "mixed")


def test_a_node_that_fails_is_noticed_within_an_interval_and_named(
    hub: HubProcess, slurm_cluster: PrivateSlurm
) -> None:
    """When Slurm sets the node to DOWN, its servers have ended; servers on other nodes continue."""
    job = hub.spawn("nina", {"profile": "dgx"})["job_id"]
    hub.spawn("nora", {"profile": "light"})
    slurm_cluster.run("scontrol", "update", "nodename=d1", "state=down", "reason=test")
    try:
        hub.wait("nina", ready=False)
    finally:
        wait_until(lambda: resumed(slurm_cluster, "d1"))

    assert state(slurm_cluster, job) == "NODE_FAIL"
    assert why_it_ended(hub, "nina") == "The node of the job failed."
    assert ready(hub, "nora")


def test_a_start_whose_job_is_held_is_waited_for(hub: HubProcess, slurm_cluster: PrivateSlurm) -> None:
    """A held job may be released: the start continues and succeeds."""
    full = slurm_cluster.run(
        *("sbatch", "--parsable", "-p", "gpu", "-w", "g1", "--exclusive", "--output=/dev/null", "--wrap=sleep 600")
    )
    try:
        start(hub, "hans", "k80-node")
        wait_until(lambda: bool(state_job_ids(stored(hub, "hans"))))
        [job] = state_job_ids(stored(hub, "hans"))
        slurm_cluster.run("scontrol", "hold", job)
        wait_for_queries(hub)
    finally:
        with suppress(SlurmFailed):
            slurm_cluster.run("scancel", full)
    wait_for_queries(hub)
    held = hub.server("hans")
    slurm_cluster.run("scontrol", "release", job)
    hub.wait("hans", ready=True)

    assert held is not None
    assert held["pending"] == "spawn"


def test_the_time_limit_is_named(hub: HubProcess, slurm_cluster: PrivateSlurm, minute: str) -> None:
    """Slurm ends the job within a minute after its time limit; the hub notices, and the message names the limit."""
    wait_until(lambda: not hub.server("minute"), seconds=150)
    assert state(slurm_cluster, minute) == "TIMEOUT"
    assert re.search("time limit|minute", why_it_ended(hub, "minute"))
