"""What is known of a server, whichever spawner of a hub it has, and who stopped it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from jupyterhub import orm

from jupyterhub_gpuspawner.hub.job.cause import Cause, Kind, Stage, start_failed
from jupyterhub_gpuspawner.hub.job.ending import Ending
from jupyterhub_gpuspawner.hub.job.failed_start import start_error
from jupyterhub_gpuspawner.hub.job.log import OF_PAGE, Extent
from jupyterhub_gpuspawner.hub.server.report import other_nodes_of, report_taker
from jupyterhub_gpuspawner.hub.site.state import KEY, HubState
from jupyterhub_gpuspawner.hub.spawners import stopping
from jupyterhub_gpuspawner.hub.spawners.profiles import ChosenProfile
from jupyterhub_gpuspawner.hub.spawners.server import (
    Server,
    ServerState,
    ended_log,
    job_ids_of,
    running_log,
    server_of,
    servers_with_jobs,
    stop_record,
    waits_in_queue,
    with_current_end,
    with_profiles,
)
from jupyterhub_gpuspawner.hub.spawners.stopping import note_stopper, stop_server
from jupyterhub_gpuspawner.hub.start.attempt import Attempt
from jupyterhub_gpuspawner.slurm.job import Job, Phase
from jupyterhub_gpuspawner.slurm.reason import Words
from jupyterhub_gpuspawner.wire.documents import PlacementDocument
from tests.standins.hub_spawner import HubSpawner
from tests.standins.resources import resolved

PLACEMENT = PlacementDocument(job_id="12", node="g1", partition="gpu", ends_at="2026-05-04T10:10:30Z")
RUNNING = Job("12", Phase.RUNNING, ends_at=1777896000.0)
ADA = SimpleNamespace(name="ada", settings={KEY: HubState()})


Spawner = partial(HubSpawner, ADA)


def stock(**more: Any) -> Any:
    """A spawner that has only what JupyterHub gives every one."""
    return SimpleNamespace(**{"name": "", "user": ADA, "pending": None, "ready": False, "server": None, **more})


def with_job(**chosen: Any) -> HubSpawner:
    """A server that runs as a job of a profile."""
    profile = ChosenProfile("k80", "slurm", **chosen)
    spawner = Spawner(job=RUNNING, ready=True, server=SimpleNamespace(port=2000), chosen=profile)
    spawner.report.port, spawner.report.topology = 2000, {"version": 1}
    spawner.report.placement = PLACEMENT
    return spawner


def row(**ending: Any) -> orm.Spawner:
    """All that is left of a named server that was stopped."""
    return orm.Spawner(name="lab", user=orm.User(name="ada"), state={"ending": ending})


OURS = Server("ada")
OF_THE_JOB = Server(
    "ada",
    ready=True,
    profile="k80",
    admin_profile="k80",
    last_profile="k80",
    job_id="12",
    job=RUNNING,
    placement=replace(PLACEMENT, ends_at="2026-05-04T12:00:00+00:00"),
    topology={"version": 1},
    reported_port=2000,
    routed_port=2000,
    can_show_log=True,
)
STOPPED = Ending(Cause(Kind.STOPPED_BY_USER), at=1.0)
TIMED_OUT = Ending(Cause(Kind.TIME_LIMIT), log="/7.log", lines="kept")
SERVERS: dict[str, tuple[Callable[[], Any], Server]] = {
    "a profile's server": (with_job, replace(OF_THE_JOB, profile_name="k80")),
    "a profile's server whose profile has a name, and another application than Jupyter": (
        lambda: with_job(display_name="Code", app="code-server"),
        replace(OF_THE_JOB, profile_name="Code", app="code-server"),
    ),
    "ours that has started nothing": (Spawner, OURS),
    "another package's": (
        lambda: stock(name="lab", display_name="My lab", pending="spawn"),
        Server("ada", "lab", "My lab", pending="spawn"),
    ),
    "one that has ended": (
        lambda: Spawner(ending=TIMED_OUT),
        replace(OURS, ending=TIMED_OUT),
    ),
    "one that a person stopped": (lambda: Spawner(ending=STOPPED), replace(OURS, ending=STOPPED)),
    "one whose start has only just begun, after one of another profile": (
        lambda: Spawner(
            pending="spawn",
            user_options={"profile": "k80"},
            last=ChosenProfile("two", "slurm", display_name="Two K80s"),
        ),
        replace(OURS, pending="spawn", profile="k80", profile_name="Two K80s", last_profile="two"),
    ),
    "one of a profile that could not be submitted": (
        lambda: Spawner(last=ChosenProfile("two", "slurm", display_name="Two K80s")),
        replace(OURS, profile_name="Two K80s", last_profile="two"),
    ),
    "a named one of a profile, of which only the database knows": (
        lambda: row(cause={"kind": "stopped by user"}, at=1.0, profile="Two K80s", slug="two"),
        Server(
            "ada",
            "lab",
            "lab",
            profile_name="Two K80s",
            last_profile="two",
            ending=replace(STOPPED, profile="Two K80s", slug="two"),
        ),
    ),
    "a named one that has ended, of which only the database knows": (
        lambda: row(cause={"kind": "time limit"}, log="/7.log", lines="kept"),
        Server("ada", "lab", "lab", ending=TIMED_OUT),
    ),
}


@pytest.mark.parametrize(("spawner", "server"), SERVERS.values(), ids=SERVERS.keys())
async def test_servers(spawner: Callable[[], Any], server: Server) -> None:
    """What a spawner does not have is not known; nothing is asked of it that only ours have."""
    assert server_of(spawner(), with_start=False) == server


async def test_failed_starts() -> None:
    """A start of ours has an ending; so has one that ended in an exception that nobody handled, for administrators."""
    ours, theirs, cancelled = (asyncio.get_running_loop().create_future() for _ in range(3))
    died = Ending(start_failed("job_failed"), job_id="12", lines="line")
    unhandled = Ending(start_failed("hook"), quoted=Words(hint="RuntimeError: secret"))
    ours.set_exception(start_error(died))
    theirs.set_exception(RuntimeError("secret"))
    cancelled.cancel()
    assert [server_of(stock(_spawn_future=start)) for start in (ours, theirs, cancelled)] == [
        Server("ada", ending=died, failure=ours.exception()),
        Server("ada", ending=unhandled, failure=theirs.exception()),
        Server("ada"),
    ]


async def test_the_servers_of_a_hub_that_have_a_job() -> None:
    """Without their starts: a job's position in the queue costs too much for all at once. The others are not read."""
    ada = SimpleNamespace(name="ada", spawners={"": with_job(), "two": Unread()})
    assert [(server.name, server.job_id, server.start) for server in servers_with_jobs([ada])] == [("", "12", None)]


