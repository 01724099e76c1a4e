"""The people of a course with their servers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from jupyterhub import orm

from jupyterhub_gpuspawner.extensions.courses.book import HubCourse
from jupyterhub_gpuspawner.extensions.courses.course import CourseDate
from jupyterhub_gpuspawner.extensions.courses.folder import CourseFile
from jupyterhub_gpuspawner.extensions.courses.participants import (
    WITHOUT_SESSION,
    CourseStart,
    Participant,
    ServerKey,
    Stage,
    State,
    ended_servers,
    participant,
    participants_of,
    servers_of,
    totals,
)
from jupyterhub_gpuspawner.hub.job.cause import Cause, Kind, start_failed
from jupyterhub_gpuspawner.hub.job.ending import Ending, ending_state
from jupyterhub_gpuspawner.hub.spawners.server import Server
from jupyterhub_gpuspawner.hub.start.progress import StartFacts
from jupyterhub_gpuspawner.slurm.job import Job, Phase
from jupyterhub_gpuspawner.wire.documents import PlacementDocument
from tests.fixtures.databases import hub_session

EIGHT, NINE, TEN = 28800.0, 32400.0, 36000.0
ML = HubCourse("ml", CourseFile("ml", SimpleNamespace(name="ML")))  # type: ignore[arg-type]
Of = partial(Server, last_profile="course-ml")
"""A server of the course."""
QUEUED = Job("12", Phase.QUEUED, reason="Resources")
PLACEMENT = PlacementDocument(job_id="12", node="g1")
DIED = Ending(start_failed("unreachable"), at=NINE)
STOPPED = Ending(Cause(Kind.STOPPED_BY_USER), at=NINE)

STATES = {
    "it runs": (Server(ready=True), State.RUNNING, False),
    "it is being submitted": (Server(pending="spawn"), State.STARTING, False),
    "its job is pending": (Server(pending="spawn", job=QUEUED), State.WAITING, False),
    "the node has reported before Slurm did": (
        Server(pending="spawn", job=QUEUED, placement=PLACEMENT),
        State.STARTING,
        False,
    ),
    "its job runs": (Server(pending="spawn", job=Job("12", Phase.RUNNING)), State.STARTING, False),
    "it waits for what never comes": (
        Server(pending="spawn", job=Job("12", Phase.QUEUED, reason="BadConstraints")),
        State.WAITING,
        True,
    ),
    "the hub checks it after a restart": (Server(pending="check", job_id="12"), State.STARTING, False),
    "it stops": (Server(pending="stop", ready=True), State.STOPPING, False),
    "its start failed": (Server(ending=DIED), State.FAILED, True),
    "its start failed, nobody knows when": (Server(ending=replace(DIED, at=None)), State.FAILED, True),
    "another package's start failed": (Server(failure=RuntimeError()), State.FAILED, True),
    "its start failed in an earlier session": (Server(ending=replace(DIED, at=EIGHT - 1)), State.ABSENT, False),
    "its session was over": (
        Server(ending=Ending(Cause(Kind.TIME_LIMIT), at=NINE, session_over=True)),
        State.OVER,
        False,
    ),
    "somebody cancelled its job": (Server(ending=Ending(Cause(Kind.CANCELLED_OUTSIDE), at=NINE)), State.ENDED, True),
    "it ended by itself": (Server(ending=Ending(Cause(Kind.MEMORY), at=NINE)), State.ENDED, True),
    "a person stopped it": (Server(ending=STOPPED), State.ABSENT, False),
    "a person stopped its start, which then failed": (
        Server(ending=STOPPED, failure=RuntimeError()),
        State.ABSENT,
        False,
    ),
    "there is none": (Server(), State.ABSENT, False),
}


def room_of(people: Sequence[str], servers: Iterable[Server], **options: Any) -> tuple[Participant, ...]:
    """Everybody in a course that has had no session since eight."""
    return participants_of(replace(ML, people=tuple(people)), servers, now=EIGHT + WITHOUT_SESSION, **options)


@pytest.mark.parametrize(("server", "state", "needs_help"), STATES.values(), ids=STATES.keys())
def test_the_state_of_a_participant(server: Server, state: State, needs_help: bool) -> None:
    """Each server gives one state; whoever cannot go on alone needs help."""
    person = participant(server, since=EIGHT)
    assert (person.state, person.needs_help) == (state, needs_help)


def test_everybody_is_there_in_the_order_of_the_roster() -> None:
    """Whatever their servers do: a seat does not move. Servers of other people do not count."""
    servers = [
        Of("train10", ready=True),
        Of("train2", pending="spawn", job=QUEUED),
        Of("train11", ending=DIED),
        Of("train9", ending=DIED),
        Of("stranger", ready=True),
    ]
    room = room_of(["train2", "train1", "train9", "train10", "train11"], servers)
    assert [(person.user, person.state) for person in room] == [
        ("train2", State.WAITING),
        ("train1", State.ABSENT),
        ("train9", State.FAILED),
        ("train10", State.RUNNING),
        ("train11", State.FAILED),
    ]
    assert dict(totals(room)) == {State.RUNNING: 1, State.WAITING: 1, State.FAILED: 2, State.ABSENT: 1}
    assert list(totals(room)) == [State.RUNNING, State.WAITING, State.FAILED, State.ABSENT]


OWN = Of("ada", "", ready=True)
SEVERAL: dict[str, tuple[list[Server], Participant]] = {
    "that of the course's profile": (
        [Server("ada", "x", ready=True, profile="other"), OWN],
        Participant("ada", State.RUNNING, OWN),
    ),
    "whatever its name": (
        [Server("ada", "", ready=True, profile="other"), Of("ada", "x", pending="spawn")],
        Participant("ada", State.STARTING, Of("ada", "x", pending="spawn")),
    ),
    "one that failed, where none is active": (
        [Of("ada", "x", ending=DIED), Of("ada", "")],
        Participant("ada", State.FAILED, Of("ada", "x", ending=DIED)),
    ),
    "the default one, where both are alike": ([Of("ada", "x"), Of("ada", "")], Participant("ada", server=Of("ada"))),
    "none, where a named one is none of the course's": (
        [Server("ada", "x", ready=True, profile="other"), Server("ada", "y", ending=DIED)],
        Participant("ada"),
    ),
    "none, where something else failed": (
        [Server("ada", "", ending=DIED, last_profile="other"), Server("ada", "x", failure=RuntimeError())],
        Participant("ada"),
    ),
    "none, and the default one is in use": (
        [Server("ada", "", ready=True, profile="other"), Server("ada", "x", ending=DIED)],
        Participant("ada", State.ELSEWHERE),
    ),
    "a named one that failed, while the default one is in use": (
        [Server("ada", "", ready=True, profile="other"), Of("ada", "x", ending=DIED)],
        Participant("ada", State.FAILED, Of("ada", "x", ending=DIED)),
    ),
    "none, since another choice was made on it": (
        [Server("ada", "", pending="spawn", profile="other", last_profile="other")],
        Participant("ada", State.ELSEWHERE),
    ),
}


@pytest.mark.parametrize(("servers", "participant"), SEVERAL.values(), ids=SEVERAL.keys())
def test_only_the_courses_servers_concern_it(servers: list[Server], participant: Participant) -> None:
    """Nobody sees there what else these people run, or what failed elsewhere; in both orders."""
    for ordered in (servers, servers[::-1]):
        assert room_of(["ada"], ordered) == (participant,)


@pytest.mark.parametrize(
    ("starts_at", "too_late"), [(TEN - 60, False), (TEN, True)], ids=["in the session", "when it is over"]
)
def test_whoever_would_start_after_the_session_needs_help(starts_at: float, too_late: bool) -> None:
    """Slurm's plan is known; the session ends at ten."""
    start, end = (datetime.fromtimestamp(at, timezone.utc) for at in (EIGHT, TEN))
    course = replace(ML, people=("ada",), sessions=(CourseDate(start, end, "1970-01-01"),))
    job = replace(QUEUED, starts_at=starts_at)
    server = Of("ada", pending="spawn", job=job, start=StartFacts("12", job=job))

    (person,) = participants_of(course, [server], now=NINE)

    assert (person.too_late, person.needs_help) == (too_late, too_late)


