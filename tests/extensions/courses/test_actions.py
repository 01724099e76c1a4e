"""What instructors do for the people of a course, without a hub."""
# ruff: noqa: ASYNC110 - what is waited for has no event

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from jupyterhub import orm, roles
from jupyterhub.utils import make_ssl_context
from sqlalchemy.exc import IntegrityError

from jupyterhub_gpuspawner.errors import RequestError
from jupyterhub_gpuspawner.extension import Extension
from jupyterhub_gpuspawner.extensions.courses import actions
from jupyterhub_gpuspawner.extensions.courses.actions import (
    NO_SESSION,
    Answer,
    CourseActions,
    Outcome,
    Pace,
    Result,
    ServiceAccount,
    shown_until,
)
from jupyterhub_gpuspawner.extensions.courses.ahead import StartsAhead, unvisited_record
from jupyterhub_gpuspawner.extensions.courses.book import HubCourse
from jupyterhub_gpuspawner.extensions.courses.course import CourseDate
from jupyterhub_gpuspawner.extensions.courses.folder import CourseFile
from jupyterhub_gpuspawner.extensions.courses.page import keep_actions, latest_actions
from jupyterhub_gpuspawner.extensions.courses.participants import (
    RETENTION_SECONDS,
    CourseStart,
    CourseStarts,
    ServerKey,
    Stage,
    State,
)
from jupyterhub_gpuspawner.extensions.courses.rights import GPUCourses
from jupyterhub_gpuspawner.hub.extension import HubExtension, ServerPart
from jupyterhub_gpuspawner.hub.extensions import HubExtensions, Part
from jupyterhub_gpuspawner.hub.job.cause import Cause
from jupyterhub_gpuspawner.hub.job.cause import Kind as CauseKind
from jupyterhub_gpuspawner.hub.job.ending import Ending
from jupyterhub_gpuspawner.hub.job.ending_words import words_of
from jupyterhub_gpuspawner.hub.jupyterhub_compat import add_user, set_last_start
from jupyterhub_gpuspawner.hub.site.state import KEY
from jupyterhub_gpuspawner.hub.spawners.profiles import ChosenProfile
from jupyterhub_gpuspawner.hub.spawners.server import Server
from tests.fixtures.databases import hub_session
from tests.standins.hub_spawner import HubSpawner

COURSE = HubCourse("deep", CourseFile("deep"), ("ada", "bob", "eve"), unknown=("eve",))


def at(day: int, hour: int) -> datetime:
    """A full hour of March 2026."""
    return datetime(2026, 3, day, hour, tzinfo=timezone.utc)


SESSIONS = (CourseDate(at(2, 9), at(2, 12), "2026-03-02"), CourseDate(at(3, 9), at(3, 12), "2026-03-03"))
EXPIRES = {
    "in a session": (at(2, 10), at(2, 12)),
    "before the first session": (at(1, 10), at(2, 12)),
    "between two sessions": (at(2, 13), at(3, 12)),
    "after the last session": (at(3, 12), at(4, 12)),
}


@pytest.mark.parametrize(("now", "until"), EXPIRES.values(), ids=EXPIRES.keys())
def test_a_message_expires_with_the_session(now: datetime, until: datetime) -> None:
    """It is shown to the end of the session under way, else of the next one, else for a day."""
    assert shown_until(replace(COURSE, sessions=SESSIONS), now.timestamp()) == until.timestamp()


@dataclass
class Account:
    """Answers as JupyterHub would, one after the other; the last one is repeated."""

    answers: Sequence[Answer] = (Answer(201),)
    requests: list[tuple[str, str]] = field(default_factory=list)
    effect: Callable[[], None] = lambda: None
    """What happens in the hub at a request."""

    async def start(self, server: ServerKey, options: object) -> Answer:  # noqa: ARG002 - the service's signature
        """Record the request."""
        return self._answered("start", server)

    async def stop(self, server: ServerKey) -> Answer:
        """Record the request."""
        return self._answered("stop", server)

    def _answered(self, what: str, server: ServerKey) -> Answer:
        self.requests.append((what, str(server)))
        self.effect()
        return self.answers[min(len(self.requests), len(self.answers)) - 1]


OF_COURSE = ChosenProfile("course-deep", "slurm")


