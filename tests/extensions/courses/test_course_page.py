"""The page of a course: its tiles, what stands above them, and how it is kept up to date."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any
from urllib.parse import quote

import pytest
from bs4 import BeautifulSoup
from jinja2 import ChoiceLoader, DictLoader, Environment, FileSystemLoader

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.extensions.courses.actions import Outcome, Result
from jupyterhub_gpuspawner.extensions.courses.book import HubCourse
from jupyterhub_gpuspawner.extensions.courses.course import parse_course
from jupyterhub_gpuspawner.extensions.courses.evening import SessionCheck
from jupyterhub_gpuspawner.extensions.courses.folder import CourseFile
from jupyterhub_gpuspawner.extensions.courses.page import CoursePageState, CourseSnapshot, SeatsAge
from jupyterhub_gpuspawner.extensions.courses.participants import (
    Participant,
    ServerKey,
    State,
    participant,
    participants_of,
    since,
)
from jupyterhub_gpuspawner.extensions.courses.report import Problem, SessionReport
from jupyterhub_gpuspawner.extensions.courses.view import (
    CourseView,
    FreeSeats,
    Line,
    PendingAction,
    Tile,
    course_view,
    result_line,
    servers_in,
    tile,
    wish_of,
)
from jupyterhub_gpuspawner.extensions.seats.count import SeatCount
from jupyterhub_gpuspawner.hub import times
from jupyterhub_gpuspawner.hub.job.cause import Cause, Kind, start_failed
from jupyterhub_gpuspawner.hub.job.ending import Ending
from jupyterhub_gpuspawner.hub.server.card import TimeLeft
from jupyterhub_gpuspawner.hub.site.templates import TEMPLATES
from jupyterhub_gpuspawner.hub.spawners.server import Server
from jupyterhub_gpuspawner.hub.start.progress import StartFacts
from jupyterhub_gpuspawner.slurm.estimate import QueuePosition
from jupyterhub_gpuspawner.slurm.job import End, Job, Phase
from jupyterhub_gpuspawner.slurm.reason import Words
from jupyterhub_gpuspawner.wire.documents import PlacedGpu, PlacementDocument
from tests.fixtures.extensions import ALL, PAGE_TOOLS

ENDS = datetime(2026, 3, 2, 12, 0, tzinfo=timezone.utc)
NOW = ENDS.timestamp() - 5400
PLACEMENT = PlacementDocument(job_id="12", node="g1", gpus=(PlacedGpu(0), PlacedGpu(3)), ends_at=ENDS.isoformat())
DIED = Ending(start_failed("unreachable"), at=NOW - 60, lines="no such module")


def starting(job: Job | None = None, **facts: Any) -> Server:
    """A server that is being started."""
    return Server("ada", pending="spawn", job=job, start=StartFacts("12", job=job, **facts))


def pending(reason: str, **more: Any) -> Job:
    """A job in the queue."""
    return Job("12", Phase.QUEUED, reason=reason, **more)


RETRY_ACTIONS = ("start", "message")
SLICES = (PlacedGpu(0), PlacedGpu(1, mig="1g.10gb", mig_device=2))
QUEUED = {"matching": "GPUs", "queue_position": QueuePosition(3, 5, "gpu", people=2, starts_at=NOW + 600)}
OF_MEMORY = Job("12", Phase.ENDED, state="OUT_OF_MEMORY", end=End.OUT_OF_MEMORY)
UNREACHABLE, MEMORY = "The server was started, but the hub cannot reach it.", "The job exceeded its memory limit."
OUT_OF_MEMORY = Ending(Cause(Kind.MEMORY), at=NOW - 60, job=OF_MEMORY, lines="secret")


def lines(*sentences: str | Line) -> tuple[Line, ...]:
    return tuple(Line(sentence) if isinstance(sentence, str) else sentence for sentence in sentences)


TILES: dict[str, tuple[Server, Tile]] = {
    "nothing": (Server("ada"), Tile("ada", "absent")),
    "a server that a person stopped": (
        Server("ada", ending=Ending(Cause(Kind.STOPPED_BY_INSTRUCTOR), at=NOW, by="grace", profile="K80")),
        Tile("ada", "absent", lines=lines(Line("K80 was stopped at {time} by grace.", NOW))),
    ),
    "one that was stopped in an earlier session": (
        Server("ada", ending=Ending(Cause(Kind.STOPPED_BY_USER), at=NOW - 90000)),
        Tile("ada", "absent"),
    ),
    "a server that runs": (
        Server("ada", ready=True, placement=PLACEMENT),
        Tile("ada", "running", where="g1, GPU 0, 3", left=TimeLeft(ENDS, "1 h 30 min")),
    ),
    "on one of several clusters": (
        Server("ada", ready=True, cluster="cedar", placement=PlacementDocument(node="c1", cpus="0-3")),
        Tile("ada", "running", where="c1 on cedar, 4 CPUs"),
    ),
    "one on a GPU and a slice of another, without an end": (
        Server("ada", ready=True, placement=replace(PLACEMENT, gpus=SLICES, ends_at=None)),
        Tile("ada", "running", where="g1, GPU 0, slice 2 of GPU 1"),
    ),
    "one without a GPU": (
        Server("ada", ready=True, placement=PlacementDocument(node="c1", cpus="0-3")),
        Tile("ada", "running", where="c1, 4 CPUs"),
    ),
    "one whose node has not reported": (Server("ada", ready=True), Tile("ada", "running")),
    "a job that is being submitted": (
        Server("ada", pending="spawn", start=StartFacts()),
        Tile("ada", "starting", lines=lines("Submitting the job")),
    ),
    "a job that is kept until Slurm answers": (
        Server("ada", pending="spawn", start=StartFacts(kept_until=NOW + 60)),
        Tile("ada", "starting", lines=lines("Waiting for Slurm")),
    ),
    "a job that has a node": (
        starting(Job("12", Phase.RUNNING, batch_host="g1")),
        Tile("ada", "starting", lines=lines("Node: g1")),
    ),
    "a node that has reported": (
        replace(starting(Job("12", Phase.RUNNING, batch_host="g1"), placement=PLACEMENT), placement=PLACEMENT),
        Tile("ada", "starting", lines=lines("Starting: g1")),
    ),
    "another package's server that starts": (Server("ada", pending="spawn"), Tile("ada", "starting")),
    "a job that waits, with its place and the expected start": (
        starting(pending("Resources"), **QUEUED),
        Tile(
            "ada",
            "waiting",
            lines=lines(
                "2 people ahead",
                "expected start: within 10 min, if nobody with a higher priority comes",
                "All matching GPUs are in use.",
            ),
        ),
    ),
    "a job that waits for its reservation": (
        starting(pending("Reservation", starts_at=NOW + 600)),
        Tile(
            "ada",
            "waiting",
            lines=lines("expected start: in 10 min at the earliest", "Waiting for its reservation to begin."),
        ),
    ),
    "a job that never starts": (
        starting(pending("BadConstraints"), queue_position=QueuePosition(1, 1, "gpu")),
        Tile(
            "ada",
            "waiting",
            needs_help=True,
            lines=lines("No node can satisfy the job's request.", "Waiting does not help."),
        ),
    ),
    "a server that stops": (Server("ada", pending="stop"), Tile("ada", "stopping")),
    "a start that failed": (
        Server("ada", ending=DIED),
        Tile(
            "ada",
            "failed",
            True,
            lines=lines(UNREACHABLE),
            log="no such module",
        ),
    ),
    "another package's start that failed": (
        Server("ada", failure=RuntimeError("secret")),
        Tile("ada", "failed", True, lines=lines("The server failed to start.")),
    ),
    "a server that ended by itself, whose log is its participant's own": (
        Server("ada", ending=OUT_OF_MEMORY),
        Tile(
            "ada",
            "ended",
            True,
            lines=lines(MEMORY, Line("It ended at {time}.", NOW - 60)),
        ),
    ),
}


def without_actions(participant: Participant) -> Tile:
    return replace(tile(participant, now=NOW, since=NOW - 3600), actions=())


@pytest.mark.parametrize(("server", "expected"), TILES.values(), ids=TILES.keys())
def test_tiles(server: Server, expected: Tile) -> None:
    """Each participant has one, whatever the server does."""
    assert without_actions(participant(server)) == expected


def test_a_start_that_is_to_come_or_was_refused() -> None:
    """The tile says so, though there is no server."""
    coming = without_actions(Participant("ada", State.STARTING, queued=True))
    refused = without_actions(Participant("ada", State.FAILED, fault="Too many servers."))
    assert coming == Tile("ada", "starting", lines=lines("It is started when its turn comes."))
    assert refused == Tile("ada", "failed", True, lines=lines("Too many servers."))


def test_a_server_that_is_in_the_way_and_a_start_that_comes_too_late() -> None:
    """The tile says which server is meant, and that the session is over by then."""
    elsewhere = without_actions(Participant("ada", State.ELSEWHERE))
    late = tile(replace(participant(starting(pending("Resources", starts_at=NOW + 600))), too_late=True), now=NOW)
    assert elsewhere == Tile(
        "ada",
        "elsewhere",
        lines=lines("Their own server, which is not of this course, is in the way: only they can stop it."),
    )
    assert (late.needs_help, late.lines[0]) == (True, Line("The expected start is after the session."))


def test_an_action_concerns_those_for_whom_it_does_something() -> None:
    """Nobody is started twice, and only what is active is stopped."""
    offered = {state.value: tile(Participant("ada", state), now=NOW).actions for state in State}
    concerned = {
        action: {state for state, actions in offered.items() if action in actions}
        for action in ("start", "stop", "extend", "message")
    }
    assert concerned == {
        "start": {"absent", "failed", "ended", "over"},  # a server elsewhere is in the way
        "stop": {"running", "starting", "waiting"},
        "extend": {"running"},
        "message": {state.value for state in State},
    }


def test_the_version_of_a_tile_changes_with_what_is_told_and_not_with_the_time_left() -> None:
    """An event is sent only for tiles whose version has changed."""
    server = Server("ada", ready=True, placement=PLACEMENT)
    first, later = (tile(participant(server), now=now) for now in (NOW, NOW + 60))
    other = tile(participant(replace(server, placement=replace(PLACEMENT, node="g2"))), now=NOW)
    assert first != later
    assert first.version == later.version != other.version


def a_course(fault: ConfigError | None = None, faults: Sequence[str] = (), **more: Any) -> HubCourse:
    """A course whose session ends at ENDS."""
    values = {
        "name": "Deep learning",
        "instructors": "grace",
        "roster": "train[1-4]",
        "profile": "k80",
        "zone": "UTC",
        "start_ahead": "10min",
        "sessions": [
            {"date": "2026-03-02", "from": "9:00", "to": "12:00"},
            {"date": "2026-03-04", "from": "9:00", "to": "12:00"},
        ],
        **more,
    }
    course = parse_course(values, str)
    people = tuple(f"train{n}" for n in range(1, 5))
    return HubCourse(
        "deep-learning",
        CourseFile("deep-learning", course, fault=fault),
        people=people,
        faults=tuple(faults),
        sessions=course.dates,
    )


SERVERS = tuple(
    replace(server, last_profile="course-deep-learning")
    for server in (
        Server("train1", ready=True, placement=PLACEMENT),
        Server("train2", pending="spawn", job=pending("Resources")),
        Server("train3", ending=DIED),
    )
)


def viewed(course: HubCourse, *, now: float = NOW, **more: Any) -> CourseView:
    """The page with three servers."""
    return course_view(course, participants_of(course, SERVERS, now=now), now=now, **more)


LOADER = FileSystemLoader([str(TEMPLATES), *ALL.templates])
ENVIRONMENT = Environment(autoescape=True, loader=LOADER)
BARE_PAGE = "{% block title %}{% endblock %}{% block stylesheet %}{% endblock %}{% block main %}{% endblock %}"


def text_of(html: str) -> str:
    """What people read, on one line."""
    return " ".join(BeautifulSoup(html, "html.parser").get_text().split())


def moment(when: float | datetime) -> str:
    """A time as the page has it without its script."""
    return times.clock(when)


def above(view: CourseView) -> dict[str, str]:
    """The paragraphs above the tiles, by the end of their id or class."""
    soup = BeautifulSoup(head_of(view), "html.parser")
    found = {name: soup.select_one(f"#gpuspawner-{name}") for name in ("totals", "seats", "check")}
    found["session"] = soup.select_one(".gpuspawner-session")
    return {name: text_of(str(tag)) for name, tag in found.items() if tag is not None}


def test_what_stands_above_the_tiles() -> None:
    """The session, how many are in each state, and how many more fit: those who wait take seats, too."""
    view = viewed(a_course(), seats=[FreeSeats("k80", 2)], counting="never", recent=[Line("Sent.", NOW)])
    assert above(view) == {
        "session": f"Session now, until {moment(ENDS)}",
        "totals": "4 people 1 needs help 1 running 1 in line 1 without a server Select these",
        "seats": "By estimate there is room for 1 more server; 2 people have none.",
        "check": "The seats of the next session have not been counted yet.",
    }
    assert f"Recent actions {moment(NOW)}: Sent." in text_of(head_of(view))
    assert [tile.user for tile in view.tiles] == ["train1", "train2", "train3", "train4"]


ROOM = (
    Participant("ann", State.FAILED),
    Participant("ben", State.RUNNING),
    Participant("cleo", State.WAITING),
    Participant("dora"),
)
FILES_STAY = "unsaved work and running kernels are lost. Files stay."
ONE_RUNS = f"1 server is running: its {FILES_STAY}"
OTHERS_GO_ON = "Other servers of these people go on."
ONE_WAITS = "1 server is starting or waiting in line: its start is cancelled, and its place given up."
NOBODY = "You have selected nobody. Select participants by their boxes, or use the buttons for everybody."
QUESTIONS: dict[str, tuple[str, set[str] | None, str, str, str, tuple[str, ...]]] = {
    "stop everybody": (
        "stop",
        None,
        "Stop the servers of all 2 people?",
        "ben, cleo",
        "Stop 2 servers",
        (ONE_RUNS, ONE_WAITS, OTHERS_GO_ON),
    ),
    "stop some": (
        "stop",
        {"ben", "dora"},
        "Stop the server of ben?",
        "ben",
        "Stop 1 server",
        (ONE_RUNS, OTHERS_GO_ON, "1 of the selected people has no server to stop and is left out."),
    ),
    "start some": (
        "start",
        {"ann", "ben", "cleo", "dora"},
        "Start servers for 2 people?",
        "ann, dora",
        "Start 2 servers",
        ("2 of the selected people have a server, or a start under way, and are left out.",),
    ),
    "give one more time": ("extend", {"ben"}, "Give ben more time", "ben", "Extend 1 server", ()),
    "tell everybody": (
        "message",
        None,
        "Send a message to all 4 people",
        "ann, ben, cleo, dora",
        "Send to 4 people",
        (),
    ),
    "nobody was selected": ("stop", set(), "Stop", "", "", (NOBODY,)),
    "nobody is concerned": (
        "extend",
        {"ann", "stranger"},
        "Extend",
        "",
        "",
        ("There is nothing to do: this concerns none of the participants.",),
    ),
}


def asked(wish: PendingAction) -> tuple[str, str, str, tuple[str, ...]]:
    """The question's heading, the people that it names, its button and its sentences."""
    environment = Environment(autoescape=True, loader=ChoiceLoader([DictLoader({"page.html": BARE_PAGE}), LOADER]))
    page = environment.get_template("course_question.html")
    soup = BeautifulSoup(page.render(wish=wish, title="ML", slug="ml", gpuspawner=PAGE_TOOLS), "html.parser")
    heading, names, button = (
        text_of("".join(map(str, soup.select(selector)))) for selector in ("h1", "#gpuspawner-names", "button")
    )
    return heading, names, button, tuple(text_of(str(line)) for line in soup.select(".fs-5"))


