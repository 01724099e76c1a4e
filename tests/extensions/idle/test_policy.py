"""The idle policy, replayed over curves of use: who is told and stopped, and when."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jupyterhub import orm
from jupyterhub.app import JupyterHub
from jupyterhub.spawner import SimpleLocalProcessSpawner
from sqlalchemy import event, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session
from traitlets.config import Config

from benchmarks.extensions.idle.idle_table import CURVES, Outcome, replay
from jupyterhub_gpuspawner.extensions.idle.fields import IdleAction, IdleRule
from jupyterhub_gpuspawner.extensions.idle.policy import IdleServer, Span, State, Using, Verdict, follow, judge
from jupyterhub_gpuspawner.extensions.idle.servers import IdleServers, NotKept, keep_server
from jupyterhub_gpuspawner.extensions.idle.times import IdleTime, IdleTimes, due_since
from jupyterhub_gpuspawner.extensions.idle.watch import IdleWatch, begin_idle, idle_record
from jupyterhub_gpuspawner.extensions.usage.node.summary import GpuUse, UsageSummary
from jupyterhub_gpuspawner.extensions.usage.use import ServerUsage, Use
from jupyterhub_gpuspawner.hub.extensions import ServerExtensions
from jupyterhub_gpuspawner.hub.job.cause import Cause, Kind
from jupyterhub_gpuspawner.hub.job.ending_words import words_of
from jupyterhub_gpuspawner.hub.site.state import KEY, HubState, set_up, state_of
from jupyterhub_gpuspawner.hub.spawners.profiles import ChosenProfile, GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.spawners.server import HubSite, server_of, site_of_hub
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.slurm.job import Job, Phase
from jupyterhub_gpuspawner.wire.documents import PlacedGpu, PlacementDocument
from tests.fixtures.databases import hub_session
from tests.fixtures.postgres import about_sqlite
from tests.standins.hub_spawner import HubSpawner

ROOT = Path(__file__).parents[3]
BUSY, UNKNOWN, EXEMPT = (Outcome(state=state) for state in (State.BUSY, State.UNKNOWN, State.EXEMPT))


def stopped(*warnings: int, at: int) -> Outcome:
    return Outcome(warnings, at, stopped=True, state=State.DUE)


OUTCOMES = {
    "training for five hours": BUSY,
    "bursts: 5 minutes in each half hour": BUSY,
    "bursts: 5 minutes in each 50": Outcome((30, 80, 130, 180, 230, 280), state=State.BUSY),
    "used for 20 minutes, then left": stopped(50, 70, at=80),
    "never used": stopped(30, 50, at=60),
    "used again after the first warning": stopped(50, 130, 150, at=160),
    "half of the memory held and not used": stopped(110, 130, at=140),
    "two GPUs, one of them used": BUSY,
    "two GPUs, the use of one unknown": UNKNOWN,
    "unknown for 5 minutes in between": stopped(30, 80, 100, at=110),
    "no summary for 20 minutes in between": stopped(30, 95, 115, at=125),
    "the process that measures is ended": Outcome((30,), state=State.UNKNOWN),
    "a MIG device whose utilisation is unknown": UNKNOWN,
    "a second node with GPUs, which is not measured": UNKNOWN,
    "a second node without GPUs, `kernel: 30min`, nobody works": UNKNOWN,
    "a course's session until 2:00": stopped(150, 170, at=180),
    "a course's session from 0:50 to 2:00": stopped(30, 150, 170, at=180),
    "kept once, at 0:55": stopped(30, 50, 60, 80, at=90),
    "kept twice, and a third time in vain": stopped(30, 50, 60, 80, 90, 110, at=120),
    "`kernel: 30min`, and somebody works until 2:00": stopped(135, 140, at=150),
    "`kernel: 30min`, and nobody works": stopped(45, 50, at=60),
    "without GPUs": EXEMPT,
    "without GPUs, `kernel: 30min`, nobody works": stopped(15, 20, at=30),
    "the same, but a program computes": BUSY,
    "`gpu: null`": EXEMPT,
    "`action: tell`": Outcome((30, 50), 60, state=State.DUE),
    "`action: tell`, kept at 3:00": Outcome((30, 50, 210, 230), 60, state=State.DUE),
    "`action: report`": Outcome((), 60, state=State.DUE),
}
"""Minutes from the server's start."""


@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.what)
def test_who_is_told_and_stopped_and_when(curve) -> None:
    """After an hour without use, with a warning after 30 and 50 minutes."""
    assert replay(curve) == OUTCOMES[curve.what]


