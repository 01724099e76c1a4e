"""What is known of a server, whichever spawner of a hub it has."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from traitlets.config import Config

from jupyterhub_gpuspawner.hub.job.ending import Ending, start_failed
from jupyterhub_gpuspawner.hub.job.log import OF_PAGE, Extent
from jupyterhub_gpuspawner.hub.spawners.profiles import ChosenProfile, GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.spawners.server import (
    Server,
    ended_log,
    job_ids_of,
    keeps_ending,
    other_nodes_of,
    report_taker,
    running_log,
    server_of,
    servers_with_jobs,
    updated_server,
    with_current_end,
    with_profiles,
)
from jupyterhub_gpuspawner.hub.start.progress import StartFacts
from jupyterhub_gpuspawner.slurm.job import Job, Phase
from jupyterhub_gpuspawner.wire.documents import PlacementDocument
from tests.standins.resources import resolved

PLACED = PlacementDocument(job_id="12", node="g1", partition="gpu", ends_at="2026-05-04T10:10:30Z")
ADA = SimpleNamespace(name="ada")


class JobStandIn:
    """The spawner of a Slurm job, as far as it is read."""

    job_id = "12"
    job = Job("12", Phase.RUNNING, ends_at=1777896000.0)
    placement = PLACED
    topology = MappingProxyType({"version": 1})
    reported_port = 2000
    updates = 0

    def start_facts(self) -> StartFacts:
        return StartFacts(self.job_id, silent=True)

    async def update_queue(self, _: float) -> None:
        self.updates += 1

    async def job_log(self, extent: Extent) -> tuple[str, str]:
        return "/home/ada/job.log", f"line {extent.lines}"


def stock(**more: Any) -> Any:
    """A spawner that has only what JupyterHub gives every one."""
    return SimpleNamespace(**{"name": "", "user": ADA, "pending": None, "ready": False, "server": None, **more})


OF_THE_JOB = Server(
    "ada",
    ready=True,
    profile="k80",
    job_id="12",
    job=JobStandIn.job,
    placement=replace(PLACED, ends_at="2026-05-04T12:00:00+00:00"),
    topology={"version": 1},
    start=StartFacts("12", silent=True),
    reported_port=2000,
    routed_port=2000,
    keeps_ending=True,
    can_show_log=True,
)
KNOWN = {
    "a profile's server": (
        stock(
            ready=True, server=SimpleNamespace(port=2000), child_spawner=JobStandIn(), child_profile="k80", ending=None
        ),
        replace(OF_THE_JOB, profile_name="k80"),
    ),
    "a profile's server whose profile had a name": (
        stock(
            ready=True,
            server=SimpleNamespace(port=2000),
            chosen=ChosenProfile("k80", "slurm", display_name="Two K80s"),
            child_spawner=JobStandIn(),
            child_profile="k80",
            ending=None,
        ),
        replace(OF_THE_JOB, profile_name="Two K80s"),
    ),
    "one with another application than Jupyter": (
        stock(
            ready=True,
            server=SimpleNamespace(port=2000),
            chosen=ChosenProfile("k80", "slurm", display_name="Code", app="code-server"),
            child_spawner=JobStandIn(),
            child_profile="k80",
            ending=None,
        ),
        replace(OF_THE_JOB, profile_name="Code", app="code-server"),
    ),
    "a profile's spawner that has started nothing": (
        stock(child_spawner=None, child_profile="", ending=None),
        Server("ada", keeps_ending=True),
    ),
    "another package's": (
        stock(name="lab", display_name="My lab", pending="spawn"),
        Server("ada", "lab", "My lab", pending="spawn"),
    ),
    "one that has ended": (
        stock(ending=Ending("It reached its limit.", served=True)),
        Server("ada", ending=Ending("It reached its limit.", served=True), keeps_ending=True),
    ),
    "one that a person stopped": (
        stock(ending=Ending("It was stopped at {time}.", at=1.0, stopped=True)),
        Server("ada", stopped=Ending("It was stopped at {time}.", at=1.0, stopped=True), keeps_ending=True),
    ),
    "one of a profile that could not be submitted": (
        stock(ending=None, last_profile_name="Two K80s"),
        Server("ada", profile_name="Two K80s", keeps_ending=True),
    ),
    "a named one of a profile, of which only the database knows": (
        stock(name="lab", state={"ending": {"what": "Over.", "stopped": True, "profile": "Two K80s"}}),
        Server("ada", "lab", "lab", profile_name="Two K80s", stopped=Ending("Over.", stopped=True, profile="Two K80s")),
    ),
    "a named one that has ended, of which only the database knows": (
        stock(name="lab", state={"ending": {"what": "Over.", "served": True}}),
        Server("ada", "lab", "lab", ending=Ending("Over.", served=True)),
    ),
}


@pytest.mark.parametrize(("spawner", "server"), KNOWN.values(), ids=KNOWN.keys())
def test_servers(spawner: Any, server: Server) -> None:
    """What a spawner does not have is not known; nothing is asked of it that only ours have."""
    assert server_of(spawner) == server


async def test_failed_starts() -> None:
    """A start of ours has an ending; of any other there is the exception."""
    ours, theirs, cancelled = (asyncio.get_running_loop().create_future() for _ in range(3))
    ours.set_exception(start_failed("Job 12 died.", detail="line"))
    theirs.set_exception(RuntimeError("secret"))
    cancelled.cancel()
    assert [server_of(stock(_spawn_future=each)) for each in (ours, theirs, cancelled)] == [
        Server("ada", ending=Ending("Job 12 died.", lines="line"), failure=ours.exception()),
        Server("ada", failure=theirs.exception()),
        Server("ada"),
    ]


async def test_the_queue_is_updated_first_where_that_is_wanted() -> None:
    """By the spawner that starts the server; those of other packages have no queue."""
    child = JobStandIn()
    server = await updated_server(stock(child_spawner=child), patience=0.5)
    assert (child.updates, server.start) == (1, StartFacts("12", silent=True))
    assert await updated_server(stock(), patience=0.5) == Server("ada")


def test_the_servers_of_a_hub_that_have_a_job() -> None:
    """Without their starts: a job's position in the queue costs too much for all at once. The others are not read."""
    ada = SimpleNamespace(name="ada", spawners={"": stock(child_spawner=JobStandIn()), "two": Unread()})
    assert [(each.name, each.job_id, each.start) for each in servers_with_jobs([ada])] == [("", "12", None)]