@pytest.mark.parametrize(
    ("action", "chosen", "heading", "people", "button", "sentences"), QUESTIONS.values(), ids=QUESTIONS.keys()
)
def test_the_question_before_an_action(
    action: str, chosen: set[str] | None, heading: str, people: str, button: str, sentences: tuple[str, ...]
) -> None:
    """What happens to how many, who is left out, and what the button does; one person is named in the heading."""
    wish = wish_of(action, ROOM, chosen)
    servers = tuple(ServerKey(user) for user in people.split(", ") if user)
    assert (wish.action, wish.servers, wish.everybody) == (action, servers, chosen is None)
    assert asked(wish) == (heading, people if len(servers) > 1 else "", button, sentences)


LAB = Participant("ada", State.RUNNING, Server("ada", "lab", ready=True))
THESIS = Participant("ada", State.RUNNING, Server("ada", ready=True))


def test_a_tile_and_its_question_name_the_server_that_is_meant() -> None:
    """The box that selects it carries it, too."""
    (html,) = rendered([tile(LAB, now=NOW)])
    soup = BeautifulSoup(html, "html.parser")
    question = wish_of("stop", [LAB], {"ada/lab"})

    assert [box["value"] for box in soup.select("input")] == ["ada/lab"]
    assert soup.select_one("b").get_text() == "ada (lab)"  # type: ignore[union-attr]
    assert (asked(question)[0], question.servers) == ("Stop the server of ada (lab)?", (ServerKey("ada", "lab"),))