def test_the_table_in_the_documentation_is_what_the_policy_does() -> None:
    """It is printed by the script from the same curves."""
    printed = subprocess.run(
        [sys.executable, "benchmarks/extensions/idle/idle_table.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )

    assert printed.stdout in (ROOT / "docs" / "explanation" / "idle.md").read_text("utf-8")


def unused(since: float, seen: float, most: float = 0.0) -> Span:
    return Span(since, seen, most=most)


def span(begins: float, ends: float, using: Using = Using.UNUSED, most: float = 0.0) -> Span:
    return Span(begins, ends, using, most)


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([], unused(0.0, 300.0, 1.0)),
        ([span(300, 600, most=2.0)], unused(0.0, 600.0, 2.0)),
        ([span(340, 640)], unused(0.0, 640.0, 1.0)),  # the clocks of hub and node are not the same
        ([span(400, 700)], unused(400.0, 700.0)),  # a summary is missing
        ([span(300, 600, Using.USED)], None),
        ([span(300, 600, Using.UNKNOWN)], None),
        ([span(300, 600, Using.USED), span(600, 900)], unused(600.0, 900.0)),
        ([span(300, 3600)], unused(0.0, 3600.0, 1.0)),  # what the node could not send while the hub was away
    ],
)
def test_a_time_without_use_grows_with_each_summary_and_ends_with_use_doubt_or_silence(spans, expected) -> None:
    """A summary that is late counts as long as it tells of the whole time."""
    assert follow(unused(0.0, 300.0, 1.0), spans) == expected


def test_a_notice_that_is_given_after_the_last_summary_stays() -> None:
    """It puts off the stop, so that it is there for its time; it does not put off itself."""
    rule = IdleRule(gpu=600, leads=(595,), action=IdleAction.STOP)
    idle = unused(1000.0, 1010.0)
    server = IdleServer("12", gpus=True, rule=rule, using=Using.UNUSED, unused=idle, told_at=1012.0)

    assert judge(server) == Verdict(State.WARNED, since=1000.0, due_at=1607.0, warnings=1)


@pytest.mark.parametrize(("every", "due_at"), [(0.0, 1900.0), (200.0, 2000.0), (3000.0, 4600.0)])
def test_a_stop_is_told_for_the_time_of_the_summary_that_brings_it(every: float, due_at: float) -> None:
    """The use between two summaries is not known, so nothing is stopped in between."""
    rule = IdleRule(gpu=900, leads=(), action=IdleAction.STOP)
    idle = unused(1000.0, 1600.0)
    server = IdleServer("12", gpus=True, rule=rule, using=Using.UNUSED, unused=idle, every=every)

    assert judge(server) == Verdict(State.IDLE, since=1000.0, due_at=due_at)


START = 1_772_442_000.0
PLACEMENT = PlacementDocument(job_id="12", node="g1", gpus=(PlacedGpu(0, "GPU-a"), PlacedGpu(1, "GPU-b")))
RULE = {"gpu": "60min", "action": "tell", "keep": {"by": "30min", "times": 1}}


class Uses(ServerUsage):
    """What the server of a test has used."""

    def last_hour(self) -> tuple[Use, ...]:
        """All of it."""
        return tuple(self.spawner.uses)


class Server(HubSpawner):
    """A spawner of ours with a job that runs, whose GPUs are not used."""

    def __init__(self, user: str, *, held_mib: int = 400) -> None:
        super().__init__(SimpleNamespace(name=user), job=Job("12", Phase.RUNNING), ready=True)
        self.held_mib = held_mib
        self.report.placement = PLACEMENT
        self.uses: list[Use] = []
        self.server_extensions = ServerExtensions([("usage", Uses(self))])

    def unused_until(self, minute: int) -> None:
        gpus = tuple(
            GpuUse(gpu.index, gpu.uuid, None, 0.0, 0.0, 1.0, 10, 40960, self.held_mib) for gpu in PLACEMENT.gpus
        )
        self.uses.append(Use(START + 60 * minute, UsageSummary("12", 300.0, 10, 30.0, gpus=gpus)))

    def used_at(self, minute: int) -> None:
        gpus = tuple(GpuUse(gpu.index, gpu.uuid, None, 80.0, 80.0, 90.0, 10, 40960, 400) for gpu in PLACEMENT.gpus)
        self.uses.append(Use(START + 60 * minute, UsageSummary("12", 300.0, 10, 30.0, gpus=gpus)))


