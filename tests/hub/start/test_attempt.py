"""One attempt to start a server: its id and stages, and when it is given up, in this hub and in the one after it.

Elapsed time counts, whatever the wall clock says in the next hub; time in the queue is apart.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from jupyterhub_gpuspawner.hub.job.cause import Stage
from jupyterhub_gpuspawner.hub.start.attempt import (
    AFTER_RESTART,
    Attempt,
    KeptStart,
    Line,
    Moment,
    line_of,
    new_attempt,
    parse_moment,
    stored_attempt,
    stored_kept_start,
)
from jupyterhub_gpuspawner.slurm.estimate import expected, starts_now
from jupyterhub_gpuspawner.slurm.job import Job, JobIdentity, Phase

NOW = Moment(1_000_000.0, 5_000.0, "this")


def later(seconds: float) -> Moment:
    """The moment so many seconds after :data:`NOW`."""
    return NOW.ago(-seconds)


PASSED: dict[str, tuple[Moment, float]] = {
    "at once": (NOW, 0.0),
    "after a minute": (later(60), 60.0),
    "the clock was set back by an hour": (replace(later(60), wall=NOW.wall - 3540), 60.0),
    "the clock was set forward by an hour": (replace(later(60), wall=NOW.wall + 3660), 60.0),
    "another boot, a minute later": (Moment(NOW.wall + 60, 10.0, "another"), 60.0),
    "another boot, and the clock was set back": (Moment(NOW.wall - 3600, 10.0, "another"), 0.0),
    "another boot, much later": (Moment(NOW.wall + 3600, 10.0, "another"), 3600.0),
    "a kernel that does not tell its boot": (Moment(NOW.wall + 60, 5_060.0, ""), 60.0),
}


@pytest.mark.parametrize(("then", "passed"), PASSED.values(), ids=PASSED.keys())
def test_how_much_time_has_passed(then: Moment, passed: float) -> None:
    """By the time since boot in the same boot, else by the wall clock, and never less than nothing."""
    moment = parse_moment(json.loads(json.dumps(NOW.ago().to_json())))

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
    first, second = Moment.now(), Moment.now()

    assert first.boot == second.boot != ""
    assert first.elapsed(second) >= 0.0


# --- stages ----------------------------------------------------------------------------------------

BEGUN = Attempt(stage=Stage.SUBMITTED, since=NOW, start_timeout=300.0, queue_timeout=3600.0)
QUEUED = replace(BEGUN, stage=Stage.QUEUED, since=later(2))
ALLOCATED = replace(QUEUED, stage=Stage.ALLOCATED, since=later(1000), starts_at=NOW.wall + 1000)
REPORTED = replace(QUEUED, reached={Stage.STARTING: NOW.wall + 1003})
PENDING = Job("7", Phase.QUEUED, "PENDING", starts_at=NOW.wall + 9000)
RUNNING = Job("7", Phase.RUNNING, "RUNNING", starts_at=NOW.wall + 1000)

LEFT: dict[str, tuple[Attempt, Moment, float | None]] = {
    "sbatch has not answered": (BEGUN, later(2), 298.0),
    "sbatch never answers": (BEGUN, later(301), 0.0),
    "it waits": (QUEUED, later(1002), 2600.0),
    "it has waited too long": (QUEUED, later(3602), 0.0),
    "it waits without a limit": (replace(QUEUED, queue_timeout=None), later(10**6), None),
    "the job runs": (ALLOCATED, later(1010), 290.0),
    "the job runs for too long": (ALLOCATED, later(1300), 0.0),
    "the hub was down for long": (replace(ALLOCATED, restored_at=later(5000)), later(5010), 20.0),
    "the hub was down while it waited": (replace(QUEUED, restored_at=later(5000)), later(5000), 30.0),
    "and had all its time since": (replace(ALLOCATED, restored_at=later(5000)), later(5030), 0.0),
}


@pytest.mark.parametrize(("attempt", "now", "left"), LEFT.values(), ids=LEFT.keys())
def test_what_is_left_of_a_stages_time(attempt: Attempt, now: Moment, left: float | None) -> None:
    """Each stage has its own; after a restart of the hub there is some in any case."""
    assert attempt.left(now) == left


SLOW_CLOCK = replace(RUNNING, starts_at=NOW.wall - 2600)
FAST_CLOCK = replace(RUNNING, starts_at=NOW.wall + 4600)
FOLLOWED: dict[str, tuple[Attempt, Job | None, float | None, float, Stage, float]] = {
    "Slurm has not answered": (QUEUED, None, None, 100, Stage.QUEUED, 2),
    "it is pending": (QUEUED, PENDING, None, 100, Stage.QUEUED, 2),
    "its state is unknown": (QUEUED, Job("7", Phase.UNKNOWN, "NEW"), None, 100, Stage.QUEUED, 2),
    "it runs": (QUEUED, RUNNING, None, 1003, Stage.ALLOCATED, 1000),
    "its node is prepared": (QUEUED, replace(RUNNING, phase=Phase.STARTING), None, 1003, Stage.ALLOCATED, 1000),
    "it was seen pending a second ago": (QUEUED, RUNNING, 1.0, 1003, Stage.ALLOCATED, 1002),
    "slurmctld's clock is an hour slow": (QUEUED, SLOW_CLOCK, 1.5, 1003, Stage.ALLOCATED, 1001.5),
    "it is slow, and the hub was just started": (QUEUED, SLOW_CLOCK, None, 1003, Stage.ALLOCATED, 2),
    "slurmctld's clock is fast": (QUEUED, FAST_CLOCK, None, 1003, Stage.ALLOCATED, 1003),
    "Slurm does not say when": (QUEUED, replace(RUNNING, starts_at=None), None, 1003, Stage.ALLOCATED, 1003),
    "its node reports before Slurm does": (REPORTED, PENDING, None, 1003, Stage.ALLOCATED, 1003),
    "it still runs": (ALLOCATED, RUNNING, None, 1200, Stage.ALLOCATED, 1000),
    "Slurm corrects the time": (
        ALLOCATED,
        replace(RUNNING, starts_at=NOW.wall + 1100),
        None,
        1200,
        Stage.ALLOCATED,
        1100,
    ),
    "it was requeued": (ALLOCATED, PENDING, None, 1200, Stage.QUEUED, 1200),
}


@pytest.mark.parametrize(
    ("attempt", "job", "since_pending", "now", "stage", "since"), FOLLOWED.values(), ids=FOLLOWED.keys()
)
def test_which_time_counts_after_an_answer(
    attempt: Attempt, job: Job | None, since_pending: float | None, now: float, stage: Stage, since: float
) -> None:
    """From the allocation by Slurm's clock, but never from a time at which the job was still pending."""
    attempt = replace(attempt, reached=dict(attempt.reached))
    before = replace(attempt)
    moved = attempt.follow(job, later(now), since_pending=since_pending)

    assert (attempt.stage, attempt.since) == (stage, later(since))
    assert moved is (replace(attempt, reached=before.reached) != before)


