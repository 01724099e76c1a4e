"""The people of a course with their servers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from jupyterhub import orm

from jupyterhub_gpuspawner.courses.folder import CourseFile
from jupyterhub_gpuspawner.hub.course.book import HubCourse
from jupyterhub_gpuspawner.hub.course.participants import (
    WITHOUT_SESSION,
    CourseStart,
    Participant,
    Stage,
    State,
    ended_servers,
    natural,
    participant,
    participants_of,
    servers_of,
    totals,
)
from jupyterhub_gpuspawner.hub.job.ending import Ending, ending_state
from jupyterhub_gpuspawner.hub.spawners.server import Server
from jupyterhub_gpuspawner.records.record import Cause, Kind, start_failed
from jupyterhub_gpuspawner.slurm.job import Job, Phase
from jupyterhub_gpuspawner.wire.documents import PlacementDocument
from tests.fixtures.databases import hub_session

EIGHT, NINE, TEN = 28800.0, 32400.0, 36000.0
QUEUED = Job("12", Phase.QUEUED, reason="Resources")
PLACED = PlacementDocument(job_id="12", node="g1")
DIED = Ending(start_failed("unreachable"), at=NINE)
STOPPED = Ending(Cause(Kind.STOPPED_BY_USER), at=NINE)

STATES = {
    "it runs": (Server(ready=True), State.RUNNING, False),
    "it is being submitted": (Server(pending="spawn"), State.STARTING, False),
    "its job is pending": (Server(pending="spawn", job=QUEUED), State.WAITING, False),
    "the node has reported before Slurm did": (
        Server(pending="spawn", job=QUEUED, placement=PLACED),
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
    course = HubCourse("ml", CourseFile("ml", SimpleNamespace(name="ML")), tuple(people))  # type: ignore[arg-type]
    return participants_of(course, servers, now=EIGHT + WITHOUT_SESSION, **options)


@pytest.mark.parametrize(("server", "state", "needs_help"), STATES.values(), ids=STATES.keys())
def test_the_state_of_a_participant(server: Server, state: State, needs_help: bool) -> None:
    """Each server gives one state; whoever cannot go on alone needs help."""
    found = participant(server, since=EIGHT)
    assert (found.state, found.needs_help) == (state, needs_help)


def test_those_who_need_help_come_first_and_everybody_is_there() -> None:
    """Each group by name, with numbers in names as numbers; servers of other people do not count."""
    servers = [
        Server("train10", ready=True),
        Server("train2", pending="spawn", job=QUEUED),
        Server("train11", ending=DIED),
        Server("train9", ending=DIED),
        Server("stranger", ready=True),
    ]
    room = room_of(["train1", "train2", "train9", "train10", "train11"], servers)
    assert [(each.user, each.state) for each in room] == [
        ("train9", State.FAILED),
        ("train11", State.FAILED),
        ("train1", State.ABSENT),
        ("train2", State.WAITING),
        ("train10", State.RUNNING),
    ]
    assert dict(totals(room)) == {State.RUNNING: 1, State.WAITING: 1, State.FAILED: 2, State.ABSENT: 1}
    assert list(totals(room)) == [State.RUNNING, State.WAITING, State.FAILED, State.ABSENT]


OWN = Server("ada", "", ready=True, profile="course-ml")
SEVERAL = {
    "that of the course's profile": ([Server("ada", "x", ready=True), OWN], OWN),
    "whatever its name": (
        [Server("ada", "", ready=True, profile="other"), Server("ada", "x", pending="spawn", profile="course-ml")],
        Server("ada", "x", pending="spawn", profile="course-ml"),
    ),
    "the default one, where the other one is not the course's": (
        [Server("ada", "x", ready=True), Server("ada", "", ending=DIED)],
        Server("ada", "", ending=DIED),
    ),
    "one that failed, where none is active": (
        [Server("ada", "x", profile="course-ml", ending=DIED), Server("ada", "")],
        Server("ada", "x", profile="course-ml", ending=DIED),
    ),
    "the default one, where both are alike": (
        [Server("ada", "x", profile="course-ml"), Server("ada", "")],
        Server("ada", ""),
    ),
}


@pytest.mark.parametrize(("servers", "chosen"), SEVERAL.values(), ids=SEVERAL.keys())
def test_the_server_of_a_person_who_has_several(servers: list[Server], chosen: Server) -> None:
    """In both orders."""
    for known in (servers, servers[::-1]):
        assert [each.server for each in room_of(["ada"], known)] == [chosen]


def test_somebody_without_any_server_is_absent() -> None:
    """The hub need not know the person."""
    assert room_of(["ada"], []) == (Participant("ada"),)


FAILED = CourseStart("ada", Stage.FAILED, tries=3, asked_at=NINE, fault="This hub has too many servers.")
ASKED = {
    "JupyterHub refused it": (
        [],
        {"ada": FAILED},
        {},
        Participant("ada", State.FAILED, fault="This hub has too many servers."),
    ),
    "JupyterHub refused it in an earlier session": ([], {"ada": replace(FAILED, asked_at=1.0)}, {}, Participant("ada")),
    "JupyterHub refused it, but it runs": (
        [Server("ada", ready=True)],
        {"ada": FAILED},
        {},
        Participant("ada", State.RUNNING, Server("ada", ready=True)),
    ),
    "JupyterHub refused it, and she has worked since": (
        [Server("ada", ending=replace(STOPPED, at=TEN))],
        {"ada": FAILED},
        {},
        Participant("ada", server=Server("ada", ending=replace(STOPPED, at=TEN))),
    ),
    "its job failed": (
        [Server("ada", ending=DIED)],
        {"ada": FAILED},
        {},
        Participant("ada", State.FAILED, Server("ada", ending=DIED)),
    ),
    "its turn comes": (
        [Server("ada", ending=DIED)],
        {},
        {"ada": State.STARTING},
        Participant("ada", State.STARTING, queued=True),
    ),
    "its turn to be stopped comes": (
        [Server("ada", ready=True)],
        {},
        {"ada": State.STOPPING},
        Participant("ada", State.STOPPING, Server("ada", ready=True), queued=True),
    ),
    "its user has stopped it before its turn": ([], {}, {"ada": State.STOPPING}, Participant("ada")),
    "nobody opened it": ([], {"ada": replace(FAILED, stage=Stage.UNVISITED)}, {}, Participant("ada")),
}


@pytest.mark.parametrize(("servers", "starts", "queued", "expected"), ASKED.values(), ids=ASKED.keys())
def test_what_the_course_asked_for(
    servers: list[Server], starts: dict[str, CourseStart], queued: Mapping[str, State], expected: Participant
) -> None:
    """A start that was refused is told, and one that is to come."""
    assert room_of(["ada"], servers, starts=starts, queued=queued) == (expected,)


def test_names_are_ordered_as_people_count() -> None:
    """Numbers by value, letters without regard to case, and every name has a place."""
    names = ["train10", "Train2", "train3", "7", "_x", "a", "ü9"]
    assert sorted(names, key=natural) == ["7", "_x", "a", "Train2", "train3", "train10", "ü9"]


class Spawner:
    """Another package's spawner."""

    name = ""
    pending = None
    ready = True
    server = None

    def __init__(self, user: str) -> None:
        self.user = SimpleNamespace(name=user)


def test_how_servers_ended_that_the_hub_has_no_longer_in_memory() -> None:
    """Of the default servers of these people, as their rows say it; others and active ones are left out."""
    rows: dict[str, dict[str, Ending | None]] = {
        "ada": {"": DIED},
        "ben": {"": STOPPED, "lab": DIED},
        "cleo": {"": None},
        "dora": {"": DIED},
        "eve": {"": DIED},
    }
    with hub_session() as session:
        for name, servers in rows.items():
            user = orm.User(name=name)
            session.add(user)
            for server, ending in servers.items():
                row = orm.Spawner(name=server, state=ending_state(ending))
                user._orm_spawners.append(row)
                if name == "dora":
                    row.server = orm.Server()
        session.commit()

        found = list(ended_servers(session, ["ada", "ben", "cleo", "dora", "stranger"]))
    assert found == [Server("ada", ending=DIED), Server("ben", ending=STOPPED)]


def test_only_the_servers_of_these_people_are_read() -> None:
    """The others may be thousands."""
    users = [SimpleNamespace(name=name, spawners={"": Spawner(name)}) for name in ("ada", "bob")]
    users[1].spawners = None
    assert list(servers_of(users, {"ada"})) == [Server("ada", ready=True)]
