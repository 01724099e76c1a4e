"""A start is given up by elapsed time, whatever the wall clock says in the next hub; time in the queue is apart."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from jupyterhub_gpuspawner.hub.start.attempt import (
    AFTER_RESTART,
    Clocks,
    Moment,
    Stage,
    StartClock,
    Timeouts,
    clocks,
    new_clock,
    parse_moment,
    restored_clock,
)
from jupyterhub_gpuspawner.jobs.status import JobStatus, Phase

NOW = Clocks(wall=1_000_000.0, since_boot=5_000.0, boot="this")


def later(seconds: float) -> Clocks:
    """The clocks so many seconds after :data:`NOW`."""
    return replace(NOW, wall=NOW.wall + seconds, since_boot=NOW.since_boot + seconds)


PASSED: dict[str, tuple[Clocks, float]] = {
    "at once": (NOW, 0.0),
    "after a minute": (later(60), 60.0),
    "the clock was set back by an hour": (replace(later(60), wall=NOW.wall - 3540), 60.0),
    "the clock was set forward by an hour": (replace(later(60), wall=NOW.wall + 3660), 60.0),
    "another boot, a minute later": (Clocks(NOW.wall + 60, 10.0, "another"), 60.0),
    "another boot, and the clock was set back": (Clocks(NOW.wall - 3600, 10.0, "another"), 0.0),
    "another boot, much later": (Clocks(NOW.wall + 3600, 10.0, "another"), 3600.0),
    "a kernel that does not tell its boot": (Clocks(NOW.wall + 60, 5_060.0, ""), 60.0),
}


@pytest.mark.parametrize(("then", "passed"), PASSED.values(), ids=PASSED.keys())
def test_how_much_time_has_passed(then: Clocks, passed: float) -> None:
    """By the time since boot in the same boot, else by the wall clock, and never less than nothing."""
    moment = parse_moment(json.loads(json.dumps(Moment.before(NOW).to_json())))

    assert moment is not None
    assert moment.elapsed(then) == passed


STORED: dict[str, tuple[Any, Moment | None]] = {
    "nothing": (None, None),
    "an empty list": ([], None),
    "a truth value": ([True], None),
    "the wall clock": ([7], Moment(7)),
    "a damaged clock": ([7, "this", "soon"], Moment(7)),
    "a clock without a boot": ([7, "", 3.5], Moment(7)),
    "both": ([7, "this", 3.5], Moment(7, 3.5, "this")),
}


@pytest.mark.parametrize(("document", "moment"), STORED.values(), ids=STORED.keys())
def test_a_moment_that_was_stored_is_read(document: Any, moment: Moment | None) -> None:
    """What cannot be read is dropped."""
    assert parse_moment(document) == moment


def test_the_machines_own_clock_goes_on() -> None:
    """The kernel has an id for each boot."""
    first, second = clocks(), clocks()

    assert first.boot == second.boot != ""
    assert first.since_boot <= second.since_boot


# --- stages ----------------------------------------------------------------------------------------

BEGUN = new_clock(Timeouts(300.0, queue=3600.0), NOW)
QUEUED = BEGUN.queued(later(2))
STARTED = replace(QUEUED, stage=Stage.START, since=Moment.before(later(1000)), starts_at=NOW.wall + 1000)
PENDING = JobStatus("7", Phase.QUEUED, "PENDING", starts_at=NOW.wall + 9000)
RUNNING = JobStatus("7", Phase.RUNNING, "RUNNING", starts_at=NOW.wall + 1000)

LEFT: dict[str, tuple[StartClock, Clocks, float | None]] = {
    "sbatch has not answered": (BEGUN, later(2), 298.0),
    "sbatch never answers": (BEGUN, later(301), 0.0),
    "it waits": (QUEUED, later(1002), 2600.0),
    "it has waited too long": (QUEUED, later(3602), 0.0),
    "it waits without a limit": (replace(QUEUED, timeouts=Timeouts(300.0)), later(10**6), None),
    "the job runs": (STARTED, later(1010), 290.0),
    "the job runs for too long": (STARTED, later(1300), 0.0),
    "the hub was down for long": (replace(STARTED, restored_at=Moment.before(later(5000))), later(5010), 20.0),
    "the hub was down while it waited": (replace(QUEUED, restored_at=Moment.before(later(5000))), later(5000), 30.0),
    "and had all its time since": (replace(STARTED, restored_at=Moment.before(later(5000))), later(5030), 0.0),
}


@pytest.mark.parametrize(("clock", "now", "left"), LEFT.values(), ids=LEFT.keys())
def test_what_is_left_of_a_stages_time(clock: StartClock, now: Clocks, left: float | None) -> None:
    """Each stage has its own; after a restart of the hub there is some in any case."""
    assert clock.left(now) == left


FOLLOWED: dict[str, tuple[StartClock, JobStatus | None, dict[str, Any], float, Stage, float]] = {
    "Slurm has not answered": (QUEUED, None, {}, 100, Stage.QUEUE, 2),
    "it is pending": (QUEUED, PENDING, {}, 100, Stage.QUEUE, 2),
    "its state is unknown": (QUEUED, JobStatus("7", Phase.UNKNOWN, "NEW"), {}, 100, Stage.QUEUE, 2),
    "it runs": (QUEUED, RUNNING, {}, 1003, Stage.START, 1000),
    "its node is prepared": (QUEUED, replace(RUNNING, phase=Phase.STARTING), {}, 1003, Stage.START, 1000),
    "it was seen pending a second ago": (QUEUED, RUNNING, {"since_pending": 1.0}, 1003, Stage.START, 1002),
    "slurmctld's clock is an hour slow": (
        QUEUED,
        replace(RUNNING, starts_at=NOW.wall - 2600),
        {"since_pending": 1.5},
        1003,
        Stage.START,
        1001.5,
    ),
    "it is slow, and the hub was just started": (
        QUEUED,
        replace(RUNNING, starts_at=NOW.wall - 2600),
        {},
        1003,
        Stage.START,
        2,
    ),
    "slurmctld's clock is fast": (QUEUED, replace(RUNNING, starts_at=NOW.wall + 4600), {}, 1003, Stage.START, 1003),
    "Slurm does not say when": (QUEUED, replace(RUNNING, starts_at=None), {}, 1003, Stage.START, 1003),
    "its node reports before Slurm does": (QUEUED, PENDING, {"reported": True}, 1003, Stage.START, 1003),
    "it still runs": (STARTED, RUNNING, {}, 1200, Stage.START, 1000),
    "Slurm corrects the time": (STARTED, replace(RUNNING, starts_at=NOW.wall + 1100), {}, 1200, Stage.START, 1100),
    "it was requeued": (STARTED, PENDING, {}, 1200, Stage.QUEUE, 1200),
}


@pytest.mark.parametrize(("clock", "job", "more", "now", "stage", "since"), FOLLOWED.values(), ids=FOLLOWED.keys())
def test_which_time_counts_after_an_answer(
    clock: StartClock, job: JobStatus | None, more: dict[str, Any], now: float, stage: Stage, since: float
) -> None:
    """From the allocation by Slurm's clock, but never from a time at which the job was still pending."""
    found = clock.following(job, now=later(now), **{"reported": False, "since_pending": None, **more})

    assert (found.stage, found.since) == (stage, Moment.before(later(since)))