ODD_NAMES = (
    "x\u2028ben",
    "x\x85ben",
    "x\x0bben",
    "x\nben",
    "x\r\nben/",
    " lab ",
    "x%2Fben",
    "50 %",
    "m\u00fcsli\u00e9",
)


@pytest.mark.parametrize("name", ODD_NAMES, ids=ascii)
def test_a_server_with_an_odd_name_is_selected_and_no_other(name: str) -> None:
    """JupyterHub 5 lets people name servers so; neither a line of a button nor a field of a box says another one."""
    odd = Participant("ann", State.RUNNING, Server("ann", name, ready=True))
    room = [odd, Participant("ben", State.RUNNING, Server("ben", ready=True))]
    soup = BeautifulSoup("".join(rendered([tile(participant, now=NOW) for participant in room])), "html.parser")
    fields = [str(box["value"]) for box in soup.select("input")]

    assert wish_of("stop", room, servers_in(" ".join(fields[:1]).split())).servers == (ServerKey("ann", name),)
    assert wish_of("stop", room, servers_in(fields[1:])).servers == (ServerKey("ben"),)


def test_who_has_another_server_than_the_selected_one_is_left_out() -> None:
    """The course's server has ended since the page was made; the one that is left is nobody's to stop unseen."""
    sentence = "1 of the selected people has another server now than when you selected them: look at the course again."

    question = wish_of("stop", [THESIS], {"ada/lab"})

    assert (question.servers, asked(question)[3][-1]) == ((), sentence)
    assert wish_of("message", [THESIS], {"ada/lab"}).servers == (ServerKey("ada"),)