async def test_a_log_is_the_jobs_and_that_of_an_ended_server_is_read_again_where_that_is_possible() -> None:
    """Else it is what was kept with its ending."""

    class Log:
        async def path_and_lines(self, extent: Extent) -> tuple[str, str]:
            return "/home/ada/job.log", f"line {extent.lines}"

        async def lines_of_ended(self, path: str, _job_id: str, extent: Extent) -> str:
            return "" if path == "/gone" else f"{path} {extent.size}"

    readable, gone = TIMED_OUT, replace(TIMED_OUT, log="/gone")
    ours = Spawner(job_log=Log())
    pairs: list[tuple[Any, Ending]] = [(ours, readable), (ours, gone), (stock(), readable)]
    lines = [await ended_log(spawner, ending, OF_PAGE) for spawner, ending in pairs]

    assert await running_log(ours, OF_PAGE) == ("/home/ada/job.log", "line 400")
    assert lines == [f"/7.log {OF_PAGE.size}", "kept", "kept"]


async def test_who_takes_a_report_and_who_offers_profiles() -> None:
    """A spawner of ours; no other, and none."""
    ours = Spawner()

    assert (report_taker(ours), report_taker(stock()), report_taker(None)) == (ours.accept_report, None, None)
    assert (with_profiles(ours), with_profiles(stock()), with_profiles(None)) == (ours, None, None)


@pytest.mark.parametrize(
    ("spawner", "number"),
    [
        (stock, 0),
        (lambda: Spawner(request=SimpleNamespace(resources=resolved(nodes=4))), 3),
        (lambda: Spawner(job=replace(RUNNING, nodes="g[1-3],h1")), 3),
        (lambda: Spawner(job=RUNNING), 0),
        (Spawner, 0),
    ],
)
async def test_the_number_of_other_nodes(spawner: Callable[[], Any], number: int) -> None:
    """As requested or, in a hub without profiles and after a restart, as Slurm granted."""
    assert other_nodes_of(spawner()) == number


@pytest.mark.parametrize(
    ("server", "states"),
    [
        (Server(), (False, False)),
        (Server(pending="spawn", reported_port=2000), (True, False)),
        (Server(ready=True, reported_port=2000, routed_port=2000), (True, True)),
        (Server(ready=True, reported_port=2001, routed_port=2000), (True, False)),
    ],
    ids=["nothing", "starting", "ready", "moved"],
)
def test_active_and_reachable(server: Server, states: tuple[bool, bool]) -> None:
    """Active: it runs or something is under way; reachable: the hub leads to the port that was reported."""
    assert (server.active, server.reachable) == states


def test_the_end_is_the_one_that_slurm_reports_now() -> None:
    """An admin has changed the time limit; a job that does not run, or has no limit, changes nothing."""
    running = Job("12", Phase.RUNNING, ends_at=1777900000.0)
    assert with_current_end(PLACEMENT, running) == replace(PLACEMENT, ends_at="2026-05-04T13:06:40+00:00")
    for job in (None, replace(running, phase=Phase.ENDING), replace(running, ends_at=None)):
        assert with_current_end(PLACEMENT, job) is PLACEMENT