# --- across a restart ------------------------------------------------------------------------------

SITE = Timeouts(600.0)


@pytest.mark.parametrize("clock", [BEGUN, QUEUED, STARTED, replace(QUEUED, timeouts=Timeouts(4.0))])
def test_the_next_hub_reads_the_same_clock(clock: StartClock) -> None:
    """With the time-outs of its profile, which may be another one by then."""
    state = json.loads(json.dumps({"clock": clock.to_json()}))

    assert restored_clock(state, later(50), defaults=SITE) == replace(clock, restored_at=Moment.before(later(50)))


RESTORED: dict[str, tuple[dict[str, Any], StartClock | None]] = {
    "batchspawner's": ({}, None),
    "an older version's": (
        {"start_by": 1_000_300, "start_by_boot": ["this", 5300.0], "reached": {"queued": NOW.wall - 20}},
        StartClock(SITE, Stage.QUEUE, Moment(NOW.wall - 20), restored_at=Moment.before(NOW)),
    ),
    "one that stored no times": (
        {"start_by": 1_000_300},
        StartClock(SITE, Stage.QUEUE, Moment.before(NOW), restored_at=Moment.before(NOW)),
    ),
    "one with a damaged deadline": ({"start_by": "noon"}, None),
    "a stage that is none": (
        {"clock": {**QUEUED.to_json(), "stage": "asleep"}},
        StartClock(SITE, Stage.QUEUE, Moment.before(NOW), restored_at=Moment.before(NOW)),
    ),
    "time-outs that are none": (
        {"clock": {**QUEUED.to_json(), "timeouts": ["long"]}},
        StartClock(SITE, Stage.QUEUE, Moment.before(NOW), restored_at=Moment.before(NOW)),
    ),
}


@pytest.mark.parametrize(("state", "clock"), RESTORED.values(), ids=RESTORED.keys())
def test_a_start_of_another_version_is_taken_up(state: dict[str, Any], clock: StartClock | None) -> None:
    """As one that waits, without a limit of the queue, until Slurm says that its job runs."""
    assert restored_clock(state, NOW, defaults=SITE) == clock
    assert AFTER_RESTART == 30.0