@pytest.fixture
def session() -> Iterator[Session]:
    with hub_session() as session:
        yield session


def hub(session: Session, *servers: Server, **rule: Any) -> IdleWatch:
    """The check in a hub that has just been started, with these servers."""
    config = Config({"GPUSlurmSpawner": {"idle": {**RULE, **rule}}})
    state = HubState()
    state.keep(HubSite(GPUSlurmSpawner(config=config)))
    for server in servers:
        server.user.settings = {KEY: state}
    users = {
        number: SimpleNamespace(name=server.user.name, spawners={"": server}) for number, server in enumerate(servers)
    }
    return IdleWatch(SimpleNamespace(db=session, users=users, tornado_settings={KEY: state}))


def known_to(watch: IdleWatch) -> IdleServers:
    """How the servers of its hub stand."""
    return state_of(watch._app.tornado_settings).of(IdleServers)


def run_watch(watch: IdleWatch, server: Server, begin: int, end: int) -> list[State]:
    """Look each five minutes, after each summary."""
    states = []
    for minute in range(begin, end + 1, 5):
        server.unused_until(minute)
        watch.run_once(START + 60 * minute + 1)
        states.append(known_to(watch)["ada", ""].verdict.state)
    return states


IDLE, WARNED, DUE = State.IDLE, State.WARNED, State.DUE


@pytest.mark.parametrize(("now", "until"), [(3300.0, 5400.0), (10800.0, 12600.0)])
def test_a_server_is_kept_from_when_it_would_be_stopped_or_from_now(now: float, until: float) -> None:
    """It would be after an hour; one that has been idle for three hours may be told first when its policy changes."""
    rule = IdleRule(action=IdleAction.STOP)
    server = IdleServer("1", gpus=True, rule=rule, using=Using.UNUSED, unused=Span(0.0, now), told_at=now)

    kept = server.with_verdict(now).prolonged(now)

    assert (kept.verdict.due_at, kept.keeps_left) == (until, 1)


