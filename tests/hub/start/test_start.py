"""One start: its id, its stages and its time, in this hub and in the one after it."""

from __future__ import annotations

import json

import pytest

from jupyterhub_gpuspawner.hub.start.attempt import AFTER_RESTART, Start, Timeouts
from jupyterhub_gpuspawner.jobs.status import JobStatus, Phase

TIMEOUTS = Timeouts(600.0, queue=3600.0)


def test_each_start_has_an_id_of_its_own_with_the_hubs_mark() -> None:
    """By it a job is found again."""
    first, second = Start.begin("0a1b2c3d", TIMEOUTS), Start.begin("0a1b2c3d", TIMEOUTS)

    assert first.start_id.startswith("0a1b2c3d-")
    assert first.start_id != second.start_id


def test_the_queue_has_its_own_time() -> None:
    """Only while the job is pending, and only where it has a limit."""
    start = Start.begin("", TIMEOUTS)
    found = [(start.in_queue, start.left(), start.keeps_place_until)]
    start.queued()
    found.append((start.in_queue, start.left(), start.keeps_place_until))
    moved = start.follow(JobStatus("7", Phase.RUNNING), since_pending=None)
    found.append((start.in_queue, start.left(), start.keeps_place_until))
    until = start.reached["queued"] + 3600.0

    assert [in_queue for in_queue, _, _ in found] == [False, True, False]
    assert [left for _, left, _ in found] == pytest.approx([600.0, 3600.0, 600.0], abs=1.0)
    assert [kept for _, _, kept in found] == [None, pytest.approx(until, abs=1.0), None]
    assert moved is True


def test_a_place_that_is_kept_for_ever() -> None:
    """Without a limit of the queue."""
    start = Start.begin("", Timeouts(600.0))
    start.queued()

    assert (start.in_queue, start.left(), start.keeps_place_until) == (True, None, None)


@pytest.mark.parametrize(("queue", "kept"), [(None, 4.0e9), (3600.0, 3600.0)])
def test_a_jobs_own_deadline_ends_its_place(queue: float | None, kept: float) -> None:
    """Unless the queue's limit comes first; also in the hub after this one."""
    start = Start.begin("", Timeouts(600.0, queue))
    start.queued()
    start.latest = 4.0e9
    again = Start.stored(json.loads(json.dumps(start.to_state())), TIMEOUTS)
    until = kept if queue is None else start.reached["queued"] + kept

    assert [each.keeps_place_until for each in (start, again)] == [pytest.approx(until, abs=1.0)] * 2


def test_the_stages_are_kept_in_the_state() -> None:
    """With the clock; the first report counts."""
    start = Start.begin("", TIMEOUTS)
    start.queued()
    start.reported()
    reached = dict(start.reached)
    start.reported()
    again = Start.stored(json.loads(json.dumps(start.to_state())), Timeouts(1.0))

    assert list(reached) == ["submitted", "queued", "starting"]
    assert (start.reached, again.reached) == (reached, reached)
    assert again.to_state() == start.to_state()


def test_a_restarted_hub_gives_a_start_some_time() -> None:
    """However late it is."""
    late = {"clock": {"stage": "start", "since": [0.0], "timeouts": [600.0, None]}}

    assert Start.stored(late, TIMEOUTS).left() == pytest.approx(AFTER_RESTART, abs=1.0)


@pytest.mark.parametrize("state", [{}, {"start_by": "noon", "reached": []}, {"reached": {"queued": "noon"}}])
def test_what_cannot_be_read_is_dropped(state: dict[str, object]) -> None:
    """A state that batchspawner stored has neither; its servers count as started."""
    start = Start.stored(state, TIMEOUTS)

    assert (start.clock, start.reached, start.to_state()) == (None, {}, {})