@pytest.mark.parametrize(
    ("apps", "line"),
    [
        (["code-server"], "1 server is running: its unsaved work and running processes are lost. Files stay."),
        (["code-server", ""], "2 servers are running: their unsaved work and running processes are lost. Files stay."),
        (["", ""], f"2 servers are running: their {FILES_STAY}"),
    ],
    ids=["another application than Jupyter", "both", "Jupyter"],
)
def test_the_question_before_a_stop_speaks_of_kernels_where_all_servers_are_jupyters(
    apps: list[str], line: str
) -> None:
    """Other applications have processes."""
    people = [Participant(f"t{number}", State.RUNNING, Server(app=app)) for number, app in enumerate(apps)]
    assert asked(wish_of("stop", people, None))[3] == (line, OTHERS_GO_ON)


def test_a_question_names_a_dozen_people() -> None:
    """And gives the number of the others."""
    wish = wish_of("start", [Participant(f"t{number}") for number in range(14)], None)
    assert asked(wish)[1] == "t0, t1, t2, t3, t4, t5, t6, t7, t8, t9, t10, t11, and 2 more"


OUTCOMES = {
    "all": ([Outcome("a", Result.DONE), Outcome("b", Result.UNCHANGED)], ["grace is stopping 1 server."]),
    "some": (
        [Outcome("a", Result.DONE), Outcome("b", Result.REFUSED, "No."), Outcome("c", Result.REFUSED, "No.")],
        ["grace is stopping 1 server.", "Stop was refused for 2 people: No."],
    ),
    "none": ([Outcome("a", Result.REFUSED, "No.")], ["Stop was refused for 1 person: No."]),
    "nothing": ([Outcome("a", Result.UNCHANGED)], ["grace: Stop. There was nothing to do."]),
    "too many reasons": (
        [Outcome(str(number), Result.REFUSED, f"{number}.") for number in range(5)],
        ["Stop was refused for 5 people: 0. 1. 2. …"],
    ),
}