class Unread:
    """A spawner whose row would be read from the database: a rollback has expired it."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} is read from the database")


async def test_the_work_in_the_background_reads_no_row_of_each_server() -> None:
    """A hub with many servers would stand still for a query each, in every check after a rollback."""
    queued = Spawner(job=RUNNING, attempt=Attempt(stage=Stage.QUEUED))
    queued.user = Unread()
    users = [SimpleNamespace(spawners={"": queued, "second": Unread()}), SimpleNamespace(spawners={})]

    assert (job_ids_of(users, ""), job_ids_of(users, "cedar")) == ({"12"}, set())
    assert (waits_in_queue(queued), waits_in_queue(Unread())) == (True, False)


# --- who stopped it ---------------------------------------------------------------------------------


async def test_a_stop_is_noted_with_the_session() -> None:
    """Of a server of ours; another one has no sessions."""
    ours = Spawner()
    note_stopper(ours, Kind.STOPPED_BY_ADMIN)
    note_stopper(stock(), Kind.STOPPED_BY_ADMIN)

    assert ours.ended.cause == Cause(Kind.STOPPED_BY_ADMIN)


QUEUED = Job("12", Phase.QUEUED, reason="Priority")


@pytest.mark.parametrize(
    ("server", "stage"),
    [
        (Server(job_id="12", pending="spawn", job=QUEUED), Stage.QUEUED),
        (Server(job_id="12", pending="spawn", job=RUNNING), Stage.STARTING),
        (Server(job_id="12", ready=True, job=RUNNING), None),
    ],
)
def test_a_stop_knows_whether_the_server_ever_ran(server: Server, stage: Stage | None) -> None:
    """One that waited has left the line, one that was starting was cancelled, and only one that ran was stopped."""
    assert stop_record(server, at=9.0) == Ending(Cause(Kind.STOPPED_BY_USER), at=9.0, job_id="12", stage=stage)


BY_THE_USER = Ending(Cause(Kind.STOPPED_BY_USER))


class Stops:
    """How often a server was stopped, and what was pending then."""

    def __init__(self, spawner: Any) -> None:
        self._spawner = spawner
        self.pending: list[str | None] = []
        self.done = asyncio.Event()

    async def stop(self) -> bool:
        self.pending.append(self._spawner.pending)
        self.done.set()
        return True


@pytest.mark.parametrize("patience", [60.0, 0.0], ids=["in time", "later than a request waits"])
async def test_a_stop_waits_for_the_check_of_a_restarted_hub(monkeypatch: pytest.MonkeyPatch, patience: float) -> None:
    """JupyterHub stops nothing meanwhile. Where the check takes long, the answer does not wait for it."""
    monkeypatch.setattr(stopping, "PENDING_PATIENCE_SECONDS", patience)
    spawner = stock(pending="check", active=True, _log_name="ada", log=logging.getLogger())
    stops = Stops(spawner)
    stop = asyncio.create_task(stop_server(spawner, BY_THE_USER, stops.stop))
    if not patience:
        assert await stop
    else:
        await asyncio.sleep(0)
    meanwhile = list(stops.pending)
    spawner.pending = None
    await stops.done.wait()

    assert (meanwhile, stops.pending, await stop) == ([], [None], True)


async def test_a_start_that_takes_long_to_end_is_cancelled_once_and_stops_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second cancellation would end what the first one has begun to clean up. A second click changes nothing."""
    monkeypatch.setattr(stopping, "PENDING_PATIENCE_SECONDS", 0.0)
    cleaned_up, cancellations = asyncio.Event(), list[str]()

    async def start() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancellations.append("first")
            try:
                await cleaned_up.wait()
            except asyncio.CancelledError:
                cancellations.append("second")
            raise

    starting = asyncio.create_task(start())
    spawner = Spawner(pending="spawn", _spawn_future=starting)
    starting.add_done_callback(lambda _: setattr(spawner, "pending", None))
    await asyncio.sleep(0)
    before, stops = server_of(spawner).state, Stops(spawner)
    clicks = [await stop_server(spawner, BY_THE_USER, stops.stop) for _ in range(3)]
    meanwhile, stopped = server_of(spawner).state, list(stops.pending)
    spawner.server = SimpleNamespace(port=0)  # JupyterHub leaves its row
    spawner.ready = True
    cleaned_up.set()
    await stops.done.wait()

    assert (before, meanwhile) == (ServerState.STARTING, ServerState.STOPPING)
    assert (clicks, stopped, stops.pending[:1], cancellations) == ([True] * 3, [], [None], ["first"])
    assert spawner.ended.last == BY_THE_USER