def test_somebody_without_any_server_is_absent() -> None:
    """The hub need not know the person."""
    assert room_of(["ada"], []) == (Participant("ada"),)


FAILED = CourseStart("ada", Stage.FAILED, tries=3, asked_at=NINE, fault="This hub has too many servers.")
COURSE_STARTS = {
    "JupyterHub refused it": (
        [],
        {"ada": FAILED},
        {},
        Participant("ada", State.FAILED, fault="This hub has too many servers."),
    ),
    "JupyterHub refused it in an earlier session": ([], {"ada": replace(FAILED, asked_at=1.0)}, {}, Participant("ada")),
    "JupyterHub refused it, but it runs": (
        [Of("ada", ready=True)],
        {"ada": FAILED},
        {},
        Participant("ada", State.RUNNING, Of("ada", ready=True)),
    ),
    "JupyterHub refused it, and she has worked since": (
        [Of("ada", ending=replace(STOPPED, at=TEN))],
        {"ada": FAILED},
        {},
        Participant("ada", server=Of("ada", ending=replace(STOPPED, at=TEN))),
    ),
    "its job failed": (
        [Of("ada", ending=DIED)],
        {"ada": FAILED},
        {},
        Participant("ada", State.FAILED, Of("ada", ending=DIED)),
    ),
    "its turn comes": (
        [Of("ada", ending=DIED)],
        {},
        {"ada": State.STARTING},
        Participant("ada", State.STARTING, queued=True),
    ),
    "its turn to be stopped comes": (
        [Of("ada", ready=True)],
        {},
        {"ada": State.STOPPING},
        Participant("ada", State.STOPPING, Of("ada", ready=True), queued=True),
    ),
    "its user has stopped it before its turn": ([], {}, {"ada": State.STOPPING}, Participant("ada")),
    "nobody opened it": ([], {"ada": replace(FAILED, stage=Stage.UNVISITED)}, {}, Participant("ada")),
}