def test_each_start_has_an_id_of_its_own_with_the_hubs_mark() -> None:
    """By it a job is found again."""
    first, second = (new_attempt("0a1b2c3d", start_timeout=600.0, queue_timeout=None) for _ in range(2))

    assert first.start_id.startswith("0a1b2c3d-")
    assert first.start_id != second.start_id


def test_the_queue_has_its_own_time() -> None:
    """Only while the job is pending, and only where it has a limit."""
    attempt = replace(BEGUN, reached={})
    facts = [(attempt.in_queue, attempt.left(later(2)), attempt.queued_until)]
    attempt.queued(later(2))
    facts.append((attempt.in_queue, attempt.left(later(2)), attempt.queued_until))
    moved = attempt.follow(Job("7", Phase.RUNNING), later(2), since_pending=None)
    facts.append((attempt.in_queue, attempt.left(later(2)), attempt.queued_until))

    assert facts == [(False, 298.0, None), (True, 3600.0, NOW.wall + 3602), (False, 300.0, None)]
    assert moved is True


@pytest.mark.parametrize(
    ("queue_timeout", "latest", "until"),
    [(None, None, None), (None, 4.0e9, 4.0e9), (3600.0, 4.0e9, NOW.wall + 3602)],
    ids=["without a limit", "a deadline of the job", "the queue's limit comes first"],
)
def test_until_when_a_job_keeps_its_position(
    queue_timeout: float | None, latest: float | None, until: float | None
) -> None:
    """Also in the hub after this one."""
    attempt = replace(QUEUED, queue_timeout=queue_timeout, latest=latest)
    state = json.loads(json.dumps(attempt.to_state()))

    assert attempt.queued_until == until
    assert stored_attempt(state, later(50), start_timeout=1.0).queued_until == until


def test_the_time_of_a_prolog_does_not_count() -> None:
    """It has a limit of Slurm's own (PrologEpilogTimeout); afterwards the server has its whole time."""
    attempt = replace(QUEUED, start_timeout=60.0)
    prepared = Job("7", Phase.RUNNING, reason="Prolog", starts_at=NOW.wall + 10)
    changes = [attempt.follow(prepared, later(seconds), since_pending=None) for seconds in (11, 50, 100)]
    left = attempt.left(later(110))
    changes.append(attempt.follow(replace(prepared, reason=""), later(110), since_pending=None))

    assert (changes, left, attempt.left(later(110))) == ([True, False, False, False], 50.0, 50.0)