def time_of(spawner: Any, _server: Any) -> Iterator[ServerPart]:
    """The part of a server that can be extended."""
    if hasattr(spawner, "time"):
        yield ServerPart("time", extend=spawner.time.extend)


EXTENDING = HubExtensions()
EXTENDING.parts = (Part(Extension("time", "Gives servers more time."), HubExtension(parts_of=time_of)),)
"""The extensions of a hub whose servers can be extended."""


class StandInSpawner(HubSpawner):
    """A server whose extensions and ending can be set."""

    time: Time

    async def poll_and_notify(self) -> int | None:  # type: ignore[override]
        """It runs."""
        return None


@pytest.fixture
def app() -> Iterator[Any]:
    """A hub that knows ada and bob."""
    with hub_session() as session:
        for role in roles.get_default_roles():
            roles.create_role(session, role)
        hub = SimpleNamespace(db=session, users={})
        for name in ("ada", "bob"):
            user = SimpleNamespace(name=name, spawners={}, settings={KEY: EXTENDING.state})
            user.spawners[""] = StandInSpawner(user, chosen=OF_COURSE)
            hub.users[add_user(hub, name).id] = user
        yield hub


def actions_of(app: Any, account: Account, every: float = 0.1) -> CourseActions:
    """The actions of this hub."""
    return CourseActions(app, GPUCourses(every=every), account)  # type: ignore[arg-type]


def spawner(app: Any, name: str) -> StandInSpawner:
    """The default server of a user."""
    server: StandInSpawner = next(user for user in app.users.values() if user.name == name).spawners[""]
    return server


class Time:
    """Gives a server any time."""

    by: str | None = None

    async def extend(self, minutes: int | None, by: str) -> int:
        """So many minutes, or an hour; returns the seconds."""
        self.by = by
        return 60 * (minutes or 60)


DEEP = replace(COURSE, file=SimpleNamespace(course=SimpleNamespace(name="Deep")))  # type: ignore[arg-type]
"""COURSE with a good file."""


def with_lab(app: Any) -> tuple[StandInSpawner, StandInSpawner]:
    """Ada has her thesis in the default server, and the course in a named one."""
    thesis = spawner(app, "ada")
    thesis.chosen = ChosenProfile("k80", "slurm")
    lab = StandInSpawner(thesis.user, name="lab", chosen=OF_COURSE)
    thesis.user.spawners["lab"] = lab
    for server in (thesis, lab):
        server.ready, server.time = True, Time()
    return thesis, lab


async def test_a_stop_ends_the_server_of_the_course_and_not_the_default_one(app: Any) -> None:
    """It is the one that the tile shows."""
    thesis, lab = with_lab(app)
    account = Account([Answer(204)])
    actions = actions_of(app, account)

    assert actions.stop(DEEP, ["ada"], by="carl") == (Outcome("ada", Result.BEGUN, "The server is being stopped."),)
    await done(actions)

    assert (account.requests, thesis.ended.last, lab.ended.last is not None) == ([("stop", "ada/lab")], None, True)


async def test_an_extension_is_of_the_server_of_the_course_and_not_of_the_default_one(app: Any) -> None:
    """It is the one that the tile shows."""
    thesis, lab = with_lab(app)

    outcomes = await actions_of(app, Account()).extend(DEEP, 30, ["ada"], by="carl")

    assert outcomes == (Outcome("ada", Result.DONE, "The server has 30 min more."),)
    assert (thesis.time.by, lab.time.by) == (None, "carl")


class SlowTime(Time):
    """Slurm answers when it is told to."""

    def __init__(self) -> None:
        self.calls = 0
        self.answers = asyncio.Event()

    async def extend(self, minutes: int | None, by: str) -> int:
        """An hour, later; or a refusal."""
        self.calls += 1
        await self.answers.wait()
        if by == "nobody":
            raise RequestError("Only a running server can be extended.", field="minutes")
        return await super().extend(minutes, by)


