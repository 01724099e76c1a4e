"""What the start ahead of a session does for one person."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.hub.course.ahead import ServerFacts, Step, Window, facts_of, next_step
from jupyterhub_gpuspawner.hub.course.participants import CourseStart, Stage
from jupyterhub_gpuspawner.hub.job.ending import Ending
from jupyterhub_gpuspawner.hub.spawners.server import Server

TIMES, BY_HAND_TIMES = Window("2026-03-02", 3400.0), Window("2026-03-02")
SINCE = 1800.0
BEFORE, DURING, LATE = 1100.0, 2000.0, 3500.0
NOTHING = ServerFacts()
SUBMITTING = ServerFacts(active=True)
STARTING = ServerFacts(active=True, has_job=True)
READY = ServerFacts(active=True, ready=True, last_activity=1150.0)
VISITED = ServerFacts(active=True, ready=True, last_activity=1700.0)
FAILED = ServerFacts(failure="No GPU is free.")


def start(stage: Stage, *, tries: int = 1, asked_at: float = 1005.0, ready_at: float = 0.0) -> CourseStart:
    """The record of a start for ada."""
    return CourseStart("ada", stage, tries, asked_at, ready_at)


CASES = {
    "the session is near": (None, NOTHING, BEFORE, Step.START),
    "a failure of yesterday is no obstacle": (None, FAILED, BEFORE, Step.START),
    "a server runs already": (None, VISITED, BEFORE, Step.LEAVE),
    "a server is starting already": (None, STARTING, BEFORE, Step.LEAVE),
    "too late to start": (None, NOTHING, LATE, Step.NOTHING),
    "a server that was left has ended": (start(Stage.LEFT), NOTHING, DURING, Step.NOTHING),
    "a server that was left is idle": (start(Stage.LEFT, ready_at=1100), READY, LATE, Step.NOTHING),
    "it is being submitted": (start(Stage.ASKED), SUBMITTING, BEFORE, Step.NOTHING),
    "it has been submitted": (start(Stage.ASKED), STARTING, BEFORE, Step.NOTE_SUBMITTED),
    "it has been submitted though the time is over": (start(Stage.ASKED), STARTING, LATE, Step.NOTE_SUBMITTED),
    "it is starting": (start(Stage.STARTED), STARTING, BEFORE, Step.NOTHING),
    "it has become ready": (start(Stage.STARTED), READY, BEFORE, Step.NOTE_READY),
    "it has become ready though the hub was killed": (start(Stage.ASKED), READY, BEFORE, Step.NOTE_READY),
    "its start has failed": (start(Stage.STARTED), FAILED, BEFORE, Step.NOTE_FAILURE),
    "it has ended, or somebody stopped it": (start(Stage.STARTED), NOTHING, BEFORE, Step.NOTHING),
    "it ran, and has failed since": (start(Stage.STARTED, ready_at=1100), FAILED, DURING, Step.NOTHING),
    "a failure is tried again": (start(Stage.FAILED), NOTHING, BEFORE, Step.START),
    "but not at once": (start(Stage.FAILED, asked_at=1090), NOTHING, BEFORE, Step.NOTHING),
    "and not for ever": (start(Stage.FAILED, tries=3), NOTHING, BEFORE, Step.NOTHING),
    "and not when the time is over": (start(Stage.FAILED), NOTHING, LATE, Step.NOTHING),
    "the hub was killed before the answer": (start(Stage.ASKED), NOTHING, BEFORE, Step.START),
    "the last try has failed without an answer": (start(Stage.ASKED, tries=3), FAILED, BEFORE, Step.NOTE_FAILURE),
    "somebody stopped it before the answer": (start(Stage.ASKED), ServerFacts(stopped_at=1010.0), BEFORE, Step.LEAVE),
    "somebody stopped the one of yesterday": (start(Stage.ASKED), ServerFacts(stopped_at=1000.0), BEFORE, Step.START),
    "nobody has come yet": (start(Stage.STARTED, ready_at=1140), READY, DURING, Step.NOTHING),
    "nobody has come": (start(Stage.STARTED, ready_at=1140), READY, LATE, Step.STOP_UNVISITED),
    "nobody has ever been active": (
        start(Stage.STARTED, ready_at=1140),
        ServerFacts(active=True, ready=True),
        LATE,
        Step.STOP_UNVISITED,
    ),
    "somebody has come": (start(Stage.STARTED, ready_at=1140), VISITED, DURING, Step.NOTE_VISIT),
    "somebody has come, and left again": (start(Stage.VISITED, ready_at=1140), READY, LATE, Step.NOTHING),
    "the proxy was restarted with the hub": (
        start(Stage.STARTED, ready_at=1140),
        ServerFacts(active=True, ready=True, last_activity=SINCE + 1),
        LATE,
        Step.STOP_UNVISITED,
    ),
    "started again by hand after that": (start(Stage.UNVISITED), VISITED, LATE, Step.NOTHING),
}


BY_HAND = {
    "nobody has asked for it": (None, NOTHING, BEFORE, Step.NOTHING),
    "it has failed": (start(Stage.FAILED), NOTHING, DURING, Step.NOTHING),
    "it is ready": (start(Stage.STARTED, ready_at=1100), READY, LATE, Step.NOTHING),
    "its turn did not come before the hub was restarted": (start(Stage.ASKED, tries=0), NOTHING, BEFORE, Step.START),
    "an old failure is no obstacle to its turn": (start(Stage.ASKED, tries=0), FAILED, BEFORE, Step.START),
    "the hub was away for an hour": (start(Stage.ASKED, tries=0), NOTHING, 1005.0 + 3600, Step.LEAVE),
    "the hub was killed before the answer": (start(Stage.ASKED), NOTHING, BEFORE, Step.START),
    "a moment ago": (start(Stage.ASKED, asked_at=1090), NOTHING, BEFORE, Step.NOTHING),
    "it failed after the answer": (start(Stage.ASKED), FAILED, BEFORE, Step.NOTE_FAILURE),
    "it is being submitted": (start(Stage.ASKED), SUBMITTING, BEFORE, Step.NOTHING),
    "it has been submitted": (start(Stage.ASKED), STARTING, BEFORE, Step.NOTE_SUBMITTED),
    "it has become ready": (start(Stage.ASKED), READY, BEFORE, Step.NOTE_READY),
    "it was stopped, or has ended, since": (start(Stage.ASKED), ServerFacts(stopped_at=1010.0), BEFORE, Step.LEAVE),
}


@pytest.mark.parametrize(("record", "found", "now", "step"), BY_HAND.values(), ids=BY_HAND.keys())
def test_the_next_step_of_a_start_by_hand(
    record: CourseStart | None, found: ServerFacts, now: float, step: Step
) -> None:
    """It is made once its turn comes, in whatever hub; what failed is for the instructor to see."""
    assert next_step(record, found, BY_HAND_TIMES, now) is step


def test_a_failure_before_a_start_is_none_of_its_own() -> None:
    """One without a time may be."""
    failed = [facts_of(Server(ending=Ending("No.", at=at)), asked_at=1005.0).failure for at in (1004.0, 1006.0, None)]
    assert failed == ["", "No.", "No."]


@pytest.mark.parametrize(("record", "found", "now", "step"), CASES.values(), ids=CASES.keys())
def test_the_next_step_for_one_person(record: CourseStart | None, found: ServerFacts, now: float, step: Step) -> None:
    """A session of 1600 to 9000; servers are started from 1000 on, and stopped at 3400 where nobody came.

    The hub was started again at 1800.
    """
    assert next_step(record, found, TIMES, now, since=SINCE) is step


SERVERS = {
    "none": (Server(), ServerFacts()),
    "one that starts": (Server(pending="spawn"), ServerFacts(active=True)),
    "one that waits in the queue": (Server(pending="spawn", job_id="7"), ServerFacts(active=True, has_job=True)),
    "one that runs": (Server(ready=True, job_id="7"), ServerFacts(active=True, ready=True, has_job=True)),
    "one that did not start": (Server(ending=Ending("No GPU is free.")), ServerFacts(failure="No GPU is free.")),
    "one that ran and ended": (Server(ending=Ending("Its time was up.", served=True)), ServerFacts()),
    "one that ran and ended then": (Server(ending=Ending("", at=1010.0, served=True)), ServerFacts(stopped_at=1010.0)),
    "one that a person stopped": (
        Server(stopped=Ending("Stopped at {time}.", at=1010.0, stopped=True), failure=RuntimeError("cancelled")),
        ServerFacts(stopped_at=1010.0),
    ),
    "one of another spawner that did not start": (
        Server(failure=RuntimeError("no")),
        ServerFacts(failure="The server did not start."),
    ),
}


@pytest.mark.parametrize(("server", "found"), SERVERS.values(), ids=SERVERS.keys())
def test_what_is_known_of_a_server(server: Server, found: ServerFacts) -> None:
    """A failure is that of the last start; a server that ran, or that a person stopped, has not failed."""
    assert facts_of(server) == found