@pytest.mark.parametrize(("outcomes", "lines"), OUTCOMES.values(), ids=OUTCOMES.keys())
def test_what_is_told_of_an_action(outcomes: list[Outcome], lines: list[str]) -> None:
    """For how many it was done, and for whom not and why."""
    assert result_line("stop", "grace", outcomes) == lines


DAY = 86400.0
SESSIONS = {
    "before one": (
        NOW - DAY,
        f"Next session: {moment(ENDS.timestamp() - 3 * 3600)} · until {moment(ENDS)} · Servers are started from "
        f"{moment(ENDS.timestamp() - 3 * 3600 - 600)} on.",
    ),
    "in one": (NOW, f"Session now, until {moment(ENDS)}"),
    "after the last one": (NOW + 3 * DAY, "There is no further session."),
}


@pytest.mark.parametrize(("now", "text"), SESSIONS.values(), ids=SESSIONS.keys())
def test_the_session_now_or_next(now: float, text: str) -> None:
    """With its times, and when the hub starts servers for it."""
    assert above(viewed(a_course(), now=now))["session"] == text


def test_before_its_session_a_course_tells_how_many_are_on_it() -> None:
    """And nothing of servers, until there is one of the course."""
    course = a_course()
    views = [
        course_view(course, participants_of(course, servers, now=now), now=now)
        for now, servers in ((NOW - DAY, ()), (NOW - DAY, SERVERS[:1]), (NOW, ()))
    ]
    assert [above(view)["totals"] for view in views] == [
        "4 people on the course",
        "4 people 1 running 3 without a server Select these",
        "4 people 4 without a server Select these",
    ]


def in_line(number: int, rank: int = 0, **more: Any) -> list[Participant]:
    """So many people whose job waits."""
    server = Server(pending="spawn", job=pending("Resources"), rank=rank)
    return [Participant(f"w{rank}{index}", State.WAITING, server, **more) for index in range(number)]


def all_in(state: State, number: int = 1, **more: Any) -> list[Participant]:
    """So many people in this state."""
    return [Participant(f"{state.value}{index}", state, **more) for index in range(number)]