# --- across a restart ------------------------------------------------------------------------------


def test_the_stages_are_kept_in_the_state() -> None:
    """The first report counts."""
    attempt = new_attempt("", start_timeout=600.0, queue_timeout=3600.0)
    attempt.queued(Moment.now())
    attempt.reported(Moment.now())
    reached = dict(attempt.reached)
    attempt.reported(later(10**9))
    restored = stored_attempt(json.loads(json.dumps(attempt.to_state())), Moment.now(), start_timeout=1.0)

    assert list(reached) == ["submitted", "queued", "starting"]
    assert (attempt.reached, restored.reached) == (reached, reached)
    assert restored.to_state() == attempt.to_state()


@pytest.mark.parametrize("attempt", [BEGUN, QUEUED, ALLOCATED, replace(QUEUED, start_timeout=4.0, queue_timeout=None)])
def test_the_next_hub_reads_the_same_stage(attempt: Attempt) -> None:
    """With the time-outs of its profile, which may be another one by then."""
    state = json.loads(json.dumps(attempt.to_state()))

    assert stored_attempt(state, later(50), start_timeout=600.0) == replace(attempt, restored_at=later(50))


UNKNOWN = Attempt(start_timeout=600.0)
WAITING = Attempt(stage=Stage.QUEUED, since=NOW, start_timeout=600.0, restored_at=NOW)
CLOCK = QUEUED.to_state()["clock"]
RESTORED: dict[str, tuple[dict[str, Any], Attempt]] = {
    "batchspawner's": ({}, UNKNOWN),
    "one whose stage cannot be read": (
        {"clock": "noon", "reached": {"queued": NOW.wall - 20}},
        replace(WAITING, since=Moment(NOW.wall - 20), reached={Stage.QUEUED: NOW.wall - 20}),
    ),
    "one that stored no times": ({"clock": {}}, WAITING),
    "one with damaged times": ({"reached": []}, UNKNOWN),
    "one with a damaged time": ({"reached": {"queued": "noon"}}, UNKNOWN),
    "a stage that is none": ({"clock": {**CLOCK, "stage": "asleep"}}, WAITING),
    "time-outs that are none": ({"clock": {**CLOCK, "timeouts": ["long"]}}, WAITING),
}


@pytest.mark.parametrize(("state", "attempt"), RESTORED.values(), ids=RESTORED.keys())
def test_a_start_whose_state_cannot_be_read_is_taken_up(state: dict[str, Any], attempt: Attempt) -> None:
    """As one that waits, without a limit of the queue, until Slurm says that its job runs."""
    assert stored_attempt(state, NOW, start_timeout=600.0) == attempt


def test_a_restarted_hub_gives_a_start_some_time() -> None:
    """However late it is."""
    late = {"clock": {"stage": "allocated", "since": [0.0], "timeouts": [600.0, None]}}

    assert stored_attempt(late, NOW, start_timeout=600.0).left(NOW) == AFTER_RESTART == 30.0


PENDING = Job("7", Phase.QUEUED, reason="Priority")
FREE = Attempt(reached={Stage.QUEUED: NOW.wall}, at_click=starts_now())
SETTLES: dict[str, tuple[Attempt, Job, float | None, float, bool]] = {
    "Slurm has not considered it yet": (FREE, PENDING, None, 29, True),
    "its plan is overdue": (FREE, PENDING, NOW.wall, 5, True),
    "it takes too long": (FREE, PENDING, None, 30, False),
    "Slurm has planned it for later": (FREE, PENDING, NOW.wall + 600, 1, False),
    "somebody was faster": (FREE, replace(PENDING, reason="Resources"), None, 1, False),
    "a limit of its account is reached": (FREE, replace(PENDING, reason="AssocGrpCpuLimit"), None, 1, False),
    "it runs": (FREE, replace(PENDING, phase=Phase.RUNNING), None, 1, False),
    "it was not free": (replace(FREE, at_click=expected(NOW.wall + 600, now=NOW.wall)), PENDING, None, 1, False),
    "sbatch has not answered": (Attempt(at_click=starts_now()), PENDING, None, 1, False),
}


