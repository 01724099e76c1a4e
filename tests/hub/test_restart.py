"""The hub is killed and restarted: running, starting and waiting servers are all kept."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from batchspawner import SlurmSpawner
from jupyterhub.spawner import LocalProcessSpawner
from traitlets.config import Config
from wrapspawner import ProfilesSpawner

from jupyterhub_gpuspawner.demo.hub import HubProcess, server_path
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm, SlurmFailed
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.site.configuration import NamedHub, NamedUser
from jupyterhub_gpuspawner.wire.documents import PlacementDocument
from tests.fixtures.batchspawners import spawner_of
from tests.fixtures.hubs import COMMAND, STAND_IN, StartHub
from tests.hub.servers import environment, job_id, start, state
from tests.hub.visitor import Visitor, events
from tests.waiting import wait_until

CONFIG = """
c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 0}  # a start over REST is answered at once
from jupyterhub_gpuspawner.slurm import watcher
watcher.ACTIVE_INTERVAL = 0.5
"""
RUNNING = f"{{partition: batch, cpus: 1, memory: 100M, time: 0:10:00}}\n  command: {COMMAND}"
PROFILES = f"""
- display_name: Light
  slug: light
  slurm: {RUNNING}
- display_name: Starts when the gate is open
  slug: gated
  slurm: {RUNNING}
  environment: {{setup: "until [ -e GATE ]; do sleep 0.2; done"}}
- display_name: Listens when the gate is open
  slug: deaf
  slurm: {{partition: batch, cpus: 1, memory: 100M, time: 0:10:00}}
  command: [bash, -c, "until [ -e GATE ]; do sleep 0.2; done; exec {sys.executable} {STAND_IN}"]
""" + "".join(
    f"""
- display_name: The node with {feature}
  slug: {feature}
  slurm: {{partition: gpu, constraint: {feature}, cpus: 1, memory: 100M, time: 0:10:00}}
  command: {COMMAND}
"""
    for feature in ("k80", "p100", "mig")
)
NODES = {"k80": "g1", "p100": "d1", "mig": "m1"}


@dataclass
class Restarted:
    """A hub that was killed and restarted, and its servers before that."""

    hub: HubProcess
    blockers: dict[str, str]
    """Jobs that occupy a node, by the feature of that node."""
    job_ids: dict[str, str] = field(default_factory=dict)
    placements: dict[str, dict[str, Any]] = field(default_factory=dict)


def full_name(user: str, server: str) -> str:
    return f"{user}/{server}" if server else user


def placement(hub: HubProcess, user: str, server: str = "") -> dict[str, Any]:
    """The placement that the hub shows for a server, once Slurm has confirmed the node's report."""
    path = f"/gpuspawner/placement/{full_name(user, server)}"
    wait_until(lambda: hub.api("GET", path).json().get("job_id"), hub.log_end)
    shown: dict[str, Any] = hub.api("GET", path).json()
    return shown


def job_of_server(hub: HubProcess, user: str, server: str = "") -> str:
    """The job in which the server behind the proxy runs."""
    return environment(hub, user, server)["SLURM_JOB_ID"]


SERVERS = [
    ("running", "", "light"),
    ("running", "named", "light"),
    ("starting", "", "gated"),
    ("starting", "named", "gated"),
    ("reported", "", "deaf"),
    ("reported", "named", "deaf"),
    ("waiting", "", "k80"),
    ("waiting", "named", "p100"),
    ("stopped", "", "mig"),
    ("cancelled", "", "mig"),
]


@pytest.fixture(scope="module")
def restarted(
    start_light_hub: StartHub, slurm_cluster: PrivateSlurm, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Restarted]:
    """Servers that were running, starting and waiting when the hub was killed; their profiles were removed since."""
    gate = tmp_path_factory.mktemp("gate") / "open"
    hub = start_light_hub(lines=CONFIG, profiles=PROFILES.replace("GATE", str(gate)))
    blockers = {
        feature: slurm_cluster.run(
            "sbatch", "--parsable", "-p", "gpu", "-w", node, "--exclusive", "--output=/dev/null", "--wrap=sleep 600"
        )
        for feature, node in NODES.items()
    }
    here = Restarted(hub, blockers)
    for user, server, profile in SERVERS:  # one after the other: Slurm says "Priority" of all but the first that waits
        start(hub, user, profile, server)
        here.job_ids[full_name(user, server)] = job_id(hub, user, server)
    for server in ("", "named"):
        hub.wait("running", server, ready=True)
        here.placements[full_name("running", server)] = placement(hub, "running", server)
        here.placements[full_name("reported", server)] = placement(hub, "reported", server)

    hub.kill()
    slurm_cluster.run("scancel", here.job_ids["cancelled"])
    (hub.folder / "profiles" / "own.yaml").write_text(f"- {{display_name: Other, command: {COMMAND}}}\n")
    hub.start()
    gate.touch()
    yield here
    hub.stop()
    for blocker in blockers.values():
        with suppress(SlurmFailed):  # it has already ended
            slurm_cluster.run("scancel", blocker)