RUN, NONE = all_in(State.RUNNING, 4), all_in(State.ABSENT, 2)
UNKNOWN = "How many more servers fit is not known at the moment."
SOON = "Everybody has a server, or one that starts or waits in line."
LATE = "By estimate 7 of those who wait get no server before the session ends."
SEATS: dict[str, tuple[list[Participant], Sequence[int] | None, str]] = {
    "nothing is known of the cluster": ([*RUN, *NONE], None, UNKNOWN),
    "nothing is known, and nobody is without": (RUN, None, "Everybody has a server."),
    "all run": (RUN, [3], "Everybody has a server."),
    "one starts": ([*RUN, *all_in(State.STARTING)], [3], SOON),
    "one waits": ([*RUN, *in_line(1)], [0], SOON),
    "one is being stopped": (
        [*RUN, *all_in(State.STOPPING)],
        [0],
        "By estimate there is no room for more servers; 1 person has none.",
    ),
    "two have none, and there is room for one": (
        [*RUN, *NONE],
        [1],
        "By estimate there is room for 1 more server; 2 people have none.",
    ),
    "two have none, and there is room": (
        [*RUN, *NONE],
        [3],
        "By estimate there is room for all who have no server (2 more servers).",
    ),
    "those who wait take seats": (
        [*in_line(1), *NONE],
        [1],
        "By estimate there is no room for more servers; 2 people have none.",
    ),
    "those who wait for one profile take none of another": (
        [*in_line(1), *NONE],
        [0, 1, 0],
        "By estimate there is room for 1 more server; 2 people have none.",
    ),
    "those whose turn comes take the next of any profile": (
        [*in_line(1), *all_in(State.STARTING, queued=True), *NONE],
        [0, 2],
        "By estimate there is room for 1 more server; 2 people have none.",
    ),
    "seven wait until after the session": ([*RUN, *in_line(7, too_late=True), *in_line(1)], [0], LATE),
    "seven do, and two other profiles have seats": (
        [*RUN, *in_line(7, too_late=True)],
        [0, 3, 5],
        f"{LATE} Free now: 3 with profile p1, 5 with profile p2. Stop the servers of those who wait, and start them "
        "again: they are put there.",
    ),
    "seven do, and those without a server need these seats": (
        [*in_line(7, too_late=True), *NONE],
        [0, 2],
        f"By estimate there is room for all who have no server (2 more servers). {LATE}",
    ),
    "one waits for what does not come": (
        [*RUN, *in_line(1, stuck=True, too_late=True)],
        [3],
        "1 person waits for something that does not pass by itself.",
    ),
}


@pytest.mark.parametrize(("room", "seats", "sentences"), SEATS.values(), ids=SEATS.keys())
def test_whether_everybody_has_a_server_or_gets_one_in_the_session(
    room: list[Participant], seats: Sequence[int] | None, sentences: str
) -> None:
    """Of several profiles, whoever waits for one waits for that one."""
    free = None if seats is None else [FreeSeats(f"p{rank}", number) for rank, number in enumerate(seats)]
    assert above(course_view(a_course(), room, now=NOW, seats=free))["seats"] == sentences


def failed_on(node: str, user: str, subject: str = "CUDA/99") -> Participant:
    """Somebody whose start failed on this node for want of a module."""
    job = Job(f"1{node[-1]}", Phase.ENDED, batch_host=node, end=End.FAILED)
    ending = Ending(start_failed("module"), at=NOW, job_id=job.job_id, job=job, subject=subject, lines=f"of {user}")
    return Participant(user, State.FAILED, Server(user, ending=ending))


def test_those_who_need_help_are_told_by_cause() -> None:
    """With all the nodes on which it happened, and one log; the most frequent comes first."""
    stuck = Participant("eve", State.WAITING, starting(pending("BadConstraints")), stuck=True)
    room = (stuck, failed_on("g1", "ann"), *all_in(State.RUNNING), failed_on("g3", "ben"), failed_on("g1", "cleo", "R"))
    view = course_view(a_course(), room, now=NOW)
    shown = [
        tuple(text_of(str(part)) for part in item.select(".gs-state, .gpuspawner-names, .gs-log, p:nth-child(2)"))
        for item in BeautifulSoup(head_of(view), "html.parser").select(".gpuspawner-causes > li")
    ]
    assert shown == [
        ("2 did not start", "The module CUDA/99 cannot be loaded on g1, g3.", "ann, ben", "of ann"),
        ("1 in line", "No node can satisfy the job's request.", "eve"),
        ("1 did not start", "The module R cannot be loaded on g1.", "cleo", "of cleo"),
    ]


BEFORE = NOW - DAY