async def test_a_log_is_the_jobs() -> None:
    """Its path and its last lines."""
    assert await running_log(stock(child_spawner=JobStandIn()), OF_PAGE) == ("/home/ada/job.log", "line 400")


async def test_the_log_of_an_ended_server_is_read_again_where_that_is_possible() -> None:
    """Else it is what was kept with its ending."""

    async def log_of_ended(ending: Ending, extent: Extent) -> str:
        return "" if ending.log == "/gone" else f"{ending.log} {extent.size}"

    kept, gone = Ending("It ended.", log="/7.log", lines="kept"), Ending("It ended.", log="/gone", lines="kept")
    ours = stock(log_of_ended=log_of_ended)
    found = [await ended_log(*each, OF_PAGE) for each in ((ours, kept), (ours, gone), (stock(), kept))]

    assert found == [f"/7.log {OF_PAGE.size}", "kept", "kept"]


def test_who_takes_a_report() -> None:
    """The spawner itself; nothing where it takes none, or is gone."""
    taken: list[Any] = []
    take = report_taker(stock(accept_report=taken.append))
    assert take is not None
    take("a report")  # type: ignore[arg-type]
    assert (taken, report_taker(stock()), report_taker(None)) == (["a report"], None, None)


@pytest.mark.parametrize(
    ("spawner", "number"),
    [
        (stock(), 0),
        (stock(request=SimpleNamespace(resources=resolved(nodes=4)), job=None), 3),
        (stock(request=None, job=replace(JobStandIn.job, nodes="g[1-3],h1")), 3),
        (stock(request=None, job=replace(JobStandIn.job, nodes="")), 0),
        (stock(request=None, job=None), 0),
    ],
)
def test_the_number_of_other_nodes(spawner: Any, number: int) -> None:
    """As requested or, in a hub without profiles and after a restart, as Slurm granted."""
    assert other_nodes_of(spawner) == number


STATES = {
    "nothing": (Server(), (False, False)),
    "starting": (Server(pending="spawn", reported_port=2000), (True, False)),
    "ready": (Server(ready=True, reported_port=2000, routed_port=2000), (True, True)),
    "moved": (Server(ready=True, reported_port=2001, routed_port=2000), (True, False)),
}


@pytest.mark.parametrize(("server", "states"), STATES.values(), ids=STATES.keys())
def test_active_and_reachable(server: Server, states: tuple[bool, bool]) -> None:
    """Active: it runs or something is under way; reachable: the hub leads to the port that was reported."""
    assert (server.active, server.reachable) == states


def test_the_end_is_the_one_that_slurm_reports_now() -> None:
    """An admin has changed the time limit; a job that does not run, or has no limit, changes nothing."""
    running = Job("12", Phase.RUNNING, ends_at=1777900000.0)
    assert with_current_end(PLACED, running) == replace(PLACED, ends_at="2026-05-04T13:06:40+00:00")
    for job in (None, replace(running, phase=Phase.ENDING), replace(running, ends_at=None)):
        assert with_current_end(PLACED, job) is PLACED


def test_who_offers_profiles() -> None:
    """A spawner with profiles is given back; any other, and none, is not."""
    ours = GPUProfilesSpawner(config=Config())
    assert (with_profiles(ours), with_profiles(stock()), with_profiles(None)) == (ours, None, None)


class Unread:
    """A spawner whose row would be read from the database: a rollback has expired it."""

    ending = None

    def __init__(self, child: Any = None) -> None:
        self.child_spawner = child

    def __getattr__(self, name: str) -> Any:
        if name == "job_id":  # not every spawner has one
            raise AttributeError(name)
        raise AssertionError(f"{name} is read from the database")


def test_the_work_in_the_background_reads_no_row_of_each_server() -> None:
    """A hub with many servers would stand still for a query each, in every check after a rollback."""
    users = [SimpleNamespace(spawners={"": Unread(JobStandIn()), "second": Unread()}), SimpleNamespace(spawners={})]

    assert job_ids_of(users) == {"12"}
    assert keeps_ending(Unread())
    assert not keeps_ending(stock())