@pytest.mark.parametrize("server", ["", "named"])
@pytest.mark.slurm
@pytest.mark.hub
def test_a_server_that_ran_goes_on(restarted: Restarted, slurm_cluster: PrivateSlurm, server: str) -> None:
    """The same job is behind the same URL, with the same placement; stopping the server cancels the job."""
    hub, job = restarted.hub, restarted.job_ids[full_name("running", server)]
    hub.wait("running", server, ready=True)

    assert job_of_server(hub, "running", server) == job
    assert placement(hub, "running", server) == restarted.placements[full_name("running", server)]

    hub.end("running", server)

    assert state(slurm_cluster, job) == "CANCELLED"


@pytest.mark.parametrize("server", ["", "named"])
@pytest.mark.parametrize("user", ["starting", "reported"])
@pytest.mark.slurm
@pytest.mark.hub
def test_a_server_that_started_arrives(
    restarted: Restarted, slurm_cluster: PrivateSlurm, user: str, server: str
) -> None:
    """The hub is killed before or after the server's report: the same job becomes ready, and its placement is shown."""
    hub, job = restarted.hub, restarted.job_ids[full_name(user, server)]
    hub.wait(user, server, ready=True)
    shown = placement(hub, user, server)

    assert job_of_server(hub, user, server) == job
    assert shown["job_id"] == job
    assert shown == restarted.placements.get(full_name(user, server), shown)

    hub.end(user, server)

    assert state(slurm_cluster, job) == "CANCELLED"


@pytest.mark.slurm
@pytest.mark.hub
def test_servers_that_waited_wait_on_and_each_arrives_when_its_own_node_is_free(
    restarted: Restarted, slurm_cluster: PrivateSlurm
) -> None:
    """Pages say what the servers wait for; one can be reached while another is still waiting."""
    hub, first, second = restarted.hub, restarted.job_ids["waiting"], restarted.job_ids["waiting/named"]
    stream = events(hub, "waiting")
    messages = [next(stream)["message"], next(stream)["message"]]
    page = Visitor(hub, "waiting").pending()

    assert messages[0] == "Server requested"
    assert messages[1] == f"Job {first}: All matching resources are in use."
    assert (page.status, "Waiting in line" in page.text) == (200, True)

    slurm_cluster.run("scancel", restarted.blockers["k80"])
    last = list(stream)[-1]
    hub.wait("waiting", ready=True)

    assert last["ready"] is True
    assert job_of_server(hub, "waiting") == first
    assert placement(hub, "waiting")["node"] == "g1"
    model = hub.server("waiting", "named")
    assert model is not None
    assert model["pending"] == "spawn"

    slurm_cluster.run("scancel", restarted.blockers["p100"])
    hub.wait("waiting", "named", ready=True)

    assert job_of_server(hub, "waiting", "named") == second

    hub.end("waiting")
    hub.end("waiting", "named")

    assert [state(slurm_cluster, job) for job in (first, second)] == ["CANCELLED", "CANCELLED"]


@pytest.mark.slurm
@pytest.mark.hub
def test_a_server_that_waited_can_be_stopped_while_it_waits(restarted: Restarted, slurm_cluster: PrivateSlurm) -> None:
    """Stopping the waiting server cancels its job, and a new server can be started."""
    hub, job = restarted.hub, restarted.job_ids["stopped"]
    answer = hub.api("DELETE", server_path("stopped"))
    hub.wait("stopped", ready=False)

    assert answer.status_code in (202, 204)
    assert state(slurm_cluster, job) == "CANCELLED"

    start(hub, "stopped", "other")
    hub.wait("stopped", ready=True)
    hub.end("stopped")


@pytest.mark.slurm
@pytest.mark.hub
def test_a_job_that_was_cancelled_while_the_hub_was_down_is_told_of(restarted: Restarted) -> None:
    """The server is gone, and the page of its start gives the reason."""
    hub, job = restarted.hub, restarted.job_ids["cancelled"]
    hub.wait("cancelled", ready=False)
    last = list(events(hub, "cancelled"))[-1]

    assert hub.server("cancelled") is None
    assert last["failed"] is True
    assert f"Job {job} ended before your server was ready: The job was cancelled." in last["message"]


# --- stored states ---------------------------------------------------------------------------------

PLACEMENT = PlacementDocument(job_id="7", node="g1", cpus="0-3")
CLOCK = {"stage": "allocated", "since": [1.5, "this", 2.5], "timeouts": [600, 14400], "starts_at": 1.0}


def test_a_state_that_wrapspawner_stored_is_taken_up() -> None:
    """A hub that changes to our class keeps the job of batchspawner's child, but not its configuration."""
    spawner = GPUProfilesSpawner(config=Config())
    spawner.load_state(
        {
            "profile": "gpu",
            "child_conf": {"req_partition": "monday"},
            "child_state": {"job_id": "12", "job_status": "RUNNING g1"},
        }
    )

    assert (spawner.job_id, spawner.req_partition) == ("12", "")