async def test_who_extends_many_servers_waits_for_some_seconds_only(app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on, a second click does not do it twice, and what was refused after the answer is told."""
    monkeypatch.setattr("jupyterhub_gpuspawner.extensions.courses.actions.EXTEND_PATIENCE", 0.0)
    _, lab = with_lab(app)
    lab.time = slow = SlowTime()
    actions, late = actions_of(app, Account()), asyncio.get_running_loop().create_future()

    first = await actions.extend(DEEP, None, ["ada"], by="nobody", on_late=late.set_result)
    second = await actions.extend(DEEP, None, ["ada"], by="nobody")
    slow.answers.set()

    assert (first, second) == (
        (Outcome("ada", Result.BEGUN, "The server is being given more time."),),
        (Outcome("ada", Result.UNCHANGED, "The server is being given more time already."),),
    )
    assert (await late, slow.calls) == (
        (Outcome("ada", Result.REFUSED, "Only a running server can be extended."),),
        1,
    )


async def test_an_instructor_who_extends_their_own_server_is_its_user(app: Any) -> None:
    """The limits of its profile hold for them, too: a course of one's own is no way around them."""
    _, lab = with_lab(app)

    await actions_of(app, Account()).extend(DEEP, 30, ["ada"], by="ada")

    assert lab.time.by == ""


async def test_nobody_who_has_the_course_in_a_named_server_gets_a_second_one(app: Any) -> None:
    """Neither by a start for everybody nor ahead of the session."""
    thesis, _ = with_lab(app)
    thesis.ready = False
    course, account = in_session(unvisited_after=7200.0), Account()
    actions = actions_of(app, account)
    runs = (Outcome("ada", Result.UNCHANGED, "A server is running or starting already."),)

    assert actions.start(course, ["ada"]) == runs
    await StartsAhead(app, SimpleNamespace(), actions).start_due(course)  # type: ignore[arg-type]
    await done(actions)

    left = CourseStarts(app.db).find("deep", "today", "ada").get("ada")
    assert (account.requests, left is not None and left.stage) == ([("start", "bob/")], Stage.LEFT)


async def test_what_was_asked_for_one_server_is_not_done_to_another(app: Any) -> None:
    """The course's server has ended since the page was made, and what is left is the thesis."""
    thesis, lab = with_lab(app)
    lab.ready = False
    account = Account([Answer(204)])
    actions = actions_of(app, account)
    nothing = (Outcome("ada", Result.UNCHANGED, "No server is running."),)
    refused = (Outcome("ada", Result.REFUSED, "ada has another server now: look at the course again."),)

    assert [actions.stop(DEEP, only, by="carl") for only in (["ada/lab"], ["ada"], ["ada/"])] == [
        nothing,
        nothing,
        refused,
    ]
    assert await actions.extend(DEEP, 30, ["ada/lab"], by="carl") == nothing
    await done(actions)

    assert (account.requests, thesis.time.by) == ([], None)


async def test_a_server_of_something_else_is_left_alone_and_is_in_the_way_of_the_courses(app: Any) -> None:
    """Nobody stops it, extends it, or starts another one; neither by hand nor ahead of the session."""
    thesis, _ = with_lab(app)
    del thesis.user.spawners["lab"]
    course, account = in_session(unvisited_after=7200.0), Account()
    actions = actions_of(app, account)
    remedy = "they must stop it before the course's can be started."
    refusal = Outcome("ada", Result.REFUSED, f"ada has another server, which is not of this course: {remedy}")
    nothing = Outcome("ada", Result.UNCHANGED, "No server is running.")

    assert actions.start(course, ["ada"]) == (refusal,)
    assert actions.stop(course, ["ada"], by="carl") == (nothing,)
    assert await actions.extend(course, 30, ["ada"], by="carl") == (nothing,)
    await StartsAhead(app, SimpleNamespace(), actions).start_due(course)  # type: ignore[arg-type]
    await done(actions)

    left = CourseStarts(app.db).find("deep", "today", "ada").get("ada")
    assert (account.requests, left is not None and left.stage) == ([("start", "bob/")], Stage.LEFT)


async def test_a_server_that_became_another_before_its_turn_to_be_stopped_is_left(app: Any) -> None:
    """Its user has chosen something else since the click."""
    _, lab = with_lab(app)
    account = Account([Answer(204)])
    actions = actions_of(app, account)
    actions.stop(DEEP, ["ada"], by="carl")
    lab.chosen = ChosenProfile("k80", "slurm")
    await done(actions)

    assert (account.requests, lab.ended.last) == ([], None)


def test_the_activity_of_a_participant_is_that_of_the_server_that_is_meant(app: Any) -> None:
    """Activity of their other servers is no sign of a visit."""
    ada = orm.User.find(app.db, "ada")
    times = {"": at(2, 11), "lab": at(2, 10)}
    for name, moment in times.items():
        ada._orm_spawners.append(orm.Spawner(name=name, last_activity=moment.replace(tzinfo=None)))
    app.db.commit()

    activity = actions_of(app, Account()).last_activity([ServerKey("ada", "lab"), ServerKey("bob")])

    assert activity == {"ada": at(2, 10).timestamp()}


async def done(actions: CourseActions) -> None:
    """Wait until nothing is under way."""
    while any(actions.pace.kind(COURSE.slug, name) for name in COURSE.people):
        await asyncio.sleep(0.01)


def stages(app: Any) -> dict[str, Stage]:
    """The recorded starts."""
    return {name: start.stage for name, start in CourseStarts(app.db).find("deep", NO_SESSION).items()}


async def test_a_hub_that_has_just_been_started_asks_again_when_it_has_its_account() -> None:
    """Until the courses are read it could start nothing."""
    account = ServiceAccount(SimpleNamespace(), 20)
    answer = await account.start(ServerKey("ada"), {})
    assert (answer.status, answer.is_success, answer.retry_after) == (429, False, 6.0)


async def test_those_who_can_be_started_are_started(app: Any) -> None:
    """One who runs is left; one whom the hub does not know, or who is not in the course, is refused."""
    account = Account()
    actions = actions_of(app, account)
    spawner(app, "bob").ready = True

    outcomes = actions.start(COURSE, ["ada", "bob", "eve", "zoe", "ada"])
    await done(actions)

    assert outcomes == (
        Outcome("ada", Result.BEGUN, "The server is being started."),
        Outcome("bob", Result.UNCHANGED, "A server is running or starting already."),
        Outcome("eve", Result.REFUSED, "JupyterHub does not know eve yet: they must sign in once."),
        Outcome("zoe", Result.REFUSED, "zoe is not on the roster of this course."),
    )
    assert (account.requests, stages(app)) == ([("start", "ada/")], {"ada": Stage.STARTED})
    assert actions.start(COURSE, []) == ()


ANSWERS: dict[str, tuple[Sequence[Answer], int, Stage, str]] = {
    "it is ready": ([Answer(201)], 1, Stage.STARTED, ""),
    "its job is not submitted yet": ([Answer(202)], 1, Stage.ASKED, ""),
    "the limit is reached for a moment": (
        [Answer(429, "busy", 0.0), Answer(429, "busy", 0.0), Answer(201)],
        3,
        Stage.STARTED,
        "",
    ),
    "the hub is full": ([Answer(429, "Active user limit exceeded.")], 1, Stage.FAILED, "Active user limit exceeded."),
    "it is refused": ([Answer(400, "No such profile.")], 1, Stage.FAILED, "No such profile."),
}


@pytest.mark.parametrize(("answers", "request_count", "stage", "fault"), ANSWERS.values(), ids=ANSWERS.keys())
async def test_what_came_of_a_start_is_recorded(
    answers: Sequence[Answer], request_count: int, stage: Stage, fault: str, app: Any
) -> None:
    """JupyterHub's time to wait is kept; any other refusal is a failure, with its sentence."""
    account = Account(answers)
    actions = actions_of(app, account)

    actions.start(COURSE, ["ada"])
    await done(actions)

    start = CourseStarts(app.db).find("deep", NO_SESSION, "ada").get("ada")
    assert start is not None
    assert (len(account.requests), start.stage, start.fault, start.tries) == (request_count, stage, fault, 1)


@pytest.mark.parametrize("answer", [Answer(202), Answer(500, "The proxy is away.")], ids=["at once", "an error"])
async def test_a_start_whose_job_is_pending_has_begun(answer: Answer, app: Any) -> None:
    """Whatever JupyterHub answered."""
    ada = spawner(app, "ada")

    def submit() -> None:
        ada.pending, ada.watch.job_id = "spawn", "7"

    actions = actions_of(app, Account([answer], effect=submit))

    actions.start(COURSE, ["ada"])
    await done(actions)

    assert stages(app) == {"ada": Stage.STARTED}


STOPS = {"meanwhile": (60.0, Stage.LEFT), "yesterday": (-86400.0, Stage.FAILED)}


@pytest.mark.parametrize(("after", "stage"), STOPS.values(), ids=STOPS.keys())
async def test_a_start_that_its_user_stopped_is_no_failure(after: float, stage: Stage, app: Any) -> None:
    """It is not tried again; one that fails after a stop of yesterday is."""
    actions = actions_of(app, Account([Answer(500, "cancelled")]))
    spawner(app, "ada").ended.last = Ending(Cause(CauseKind.STOPPED_BY_USER), at=time.time() + after)

    actions.start(COURSE, ["ada"])
    await done(actions)

    assert stages(app) == {"ada": stage}


async def test_a_stop_cancels_the_start_that_was_to_come(app: Any) -> None:
    """And it is not started ahead later; a start that had failed is not tried again, either."""
    account = Account()
    actions = actions_of(app, account, every=60)
    CourseStarts(app.db).keep("deep", NO_SESSION, CourseStart("bob", Stage.FAILED, 1))

    actions.start(COURSE, ["ada"])
    outcomes = actions.stop(COURSE, by="carl")

    assert outcomes == (
        Outcome("ada", Result.DONE, "The start that was to come is cancelled."),
        Outcome("bob", Result.UNCHANGED, "No server is running."),
        Outcome("eve", Result.UNCHANGED, "No server is running."),
    )
    assert (account.requests, stages(app)) == ([], {"ada": Stage.LEFT, "bob": Stage.LEFT})


async def test_a_stop_cancels_the_start_that_waits_for_a_limit_of_jupyterhub(app: Any) -> None:
    """JupyterHub is not asked again, and the record says that nothing is started."""
    account = Account([Answer(429, "busy", 0.0), Answer(201)])
    actions = actions_of(app, account)
    requested = asyncio.Event()
    account.effect = requested.set

    actions.start(COURSE, ["ada"])
    await requested.wait()
    actions.stop(COURSE, ["ada"], by="carl")
    await done(actions)

    assert (account.requests, stages(app)) == ([("start", "ada/")], {"ada": Stage.LEFT})


async def test_a_stop_cancels_the_start_that_is_under_way_and_ends_its_job(app: Any) -> None:
    """JupyterHub shows a server whose start was cancelled as running, so it is stopped as well."""
    account = Account([Answer(204)])
    ada = spawner(app, "ada")
    ada.pending = "spawn"
    start = asyncio.get_running_loop().create_future()

    def left(_start: object) -> None:
        ada.pending, ada.ready = None, True

    start.add_done_callback(left)
    set_last_start(ada, start)
    actions = actions_of(app, account)

    actions.stop(COURSE, ["ada"], by="carl")
    await done(actions)

    assert (start.cancelled(), account.requests) == (True, [("stop", "ada/")])


async def test_a_stopped_server_says_by_whom(app: Any) -> None:
    """Where JupyterHub refuses the stop, it says nothing."""
    actions = actions_of(app, Account([Answer(204), Answer(403, "no")]))
    for name in ("ada", "bob"):
        spawner(app, name).ready = True

    actions.stop(COURSE, ["ada", "bob"], by="carl")
    await done(actions)

    ending, no_ending = spawner(app, "ada").ended.last, spawner(app, "bob").ended.last
    assert (ending is not None and (ending.cause, ending.by), no_ending) == (
        (Cause(CauseKind.STOPPED_BY_INSTRUCTOR), "carl"),
        None,
    )
    assert actions.stop(COURSE, ["eve"], by="carl") == (Outcome("eve", Result.UNCHANGED, "No server is running."),)


def in_session(*, unvisited_after: float) -> HubCourse:
    """A course whose session began an hour ago, and that starts servers ahead."""
    now = datetime.now(timezone.utc)
    session = CourseDate(now - timedelta(hours=1), now + timedelta(hours=1), "today")
    settings = SimpleNamespace(name="Deep", start_ahead=600.0, unvisited_after=unvisited_after)
    return replace(COURSE, file=SimpleNamespace(course=settings), sessions=(session,))  # type: ignore[arg-type]


def unvisited(app: Any) -> HubCourse:
    """A course in which nobody has opened the servers of ada and bob, and the time for that is over."""
    app.update_last_activity = AsyncMock()
    begun = time.time() - 4000
    for name in ("ada", "bob"):
        spawner(app, name).ready = True
        CourseStarts(app.db).keep("deep", "today", CourseStart(name, Stage.STARTED, 1, begun, begun))
    return in_session(unvisited_after=0.0)


async def test_unvisited_servers_whose_turn_had_not_come_are_stopped_by_the_next_hub(app: Any) -> None:
    """The hub is killed while one is stopped and the other's turn is a minute away."""
    course, account = unvisited(app), Account([Answer(204)])
    stopped = asyncio.Event()
    account.effect = stopped.set
    await StartsAhead(app, SimpleNamespace(), actions_of(app, account, every=60)).start_due(course)  # type: ignore[arg-type]
    await stopped.wait()
    spawner(app, "ada").ready = False

    actions = actions_of(app, account)
    await StartsAhead(app, SimpleNamespace(), actions).start_due(course)  # type: ignore[arg-type]
    await done(actions)

    assert account.requests == [("stop", "ada/"), ("stop", "bob/")]
    starts = CourseStarts(app.db).find("deep", "today")
    assert {start.stage for start in starts.values()} == {Stage.UNVISITED}


def test_a_server_that_nobody_opened_says_so_with_its_course() -> None:
    """Whatever is in the course's title."""
    course = replace(COURSE, file=SimpleNamespace(course=SimpleNamespace(name="Deep {learning}")))  # type: ignore[arg-type]
    ending = unvisited_record(course, Server(job_id="7", ready=True), at=9.0)

    assert (ending.cause, words_of(ending, title="K80").sentence) == (
        Cause(CauseKind.CULLED),
        "Nobody opened this server after Deep {learning} had begun, so it was stopped at {time}; job 7 was cancelled.",
    )


async def test_starts_by_hand_whose_turn_had_not_come_are_made_by_the_next_hub(app: Any) -> None:
    """The hub is killed while one is asked for and the other's turn is a minute away."""
    account = Account([Answer(201)])
    begun = asyncio.Event()
    account.effect = begun.set
    killed = actions_of(app, account, every=60)
    killed.start(COURSE, ["ada", "bob"])
    await begun.wait()

    actions = actions_of(app, account)
    await StartsAhead(app, SimpleNamespace(), actions).start_due(COURSE)  # type: ignore[arg-type]
    await done(actions)

    assert (account.requests, stages(app)) == (
        [("start", "ada/"), ("start", "bob/")],
        {"ada": Stage.STARTED, "bob": Stage.STARTED},
    )


async def test_a_server_that_is_visited_before_its_turn_is_not_stopped(app: Any) -> None:
    """Many servers are stopped one after the other, which takes minutes."""
    course, account = unvisited(app), Account([Answer(204)])
    actions = actions_of(app, account)
    await StartsAhead(app, SimpleNamespace(), actions).start_due(course)  # type: ignore[arg-type]
    bob = app.db.query(orm.User).filter_by(name="bob").one()
    bob.last_activity = datetime.now(timezone.utc).replace(tzinfo=None) - timedelta(minutes=5)
    app.db.commit()
    await done(actions)

    stages = {name: start.stage for name, start in CourseStarts(app.db).find("deep", "today").items()}
    assert (account.requests, stages) == ([("stop", "ada/")], {"ada": Stage.UNVISITED, "bob": Stage.STARTED})


START_QUEUE, STOP_QUEUE = ("deep", State.STARTING), ("deep", State.STOPPING)


class Log:
    """Work that can be held up, and what of it has begun and ended."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.gate = asyncio.Event()

    async def work(self, name: str) -> None:
        """Wait at the gate."""
        self.begun.append(name)
        await self.gate.wait()
        self.ended.append(name)


async def until(pace: Pace, *people: str, course: str = "deep") -> None:
    """Wait until a course has no work for these people."""
    while any(pace.kind(course, person) for person in people):
        await asyncio.sleep(0)


async def test_no_more_are_under_way_than_is_allowed() -> None:
    """The others wait until one has ended."""
    log, pace = Log(), Pace(0.0, 2)
    for name in ("ada", "bob", "eve"):
        pace.put(*START_QUEUE, name, lambda name=name: log.work(name))  # type: ignore[misc]
    while len(log.begun) < 2:
        await asyncio.sleep(0)
    for _ in range(20):
        await asyncio.sleep(0)
    assert log.begun == ["ada", "bob"]

    log.gate.set()
    await until(pace, "ada", "bob", "eve")

    assert log.ended == ["ada", "bob", "eve"]


async def test_work_that_has_not_begun_is_replaced_or_dropped() -> None:
    """The last word for a person counts; a failure of one does not stop the others."""
    log, pace = Log(), Pace(0.0, 1)
    log.gate.set()

    async def fails() -> None:
        raise RuntimeError

    pace.put(*START_QUEUE, "ada", fails)
    pace.put(*START_QUEUE, "bob", lambda: log.work("start bob"))
    pace.put(*STOP_QUEUE, "bob", lambda: log.work("stop bob"))
    pace.put(*START_QUEUE, "eve", lambda: log.work("start eve"))
    assert (pace.drop("deep", "eve"), pace.drop("deep", "eve"), pace.kind("deep", "eve")) == (True, False, None)

    await until(pace, "ada", "bob")

    assert log.ended == ["stop bob"]


async def test_two_pieces_for_one_person_are_not_done_at_once() -> None:
    """A stop that is asked for while a start is under way comes after it."""
    log, pace = Log(), Pace(0.001, 5)
    pace.put(*START_QUEUE, "ada", lambda: log.work("start"))
    while not log.begun:
        await asyncio.sleep(0)
    pace.put(*STOP_QUEUE, "ada", lambda: log.work("stop"))
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert log.begun == ["start"]

    log.gate.set()
    await until(pace, "ada")

    assert log.ended == ["start", "stop"]


async def test_a_course_drops_nothing_that_another_course_wants_for_the_same_person() -> None:
    """Somebody may be in both; each course sees its own work alone."""
    log, pace = Log(), Pace(60.0, 1)
    for person in ("ada", "zoe"):
        pace.put(*START_QUEUE, person, lambda person=person: log.work(f"start {person}"))  # type: ignore[misc]

    kinds = [pace.kind(course, "zoe") for course in ("deep", "maths")]
    dropped = [pace.drop(course, "zoe") for course in ("maths", "deep")]

    assert (kinds, dropped) == ([State.STARTING, None], [False, True])


async def test_neither_a_stop_nor_another_course_waits_for_the_starts_of_a_course() -> None:
    """Even where no more starts may be under way, and the next one's turn is a minute away."""
    log, pace = Log(), Pace(60.0, 2)
    log.gate.set()
    for person in ("ada", "bob", "eve"):
        pace.put(*START_QUEUE, person, lambda person=person: log.work(f"start {person}"))  # type: ignore[misc]
    pace.put(*STOP_QUEUE, "zoe", lambda: log.work("stop zoe"))
    pace.put("maths", State.STARTING, "kim", lambda: log.work("start kim"))

    await until(pace, "ada", "zoe")
    await until(pace, "kim", course="maths")

    assert (log.ended, [pace.kind("deep", person) for person in ("ada", "bob")]) == (
        ["start ada", "stop zoe", "start kim"],
        [None, State.STARTING],
    )


class API:
    """JupyterHub's REST API, as far as a connection is concerned."""

    def __init__(self, answer: bytes = b"", *, hangs: bool = False, wait_for: int = 0, **settings: Any) -> None:
        """``wait_for`` requests are held until all of them are there; ``settings`` are those of ``internal_ssl``."""
        self.answer, self.hangs, self.wait_for, self.settings = answer, hangs, wait_for, settings
        self.paths: list[str] = []
        self.all_there = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.paths.append((await reader.readuntil(b"\r\n\r\n")).decode().split()[1])
        if len(self.paths) >= self.wait_for:
            self.all_there.set()
        await self.all_there.wait()
        if self.hangs:
            await reader.read()  # until the client gives up
        writer.write(self.answer)
        writer.close()

    @asynccontextmanager
    async def account(self, concurrency: int = 20, **options: Any) -> AsyncIterator[ServiceAccount]:
        listening = await asyncio.start_server(self.serve, "127.0.0.1", 0, **options)
        async with listening:
            scheme, port = "https" if options else "http", listening.sockets[0].getsockname()[1]
            hub = SimpleNamespace(api_url=f"{scheme}://127.0.0.1:{port}/hub/api")
            account = ServiceAccount(
                SimpleNamespace(hub=hub, internal_ssl=bool(options), **self.settings),
                concurrency,
            )
            vars(account)["_token"] = "t" * 32  # as the first update of the courses makes it
            yield account


@pytest.mark.parametrize("hangs", [True, False], ids=["hangs", "closes the connection"])
async def test_no_answer_is_status_599(hangs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that what was noted for a stop is taken back, and a start is tried again."""
    monkeypatch.setattr(actions, "TIME_LIMIT", 0.5)

    async with API(hangs=hangs).account() as account:
        answer = await account.stop(ServerKey("ada"))

    assert (answer.status, answer.is_success) == (599, False)


async def test_as_many_starts_are_under_way_as_the_setting_says() -> None:
    """JupyterHub holds each for up to ten seconds; tornado's shared client has ten requests for the whole hub."""
    api = API(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", wait_for=15)
    async with api.account(15) as account:
        starts = asyncio.gather(*(account.start(ServerKey(f"u{number}", "lab"), {}) for number in range(15)))
        answers = await asyncio.wait_for(starts, 30)

    paths = sorted(f"/hub/api/users/u{number}/servers/lab" for number in range(15))
    assert (set(answers), sorted(api.paths)) == ({Answer(201)}, paths)


async def test_with_internal_ssl_the_account_shows_the_hubs_certificate(tmp_path: Path) -> None:
    """And accepts an answer only of who has one of the same authority."""
    certificates = pytest.importorskip("certipy").Certipy(store_dir=str(tmp_path))
    certificates.create_ca("authority")
    certificates.create_signed_pair("hub", "authority", alt_names=["IP:127.0.0.1", "DNS:localhost"])
    hub, authority = (certificates.store.get_record(name)["files"] for name in ("hub", "authority"))
    names = {"internal_ssl_key": hub["key"], "internal_ssl_cert": hub["cert"], "internal_ssl_ca": authority["cert"]}
    context = make_ssl_context(hub["key"], hub["cert"], authority["cert"], purpose=ssl.Purpose.CLIENT_AUTH)

    api = API(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n", **names)
    async with api.account(ssl=context) as account:
        assert await account.stop(ServerKey("ada")) == Answer(204)


STARTS = {name: CourseStart(name, Stage.ASKED, 1, 1000.0) for name in ("ada", "bob")}


def test_starts_are_written_in_the_place_of_those_before() -> None:
    """Those of other people and of other sessions stay."""
    with hub_session() as session:
        starts = CourseStarts(session)
        starts.keep("deep", "monday", *STARTS.values())
        starts.keep("deep", "tuesday", STARTS["ada"])
        begun = {name: CourseStart(name, Stage.STARTED, 1, 1000.0, 1100.0) for name in ("ada", "eve")}

        starts.keep("deep", "monday", *begun.values())
        starts.keep("deep", "monday")

        assert starts.find("deep", "monday") == {**STARTS, **begun}
        assert starts.find("deep", "tuesday") == {"ada": STARTS["ada"]}


def test_of_starts_that_cannot_all_be_written_none_is() -> None:
    """Those of before are still there, and the session can be used."""
    with hub_session() as session:
        starts = CourseStarts(session)
        starts.keep("deep", "monday", *STARTS.values())
        without_time = CourseStart("eve", Stage.LEFT, asked_at=None)  # type: ignore[arg-type]

        with pytest.raises(IntegrityError):
            starts.keep("deep", "monday", CourseStart("ada", Stage.VISITED), without_time)

        assert starts.find("deep", "monday") == STARTS


def test_old_starts_are_forgotten() -> None:
    """They name people, and are kept for thirty days."""
    with hub_session() as session:
        now, starts = time.time(), CourseStarts(session)
        new = CourseStart("ben", Stage.STARTED, asked_at=now)
        starts.keep("deep", "monday", CourseStart("ada", Stage.STARTED, asked_at=now - RETENTION_SECONDS - 60), new)
        starts.forget_old()

        assert starts.find("deep", "monday") == {"ben": new}


def test_the_last_actions_of_a_course_outlive_the_hub() -> None:
    """Newest first, also of those done at one time; what is a month old goes, and other courses have their own."""
    now = time.time()
    with hub_session() as session:
        keep_actions(session, "deep", ["ada is starting 3 servers."], now - RETENTION_SECONDS - 60)
        keep_actions(session, "deep", ["ada stopped 2 servers.", "1 server cannot be stopped."], now - 60)
        keep_actions(session, "maths", ["carl sent a message to 1 person."], now - 30)
        keep_actions(session, "deep", ["ada sent a message to 2 people."], now)

        assert latest_actions(session, "deep") == (
            ("ada sent a message to 2 people.", now),
            ("1 server cannot be stopped.", now - 60),
            ("ada stopped 2 servers.", now - 60),
        )
        assert latest_actions(session, "other") == ()