@pytest.mark.parametrize(("attempt", "job", "planned", "after", "settles"), SETTLES.values(), ids=SETTLES.keys())
def test_a_job_for_which_everything_was_free_settles_for_a_moment(
    attempt: Attempt, job: Job, planned: float | None, after: float, settles: bool
) -> None:
    """Slurm's backfill may need half a minute for it; until then it does not wait in line."""
    assert attempt.settles(job, lambda: planned, NOW.wall + after) is settles


LINES: dict[str, tuple[Job | None, bool, bool, Line]] = {
    "there is no job": (None, False, False, Line.NONE),
    "Slurm has looked at it": (PENDING, False, False, Line.WAITING),
    "Slurm has not looked at it": (replace(PENDING, reason="None"), False, False, Line.NEW),
    "everything was free": (PENDING, False, True, Line.SETTLING),
    "its node has reported before squeue says that it runs": (PENDING, True, False, Line.NONE),
    "it has nodes": (replace(PENDING, phase=Phase.STARTING), False, False, Line.NONE),
    "it is over": (replace(PENDING, phase=Phase.ENDED), False, False, Line.NONE),
}


@pytest.mark.parametrize(("job", "has_reported", "settling", "line"), LINES.values(), ids=LINES.keys())
def test_a_job_has_one_place_in_the_line(job: Job | None, has_reported: bool, settling: bool, line: Line) -> None:
    """Its user is told that it waits unless it starts at once, as far as is known."""
    assert line_of(job, has_reported=has_reported, settling=settling) is line
    assert line.waits is (line in (Line.NEW, Line.WAITING))


# --- starts that Slurm has not taken ---

KEPT = KeptStart(NOW, 600.0, "cedar", (JobIdentity("ann", 1001, "jupyterhub-gpuspawner/demo/ann/#1"),))
JOBS = [identity.to_json() for identity in KEPT.submissions]
DAMAGED: dict[str, Any] = {
    "nothing": None,
    "a text": "kept",
    "without a time": {"timeout": 600.0, "jobs": JOBS},
    "without a limit": {"since": [7], "jobs": JOBS},
    "a limit that is a text": {"since": [7], "timeout": "soon", "jobs": JOBS},
    "without its jobs": {"since": [7], "timeout": 600.0},
    "a job that could be any": {"since": [7], "timeout": 600.0, "jobs": [*JOBS, "12"]},
}


def test_the_next_hub_reads_the_same_kept_start() -> None:
    """When it was asked for, for how long it is kept, and which jobs there may be of it."""
    assert stored_kept_start(json.loads(json.dumps(KEPT.to_state()))) == KEPT


@pytest.mark.parametrize("document", DAMAGED.values(), ids=DAMAGED)
def test_a_kept_start_that_cannot_be_read_does_not_go_on(document: Any) -> None:
    """It could be a second job for one server."""
    assert stored_kept_start({"kept_start": document}) is None


@pytest.mark.parametrize(("passed", "left"), [(0.0, 600.0), (590.0, 10.0), (600.0, 0.0), (86400.0, 0.0)])
def test_a_kept_start_is_given_up_when_it_was_said(passed: float, left: float) -> None:
    """A restart of the hub does not give it more time."""
    assert KEPT.left(later(passed)) == left


def test_an_attempt_that_goes_on_with_a_kept_start_has_what_is_left_of_its_time() -> None:
    """At least half a minute; and it looks for the jobs that the first one may have made."""
    now = Moment.now()
    attempts = [
        new_attempt("mark", start_timeout=900.0, queue_timeout=None, kept=replace(KEPT, since=now.ago(seconds)))
        for seconds in (100.0, 590.0, 700.0)
    ]
    left = [attempt.left(Moment.now()) or 0.0 for attempt in attempts]

    assert [attempt.submissions for attempt in attempts] == [KEPT.submissions] * 3
    assert [attempt.submitted_on for attempt in attempts] == ["cedar"] * 3
    assert [attempt.is_kept for attempt in attempts] == [True] * 3
    tenth = 0.1  # a moment is stored in tenths of a second
    assert 450 < left[0] <= 500 + tenth
    assert AFTER_RESTART - 20 < left[1] <= AFTER_RESTART + tenth
    assert 850 < left[2] <= 900 + tenth  # its time was over, and somebody has asked for it anew


@pytest.mark.parametrize("stage", Stage)
def test_only_a_start_whose_job_is_not_submitted_is_kept(stage: Stage) -> None:
    """What follows the submission has its job's id."""
    attempt = new_attempt("mark", start_timeout=900.0, queue_timeout=None, kept=KEPT)
    attempt.stage = stage

    assert attempt.is_kept is (stage is Stage.SUBMITTED)
    assert not new_attempt("mark", start_timeout=900.0, queue_timeout=None).is_kept