def test_a_process_that_wrapspawner_stored_is_taken_up() -> None:
    """The process of a local profile is found again."""
    spawner = GPUProfilesSpawner(config=Config())
    spawner.load_state({"profile": "local", "child_conf": {"ip": ""}, "child_state": {"pid": 4321}})

    assert isinstance(spawner.child_spawner, LocalProcessSpawner)
    assert spawner.child_spawner.pid == 4321


def test_our_own_state_comes_back_whole() -> None:
    """Profile, kind, job, port and placement are read exactly as they were stored."""
    document = json.loads(json.dumps(PLACEMENT.to_json()))
    stored = {
        "version": 2,
        "profile": "k80",
        "kind": "slurm",
        "job_id": "7",
        "clock": CLOCK,
        "port": 20001,
        "placement": document,
        "child_state": {"job_id": "7"},
    }
    spawner = GPUProfilesSpawner(config=Config())
    spawner.load_state(stored)

    assert spawner.report.placement == PLACEMENT
    assert json.loads(json.dumps(spawner.get_state())) == stored


def wrapper(profile: str) -> Any:
    """wrapspawner's spawner of a server of this profile, in a hub with one for servers on its machine."""
    tuples: list[Any] = [("Local", "local", LocalProcessSpawner, {})]
    config = Config({"ProfilesSpawner": {"child_class": "batchspawner.SlurmSpawner", "profiles": tuples}})
    user, hub = NamedUser("ann"), NamedHub()
    return ProfilesSpawner(config=config, user=user, hub=hub, user_options={"profile": profile})


@pytest.mark.filterwarnings("ignore:Passing unrecognized arguments:DeprecationWarning")  # wrapspawner's own
def test_the_older_spawners_find_what_runs() -> None:
    """A job of either class of ours, and a process of a profile that is still one: where each of them looks for it."""
    without = GPUSlurmSpawner(config=Config())
    with_profiles, local = (GPUProfilesSpawner(config=Config()) for _ in range(2))
    without.load_state({"job_id": "7"})
    with_profiles.load_state({"kind": "slurm", "profile": "course", "job_id": "8"})
    local.load_state({"kind": "local", "profile": "local", "child": {"pid": 4321}})
    states = [json.loads(json.dumps(spawner.get_state())) for spawner in (without, with_profiles, local)]
    alone = [spawner_of(SlurmSpawner) for _ in states[:2]]
    wrapped = [wrapper(stored.get("profile", "")) for stored in states]
    for spawner, stored in (*zip(alone, states[:2], strict=True), *zip(wrapped, states, strict=True)):
        spawner.load_state(stored)

    assert [spawner.job_id for spawner in alone] == ["7", "8"]
    assert [spawner.child_spawner.job_id for spawner in wrapped[:2]] == ["7", "8"]
    assert wrapped[2].child_spawner.pid == 4321


DAMAGED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a job id that is a command": ({"job_id": "7; rm -rf /"}, {}),
    "a placement of another version": (
        {"job_id": "7", "clock": CLOCK, "placement": {"nodes": []}},
        {"job_id": "7", "clock": CLOCK, "child_state": {"job_id": "7"}},
    ),
    "a port that is none": (
        {"job_id": "7", "clock": CLOCK, "port": "22"},
        {"job_id": "7", "clock": CLOCK, "child_state": {"job_id": "7"}},
    ),
}


@pytest.mark.parametrize(("stored", "fields"), DAMAGED.values(), ids=DAMAGED.keys())
def test_what_does_not_parse_is_dropped(stored: dict[str, Any], fields: dict[str, Any]) -> None:
    """A damaged state does not prevent the hub from starting."""
    spawner = GPUProfilesSpawner(config=Config())
    spawner.load_state({"kind": "slurm", **stored})

    assert spawner.get_state() == {"version": 2, "kind": "slurm", **fields}


def test_a_class_that_is_gone_leaves_no_server(caplog: pytest.LogCaptureFixture) -> None:
    """A stored server whose class, written by the admin, can no longer be imported is logged and dropped."""
    spawner = GPUProfilesSpawner(config=Config())
    spawner.load_state({"version": 1, "kind": "other", "class": "no.such.Spawner", "child": {"pid": 1}})

    assert spawner.child_spawner is None
    assert "no.such.Spawner" in caplog.text


def test_a_class_of_the_admins_own_is_built_again() -> None:
    """The name of the class is stored, and its state is passed to it unchanged."""
    spawner = GPUProfilesSpawner(config=Config())
    name = "jupyterhub.spawner.LocalProcessSpawner"
    spawner.load_state({"version": 1, "kind": "other", "class": name, "child": {"pid": 99}})

    assert type(spawner.child_spawner) is LocalProcessSpawner
    assert spawner.child_spawner.pid == 99