def test_a_hub_that_is_restarted_goes_on_with_what_it_knew(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the time without use, and with how often the server was kept; one row is all that there is of it."""
    monkeypatch.setattr("time.time", lambda: START + 35 * 60)
    server = Server("ada")
    server.orm_spawner = orm.Spawner(name="", user=orm.User(name="ada"))
    session.add(server.orm_spawner)
    session.commit()
    before = run_watch(hub(session, server), server, 5, 35)
    keep_server(server)
    server.uses.clear()  # they were in the old hub's memory
    after = run_watch(hub(session, server), server, 40, 95)

    assert before == [IDLE] * 5 + [WARNED] * 2
    assert after == [IDLE] * 5 + [WARNED] * 6 + [DUE]
    with pytest.raises(NotKept):
        keep_server(server)
    (row,) = due_since(session.connection(), 0.0)
    assert (row.since, row.seen, row.due_at) == (START, START + 5700, START + 5700)
    assert (row.gpus, row.keeps, row.kept, row.action) == (2, 1, 2100.0, "tell")


def test_a_server_of_a_course_is_judged_by_the_profile_that_it_has(session: Session) -> None:
    """Of several that a session has; the other one's policy is another."""
    profiles = [
        {"display_name": slug, "slug": slug, "idle": {"gpu": gpu}} for slug, gpu in (("first", "60min"), ("next", None))
    ]
    server = Server("ada")
    watch = hub(session, server)
    config = Config({"GPUSlurmSpawner": {"idle": RULE}})
    watch._app.tornado_settings[KEY].keep(HubSite(GPUProfilesSpawner(config=config, profiles=profiles)))
    states = {}
    for base in ("first", "next"):
        server.chosen = ChosenProfile("course-deep", "slurm", base)
        states[base] = run_watch(watch, server, 5, 5)
    assert states == {"first": [IDLE], "next": [State.EXEMPT]}


def test_a_pass_over_many_servers_writes_once(session: Session) -> None:
    """One transaction and one statement for all of them, and none where nothing is new."""
    servers = [Server(f"u{number:02}") for number in range(50)]
    watch = hub(session, *servers)
    for server in servers:
        for minute in (5, 10, 15):
            server.unused_until(minute)
    watch.run_once(START + 901)
    commits: list[object] = []
    event.listen(session, "after_commit", lambda _: commits.append(1))
    updates: list[int] = []

    @event.listens_for(session.get_bind(), "before_cursor_execute")
    def count(_connection: Any, _cursor: Any, statement: str, values: Any, _context: Any, many: bool) -> None:
        if statement.startswith("UPDATE"):
            updates.append(len(values) if many else 1)

    for server in servers:
        server.unused_until(20)
    watch.run_once(START + 1201)
    watch.run_once(START + 1261)

    assert (len(known_to(watch)), len(commits), updates) == (50, 1, [50])


def test_a_server_that_has_ended_is_forgotten_and_its_row_is_closed(session: Session) -> None:
    """The time without use lasted until then."""
    server = Server("ada")
    watch = hub(session, server)
    run_watch(watch, server, 5, 60)
    server.ready = False
    watch.run_once(START + 3700)

    (row,) = due_since(session.connection(), 0.0)
    assert (known_to(watch), row.over, row.seen) == ({}, True, START + 3700)


@about_sqlite
@pytest.mark.parametrize("end", ["it has ended", "it is used again"])
def test_a_row_that_could_not_be_closed_is_closed_with_the_next_pass(session: Session, end: str) -> None:
    """The database takes no changes just when a time without use is over, which only the row still says."""
    server = Server("ada")
    watch = hub(session, server)
    run_watch(watch, server, 5, 60)
    if end == "it has ended":
        server.ready = False
    else:
        server.used_at(65)
    session.execute(text("PRAGMA query_only = ON"))
    with pytest.raises(OperationalError):
        watch.run_once(START + 3901)
    session.execute(text("PRAGMA query_only = OFF"))
    watch.run_once(START + 3961)

    assert [row.over for row in due_since(session.connection(), 0.0)] == [True]
    assert IdleTimes(session).to_take_up() == []


LEFT_OPEN = {
    "its server ended while the hub was down": ("11", START + 3000),
    "nothing was heard of its server for hours": ("12", START - 7000),
}


@pytest.mark.parametrize(("job", "seen"), LEFT_OPEN.values(), ids=LEFT_OPEN)
def test_a_row_that_a_hub_has_left_open_is_closed_by_the_next_hub(session: Session, job: str, seen: float) -> None:
    """Where no server goes on with it."""
    left = IdleTime("ada", "", "k80", job, 2, START - 9000, seen, due_at=START - 8000)
    (left,) = IdleTimes(session).write([left])
    hub(session, Server("ada")).run_once(START + 3600)

    assert due_since(session.connection(), 0.0) == [replace(left, over=True)]


def test_a_server_whose_stop_has_failed_was_kept_as_often_as_before(session: Session) -> None:
    """While it was being stopped it was not looked at, and not forgotten."""
    server = Server("ada")
    watch = hub(session, server)
    run_watch(watch, server, 5, 35)
    keep_server(server)
    left = known_to(watch)["ada", ""].keeps_left
    server.pending = "stop"
    watch.run_once(START + 2160)
    server.pending = None
    run_watch(watch, server, 40, 40)

    assert known_to(watch)["ada", ""].keeps_left == left


def test_the_record_of_a_stop_says_what_was_seen(session: Session) -> None:
    """For the card and, as a value, for programs."""
    server = Server("ada", held_mib=12288)
    watch = hub(session, server, gpu="30min")
    run_watch(watch, server, 5, 60)
    record = idle_record(server_of(server), known_to(watch)["ada", ""], at=START + 3660)

    assert (record.cause, record.stopped, record.at) == (Cause(Kind.IDLE), True, START + 3660)
    assert words_of(record, title="Two A100s").sentence == (
        "Two A100s was stopped at {time} because it was idle: its GPUs had not been used for 1 h "
        "(at most 1 %, 24 GiB of GPU memory held); job 12 released 2 GPUs."
    )


async def test_the_search_and_the_deletion_of_old_times_go_on_as_long_as_the_hub_runs(session: Session) -> None:
    """Each is a loop of its own; a hub that starts no Slurm jobs has neither."""
    before = asyncio.all_tasks()
    for spawner_class in (GPUSlurmSpawner, SimpleLocalProcessSpawner):
        app = JupyterHub(spawner_class=spawner_class)
        app.db = session
        set_up(app)
        site_of_hub(app)
        begin_idle(app)
    loops = asyncio.all_tasks() - before
    for loop in loops:
        loop.cancel()

    assert sorted(loop.get_name() for loop in loops) == [
        "The deletion of old idle times",
        "The search for idle servers",
    ]
