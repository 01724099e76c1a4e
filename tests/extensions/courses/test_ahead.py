"""What the start ahead of a session does for one person."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyterhub_gpuspawner.extensions.courses.ahead import Step, Window, failure_of, next_step
from jupyterhub_gpuspawner.extensions.courses.participants import CourseStart, Stage
from jupyterhub_gpuspawner.hub.job.cause import Cause, Kind, start_failed
from jupyterhub_gpuspawner.hub.job.ending import Ending
from jupyterhub_gpuspawner.hub.spawners.server import Server

TIMES, BY_HAND_TIMES = Window("2026-03-02", 3400.0, 1000.0), Window("2026-03-02")
SINCE = 1800.0
BEFORE, DURING, LATE = 1100.0, 2000.0, 3500.0
NOTHING, SUBMITTING = Server("ada"), Server("ada", pending="spawn")
STARTING = Server("ada", pending="spawn", job_id="7")
READY = Server("ada", ready=True, job_id="7")
UNREACHABLE = "The server was started, but the hub cannot reach it."
FAILED = Server("ada", ending=Ending(start_failed("unreachable")))
ENDED = Server("ada", ending=Ending(Cause(Kind.TIME_LIMIT), at=1010.0))
COLD, WARM = 1150.0, 1700.0
"""When somebody was last active, before and after anybody has come."""


def start(stage: Stage, *, tries: int = 1, asked_at: float = 1005.0, ready_at: float = 0.0) -> CourseStart:
    """The record of a start for ada."""
    return CourseStart("ada", stage, tries, asked_at, ready_at)


def stopped(at: float) -> Server:
    """A server that a person stopped then, whose start failed because of that."""
    return Server("ada", ending=Ending(Cause(Kind.STOPPED_BY_USER), at=at), failure=RuntimeError("cancelled"))


LEFT, SUBMITTED = CourseStart("ada", Stage.LEFT, asked_at=BEFORE), start(Stage.STARTED)
IS_READY = start(Stage.STARTED, ready_at=BEFORE)
IS_FAILURE = replace(start(Stage.FAILED, asked_at=BEFORE), fault=UNREACHABLE)
ANEW = CourseStart("ada", Stage.ASKED, asked_at=BEFORE)
EARLIER = 900.0
WAITED_FOR = start(Stage.STARTED, ready_at=1140)
CASES: dict[str, tuple[CourseStart | None, Server, float, Step | CourseStart]] = {
    "the session is near": (None, NOTHING, BEFORE, Step.START),
    "a failure of yesterday is no obstacle": (None, FAILED, BEFORE, Step.START),
    "a start by hand of the evening before has ended": (
        start(Stage.STARTED, tries=3, asked_at=EARLIER, ready_at=950.0),
        NOTHING,
        BEFORE,
        ANEW,
    ),
    "an instructor stopped it the evening before": (start(Stage.LEFT, asked_at=EARLIER), NOTHING, BEFORE, ANEW),
    "a start by hand of the evening before failed": (start(Stage.FAILED, asked_at=EARLIER), FAILED, BEFORE, ANEW),
    "one of the evening before still runs": (
        start(Stage.STARTED, asked_at=EARLIER, ready_at=950.0),
        READY,
        BEFORE,
        replace(start(Stage.STARTED, asked_at=EARLIER, ready_at=950.0), stage=Stage.VISITED),
    ),
    "too late for what was asked for the evening before": (
        start(Stage.LEFT, asked_at=EARLIER),
        NOTHING,
        LATE,
        Step.NOTHING,
    ),
    "a server runs already": (None, READY, BEFORE, LEFT),
    "a server is starting already": (None, STARTING, BEFORE, LEFT),
    "too late to start": (None, NOTHING, LATE, Step.NOTHING),
    "a server that was left has ended": (start(Stage.LEFT), NOTHING, DURING, Step.NOTHING),
    "a server that was left is idle": (start(Stage.LEFT, ready_at=1100), READY, LATE, Step.NOTHING),
    "it is being submitted": (start(Stage.ASKED), SUBMITTING, BEFORE, Step.NOTHING),
    "it has been submitted": (start(Stage.ASKED), STARTING, BEFORE, SUBMITTED),
    "it has been submitted though the time is over": (start(Stage.ASKED), STARTING, LATE, SUBMITTED),
    "it is starting": (start(Stage.STARTED), STARTING, BEFORE, Step.NOTHING),
    "it has become ready": (start(Stage.STARTED), READY, BEFORE, IS_READY),
    "it has become ready though the hub was killed": (start(Stage.ASKED), READY, BEFORE, IS_READY),
    "its start has failed": (start(Stage.STARTED), FAILED, BEFORE, IS_FAILURE),
    "it has ended, or somebody stopped it": (start(Stage.STARTED), NOTHING, BEFORE, Step.NOTHING),
    "it ran, and has failed since": (start(Stage.STARTED, ready_at=1100), FAILED, DURING, Step.NOTHING),
    "a failure is tried again": (start(Stage.FAILED), NOTHING, BEFORE, Step.START),
    "but not at once": (start(Stage.FAILED, asked_at=1090), NOTHING, BEFORE, Step.NOTHING),
    "and not for ever": (start(Stage.FAILED, tries=3), NOTHING, BEFORE, Step.NOTHING),
    "and not when the time is over": (start(Stage.FAILED), NOTHING, LATE, Step.NOTHING),
    "the hub was killed before the answer": (start(Stage.ASKED), NOTHING, BEFORE, Step.START),
    "the last try has failed without an answer": (
        start(Stage.ASKED, tries=3),
        FAILED,
        BEFORE,
        replace(IS_FAILURE, tries=3),
    ),
    "somebody stopped it before the answer": (start(Stage.ASKED), stopped(1010.0), BEFORE, LEFT),
    "somebody stopped the one of yesterday": (start(Stage.ASKED), stopped(1000.0), BEFORE, Step.START),
    "it ran and ended before the answer": (start(Stage.ASKED), ENDED, BEFORE, LEFT),
    "nobody has come yet": (WAITED_FOR, READY, DURING, Step.NOTHING),
    "nobody has come": (WAITED_FOR, READY, LATE, Step.STOP_UNVISITED),
    "somebody has come, and left again": (start(Stage.VISITED, ready_at=1140), READY, LATE, Step.NOTHING),
    "started again by hand after that": (start(Stage.UNVISITED), READY, LATE, Step.NOTHING),
}
VISITS: dict[str, tuple[float | None, Step | CourseStart]] = {
    "somebody has come": (WARM, replace(WAITED_FOR, stage=Stage.VISITED)),
    "nobody has ever been active": (None, Step.STOP_UNVISITED),
    "the proxy was restarted with the hub": (SINCE + 1, Step.STOP_UNVISITED),
}


@pytest.mark.parametrize(("last_activity", "step"), VISITS.values(), ids=VISITS.keys())
def test_a_server_that_nobody_has_opened_in_time_is_stopped(last_activity: float, step: Step | CourseStart) -> None:
    """What server and proxy do by themselves is no sign of a visit."""
    assert next_step(WAITED_FOR, READY, TIMES, LATE, since=SINCE, last_activity=last_activity) == step


BY_HAND: dict[str, tuple[CourseStart | None, Server, float, Step | CourseStart]] = {
    "nobody has asked for it": (None, NOTHING, BEFORE, Step.NOTHING),
    "it has failed": (start(Stage.FAILED), NOTHING, DURING, Step.NOTHING),
    "it is ready": (IS_READY, READY, LATE, Step.NOTHING),
    "its turn did not come before the hub was restarted": (start(Stage.ASKED, tries=0), NOTHING, BEFORE, Step.START),
    "an old failure is no obstacle to its turn": (start(Stage.ASKED, tries=0), FAILED, BEFORE, Step.START),
    "the hub was away for an hour": (
        start(Stage.ASKED, tries=0),
        NOTHING,
        1005.0 + 3600,
        replace(LEFT, asked_at=1005.0 + 3600),
    ),
    "the hub was killed before the answer": (start(Stage.ASKED), NOTHING, BEFORE, Step.START),
    "a moment ago": (start(Stage.ASKED, asked_at=1090), NOTHING, BEFORE, Step.NOTHING),
    "it failed after the answer": (start(Stage.ASKED), FAILED, BEFORE, IS_FAILURE),
    "it is being submitted": (start(Stage.ASKED), SUBMITTING, BEFORE, Step.NOTHING),
    "it has been submitted": (start(Stage.ASKED), STARTING, BEFORE, SUBMITTED),
    "it has become ready": (start(Stage.ASKED), READY, BEFORE, IS_READY),
    "it was stopped, or has ended, since": (start(Stage.ASKED), stopped(1010.0), BEFORE, LEFT),
}


@pytest.mark.parametrize(("record", "server", "now", "step"), BY_HAND.values(), ids=BY_HAND.keys())
def test_the_next_step_of_a_start_by_hand(
    record: CourseStart | None, server: Server, now: float, step: Step | CourseStart
) -> None:
    """It is made once its turn comes, in whatever hub; what failed is for the instructor to see."""
    assert next_step(record, server, BY_HAND_TIMES, now) == step


@pytest.mark.parametrize(("record", "server", "now", "step"), CASES.values(), ids=CASES.keys())
def test_the_next_step_for_one_person(
    record: CourseStart | None, server: Server, now: float, step: Step | CourseStart
) -> None:
    """A session of 1600 to 9000; servers are started from 1000 on, and stopped at 3400 where nobody came.

    The hub was started again at 1800.
    """
    assert next_step(record, server, TIMES, now, since=SINCE, last_activity=COLD) == step


FAILURES = {
    "none": (Server(), None),
    "one that ran and ended": (ENDED, None),
    "one that a person stopped": (stopped(1010.0), None),
    "one that did not start, nobody knows when": (FAILED, UNREACHABLE),
    "one that did not start since": (Server(ending=Ending(start_failed("unreachable"), at=1006.0)), UNREACHABLE),
    "one that did not start before": (Server(ending=Ending(start_failed("unreachable"), at=1004.0)), None),
    "one of another spawner that did not start": (Server(failure=RuntimeError("no")), "The server did not start."),
}


@pytest.mark.parametrize(("server", "failure"), FAILURES.values(), ids=FAILURES.keys())
def test_a_failure_is_that_of_the_last_start(server: Server, failure: str | None) -> None:
    """A server that ran, or that a person stopped, has not failed."""
    assert failure_of(server, 1005.0) == failure