def checked(*problems: str, hints: Sequence[str] = ()) -> SessionCheck:
    """The check of the session, made the evening before."""
    course = a_course()
    seats = SeatCount(4, 6, 3, waiting={"Resources": 1})
    remarks = (*(Problem("seats", text) for text in problems), *(Problem("seats", text, hint=True) for text in hints))
    return SessionCheck(course, SessionReport(course.sessions[0], 4, seats, remarks=remarks), BEFORE)


COUNTED: dict[str, tuple[float, dict[str, Any], str | None]] = {
    "with its time": (
        BEFORE,
        {"counting": "counted", "check": checked()},
        f"Counted {moment(BEFORE)} for the next session: 4 people, 3 fit.",
    ),
    "not yet": (BEFORE, {"counting": "never"}, "The seats of the next session have not been counted yet."),
    "not this time": (
        BEFORE,
        {"counting": "failed", "check": checked()},
        "The seats of the next session could not be counted. The hub's log says why.",
    ),
    "now": (
        BEFORE,
        {"counting": "now", "check": checked()},
        "The seats of the next session are being counted.",
    ),
    "after the last session": (NOW + 3 * DAY, {}, None),
}


@pytest.mark.parametrize(("now", "more", "line"), COUNTED.values(), ids=COUNTED.keys())
def test_the_seats_of_the_next_session_are_told_as_they_were_counted_last(
    now: float, more: dict[str, Any], line: str | None
) -> None:
    """The page never counts them itself."""
    assert above(viewed(a_course(), now=now, **more)).get("check") == line


def test_what_the_check_found_is_on_the_page() -> None:
    """What is wrong, as a warning; and what is worth knowing, which is none."""
    wrong, good = "3 of 4 start; 1 waits: Resources.", "3 get profile mig, 0 get profile k80."
    view = viewed(a_course(), now=BEFORE, check=checked(wrong, hints=[good]))
    soup = BeautifulSoup(head_of(view), "html.parser")

    assert [item.get_text() for item in soup.select(".gs-note li")] == [wrong]
    assert [item.get_text() for item in soup.select(".gpuspawner-check-note")] == [good]
    assert not BeautifulSoup(
        head_of(viewed(a_course(), now=BEFORE, check=checked(hints=[good]))), "html.parser"
    ).select(".gs-note")


def head_of(view: CourseView) -> str:
    """The HTML of what stands above the tiles."""
    return str(ENVIRONMENT.get_template("course_head.html").render(view=view, gpuspawner=PAGE_TOOLS))


def test_the_faults_of_a_course_and_what_is_done_about_them() -> None:
    """The last good version goes on; a file that was never good offers nothing."""
    fault = ConfigError("to must be later than from", where="deep-learning.yaml:7: sessions[0].to")
    view = viewed(a_course(fault, [str(fault), "The roster names groups that JupyterHub does not have: ml."]))
    never = HubCourse("new", CourseFile("new", fault=fault), faults=(str(fault),))
    bad = course_view(never, (), now=NOW)

    assert view.faults == (str(fault), "The roster names groups that JupyterHub does not have: ml.")
    assert "Until they are corrected, the last version without a mistake is used." in text_of(head_of(view))
    assert (bad.title, bad.faults, above(bad)) == ("new", (str(fault),), {"session": "There is no further session."})
    assert "There is no earlier version without a mistake, so the course is not offered." in text_of(head_of(bad))


def test_endings_of_earlier_sessions_are_not_told() -> None:
    """In a session they count from an hour before its beginning; otherwise for twelve hours, but not those of it."""
    end = ENDS.timestamp()
    moments = (NOW, NOW - DAY, end + 3600, end + DAY)
    assert [since(a_course(), now) for now in moments] == [
        end - 4 * 3600,
        NOW - DAY - 12 * 3600,
        end,
        end + DAY - 12 * 3600,
    ]


def rendered(tiles: Sequence[Tile]) -> list[str]:
    """The tiles as HTML."""
    module: Any = ENVIRONMENT.get_template("course_tiles.html").make_module({"gpuspawner": PAGE_TOOLS})
    return [str(module.tile(tile)) for tile in tiles]


def test_every_text_of_a_tile_is_escaped() -> None:
    """Names, nodes, sentences and logs come from users, nodes and Slurm."""
    bad = '"><script>alert(1)</script>'
    (html,) = rendered(
        [Tile(bad, "failed", True, bad, lines=(Line(bad), Line(bad + "{time}", NOW)), log=bad, actions=RETRY_ACTIONS)]
    )
    soup = BeautifulSoup(html, "html.parser")
    assert soup.select("script") == []
    assert soup.get_text().count(bad) == 4
    assert [box["value"] for box in soup.select("input")] == [f"{quote(bad, safe='')}/"]