@pytest.mark.parametrize(("servers", "starts", "queued", "expected"), COURSE_STARTS.values(), ids=COURSE_STARTS.keys())
def test_what_the_course_asked_for(
    servers: list[Server], starts: dict[str, CourseStart], queued: Mapping[str, State], expected: Participant
) -> None:
    """A start that was refused is told, and one that is to come."""
    assert room_of(["ada"], servers, starts=starts, queued=queued) == (expected,)


class Spawner:
    """Another package's spawner."""

    name = ""
    pending = None
    ready = True
    server = None

    def __init__(self, user: str) -> None:
        self.user = SimpleNamespace(name=user)


def test_how_servers_ended_that_the_hub_has_no_longer_in_memory() -> None:
    """Of the course's servers, as their rows say it; those of others, in memory and active are left out."""
    died, stopped = (replace(ending, slug="course-ml") for ending in (DIED, STOPPED))
    rows: dict[str, dict[str, Ending | None]] = {
        "ada": {"": died},
        "ben": {"": stopped, "lab": died, "own": DIED},
        "cleo": {"": None},
        "dora": {"": died},
        "eve": {"": died},
        "fay": {"": died},
    }
    with hub_session() as session:
        for name, endings in rows.items():
            user = orm.User(name=name)
            session.add(user)
            for server, ending in endings.items():
                row = orm.Spawner(name=server, state=ending_state(ending) if ending is not None else {})
                user._orm_spawners.append(row)
                if name == "dora":
                    row.server = orm.Server()
        session.commit()

        course = replace(ML, people=("ada", "ben", "cleo", "dora", "fay", "stranger"))
        servers = list(ended_servers(session, course, without={ServerKey("fay")}))
    assert servers == [Of("ada", ending=died), Of("ben", ending=stopped), Of("ben", "lab", ending=died)]


def test_only_the_servers_of_these_people_are_read() -> None:
    """The others may be thousands."""
    users = [SimpleNamespace(name=name, spawners={"": Spawner(name)}) for name in ("ada", "bob")]
    users[1].spawners = None
    assert list(servers_of(users, {"ada"})) == [Server("ada", ready=True)]