def test_every_text_above_the_tiles_is_escaped() -> None:
    """Faults, problems and actions contain words of the file's author and of users."""
    bad = '"><script>alert(1)</script>'
    course = replace(a_course(faults=[bad]), added=(bad,))
    failed = Participant(bad, State.FAILED, Server(bad, ending=replace(DIED, quoted=Words(bad), lines=bad)))
    room = (*participants_of(course, SERVERS, now=NOW), *in_line(1, too_late=True), failed)
    seats = [FreeSeats("k80", 0), FreeSeats(bad, 9)]
    check = checked(bad, hints=[bad])
    view = course_view(course, room, now=NOW, seats=seats, check=check, recent=[Line(bad, NOW)])
    soup = BeautifulSoup(head_of(view), "html.parser")
    assert soup.select("script") == []
    assert soup.get_text().count(bad) == 13
    assert [button["value"] for button in soup.select("[name=remove]")] == [bad]
    assert f"start\n{quote(bad, safe='')}/" in [button["value"] for button in soup.select("[name=these]")]


class ChangePoller(CoursePageState):
    """A page of views that are looked at one after the other."""

    def __init__(self, *views: CourseView) -> None:
        self.views = list(views)
        self.rendered: list[list[str]] = []
        self.at = 0.0
        super().__init__("ml", {}, lambda name, **_: ENVIRONMENT.get_template(name), PAGE_TOOLS, clock=lambda: self.at)

    async def view(self) -> CourseView:
        self.rendered.append([])
        return self.views.pop(0)

    def rendered_head(self, view: CourseView) -> str:
        return view.title

    def rendered_tile(self, tile: Tile) -> str:
        self.rendered[-1].append(tile.user)
        return f"{tile.user} {tile.state}"

    async def later(self) -> CourseSnapshot:
        self.at += 3.0
        return await self.recent()


async def test_a_page_is_made_once_for_all_who_look_and_only_changes_are_rendered_and_sent() -> None:
    """A page of an older version gets everything."""
    first = viewed(a_course())
    changed = replace(first, title="2 running", tiles=(replace(first.tiles[0], state="stopping"), *first.tiles[1:]))
    page, order = ChangePoller(first, first, changed), ["train1", "train2", "train3", "train4"]

    one, *others = await asyncio.gather(page.recent(), page.recent(), page.recent())
    same, two = await page.later(), await page.later()

    assert others == [one, one]
    assert page.rendered == [order, [], ["train1"]]
    assert list(one.tiles) == order
    assert one.version == same.version != two.version
    assert json.loads(two.event_since(same)) == {
        "version": two.version,
        "head": "2 running",
        "order": order,
        "tiles": {"train1": "train1 stopping"},
    }
    everything = json.loads(two.event_since(None))
    assert everything["tiles"] == dict(two.tiles)
    assert list(everything["tiles"]) == order


async def test_a_page_without_javascript_has_the_time_left_of_now() -> None:
    """The tile is rendered again when the time left has changed; no event is sent for that."""
    server = SERVERS[:1]
    course = a_course()
    views = [course_view(course, participants_of(course, server, now=now), now=now) for now in (NOW, NOW + 60)]
    page = ChangePoller(*views)

    before, after = await page.recent(), await page.later()

    assert page.rendered[1] == ["train1"]
    assert after.version == before.version


async def test_after_an_action_the_page_is_made_anew() -> None:
    """Also while an older one is still being made; the newer one is the last."""
    first = viewed(a_course())
    second = replace(first, title="after the action")
    page = ChangePoller(first, second)

    older = asyncio.ensure_future(page.recent())
    await asyncio.sleep(0)
    page.expire()
    titles = [snapshot.view.title for snapshot in (await page.recent(), await older, await page.recent())]

    assert titles == [second.title, first.title, second.title]


async def test_a_stream_tells_each_change_once() -> None:
    """And is silent in between."""
    first = viewed(a_course())
    page, events = ChangePoller(first, first, replace(first, title="2 running")), list[str]()
    async for event in page.events((await page.recent()).version, interval=0.0):
        events.append(json.loads(event)["head"] if event else "")
        page.at += 1.0
        if len(events) == 3:
            break

    assert events == ["", "", "2 running"]


def test_the_seats_are_counted_again_soon_after_a_server_has_ended() -> None:
    """Fifteen seconds may pass between two counts, and as many since Slurm was asked; five while seats become free."""
    age, both, one = SeatsAge(), frozenset({"ada", "bob"}), frozenset({"ada"})
    steps = [(both, 0.0), (one, 20.0), (one, 34.0), (one, 35.0), (both, 36.0), (frozenset({"bob"}), 40.0)]

    assert [age.at_most(active, now) for active, now in steps] == [15.0, 5.0, 5.0, 15.0, 15.0, 5.0]
