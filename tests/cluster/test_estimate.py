"""When a job is expected to start, in one form of words; what past waits teach, and why an estimate changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyterhub_gpuspawner.cluster.capacity import queue_view
from jupyterhub_gpuspawner.cluster.estimate import (
    UNKNOWN,
    Change,
    ChangeCause,
    Estimate,
    Kind,
    QueueView,
    Span,
    cause_of_change,
    expected,
    is_changed,
    not_before,
    starts_now,
)
from tests.snapshots import NOW, cluster, node, running, waiting

HOUR = 3600.0
UNLESS = ", if nobody with a higher priority comes"


def between(low: float, high: float) -> Estimate:
    """A start within this range, in seconds from now."""
    return Estimate(Kind.EXPECTED, NOW + low, NOW + high, NOW + (low + high) / 2)


@pytest.mark.parametrize(
    ("estimate", "words"),
    [
        (starts_now(), "now"),
        (UNKNOWN, ""),
        (not_before(NOW + 2400), "in 40 min at the earliest"),
        (between(2400, 4200), f"in 40 min to 1 h 10 min{UNLESS}"),
        (between(2500, 4100), f"in 40 min to 1 h 10 min{UNLESS}"),
        (between(1200, 1500), f"in 20 to 25 min{UNLESS}"),
        (between(65, 110), f"in 1 to 2 min{UNLESS}"),
        (between(5 * 60, 5 * 60), f"in 5 min{UNLESS}"),
        (between(30, 20 * 60), f"within 20 min{UNLESS}"),
        (between(0, 10), f"within 1 min{UNLESS}"),
        (between(5 * HOUR, 30 * HOUR), f"in 5 to 30 h{UNLESS}"),
        (between(40 * HOUR, 80 * HOUR), f"in 40 h to 3 days 12 h{UNLESS}"),
        (between(-600, -300), "soon (it was expected 5 min ago)"),
    ],
)
def test_an_estimate_has_one_form_of_words(estimate: Estimate, words: str) -> None:
    """Rounded outwards, the more the longer it is: nobody's job starts in exactly 57 minutes."""
    assert estimate.words(NOW) == words


def test_an_estimate_as_json() -> None:
    """Times in UTC, and the words of all pages."""
    assert between(2400, 4200).document(NOW) == {
        "kind": "expected",
        "earliest": "2027-01-15T08:40:00+00:00",
        "likely": "2027-01-15T08:55:00+00:00",
        "latest": "2027-01-15T09:10:00+00:00",
        "words": f"in 40 min to 1 h 10 min{UNLESS}",
        "span": "in 40 min to 1 h 10 min",
    }


@pytest.mark.parametrize(
    ("estimate", "held"),
    [
        (between(2500, 4100), [(2399, False), (2400, True), (4200, True), (4201, False)]),
        (between(0, 10), [(0, True), (60, True), (61, False)]),
        (starts_now(), [(0, True), (60, True), (61, False)]),
        (not_before(NOW + 2400), [(2399, False), (9000, True)]),
        (UNKNOWN, [(0, False)]),
    ],
)
def test_a_start_holds_what_the_words_said(estimate: Estimate, held: list[tuple[float, bool]]) -> None:
    """To the minute, as they were rounded; "now" is within a minute."""
    assert [(after, estimate.holds(NOW + after, now=NOW)) for after, _ in held] == held


def test_slurms_own_plan_is_a_latest_time_where_nothing_else_is_known() -> None:
    """It counts on every job's running to its time limit; a plan of the past is overdue."""
    assert expected(NOW + HOUR, now=NOW) == Estimate(
        Kind.EXPECTED, earliest=NOW, latest=NOW + HOUR, likely=NOW + HOUR, planned=NOW + HOUR
    )
    assert expected(NOW - 60, now=NOW).words(NOW) == "soon (it was expected 1 min ago)"


def test_a_wait_is_as_long_as_waits_of_its_partition_are_known_to_be() -> None:
    """Another partition's say nothing of it."""
    known = {("gpu", HOUR): Span(60, 600, 1800)}

    def waits(partition: str, planned: float) -> Span | None:
        return known.get((partition, planned))

    assert expected(NOW + HOUR, now=NOW, partition="gpu", waits=waits) == Estimate(
        Kind.EXPECTED, earliest=NOW + 60, latest=NOW + 1800, likely=NOW + 600, planned=NOW + HOUR
    )
    assert expected(NOW + HOUR, now=NOW, partition="cpu", waits=waits) == expected(NOW + HOUR, now=NOW)


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        (HOUR, 1.19 * HOUR, False),
        (HOUR, 1.21 * HOUR, True),
        (HOUR, 0.79 * HOUR, True),
        (120, 175, False),
        (120, 185, True),
    ],
)
def test_a_change_is_more_than_a_fifth_of_the_wait(before: float, after: float, *, changed: bool) -> None:
    """And more than a minute."""
    assert is_changed(between(before, before), between(after, after), now=NOW) is changed


MINE = "50"
HELD = running("1", "g1", "gpu:k80:4", ends_in=1800)
LINE = (
    HELD,
    waiting("40", "gpu:k80:4", user="ada", priority=20),
    waiting("45", "gpu:k80:4", user="me", priority=15),
    waiting(MINE, "gpu:k80:4", user="me"),
)
TWO = (node("g1", "gpu:k80:4"), node("g2", "gpu:k80:4"))


def view(*jobs: object, nodes: object = TWO, after: float = 600) -> QueueView:
    """The queue some seconds later."""
    return queue_view(replace(cluster(*nodes, jobs=jobs), taken_at=NOW + after), "gpu")  # type: ignore[misc, arg-type]


CHANGES: dict[str, tuple[QueueView, bool, str]] = {
    "two people came with a higher priority": (
        view(
            *LINE,
            waiting("60", user="bob", priority=30),
            waiting("61", user="eve", priority=30),
            waiting("62", user="me", priority=30),
            waiting("63", user="zoe", priority=1),
        ),
        True,
        "Later than before: 2 people with a higher priority came.",
    ),
    "a node is gone": (
        view(*LINE, nodes=(TWO[0], node("g2", "gpu:k80:4", states=frozenset({"IDLE", "DRAIN"})))),
        True,
        "Later than before: node g2 went out of service.",
    ),
    "a job got more time": (
        view(HELD._replace(ends_at=NOW + 9000), *LINE[1:]),
        True,
        "Later than before: a job runs longer than it was expected to.",
    ),
    "a job is over its time": (
        view(*LINE, after=1900),
        True,
        "Later than before: a job runs longer than it was expected to.",
    ),
    "a job ended early": (view(*LINE[1:]), False, "Sooner than before: a job ended before its time limit."),
    "a job ended in time": (view(*LINE[1:], after=1800), False, "Sooner than before: Slurm has a new estimate."),
    "somebody gave up": (
        view(LINE[0], *LINE[2:]),
        False,
        "Sooner than before: 1 person ahead of you left the line.",
    ),
    "one's own job is gone": (view(*LINE[:2], LINE[3]), False, "Sooner than before: Slurm has a new estimate."),
    "nothing that is known": (view(*LINE), True, "Later than before: Slurm has a new estimate."),
    "the view is the same": (view(*LINE, after=0), True, "Later than before: Slurm has a new estimate."),
}


@pytest.mark.parametrize(("after", "later", "words"), CHANGES.values(), ids=CHANGES.keys())
def test_a_change_is_explained_by_what_is_known(after: QueueView, later: bool, words: str) -> None:
    """Of two views of the queue; what fits the direction, and nothing that is not seen."""
    assert cause_of_change(view(*LINE, after=0), after, MINE, later=later).words == words


def test_without_a_view_there_is_a_new_estimate() -> None:
    """Nothing is made up."""
    assert cause_of_change(None, view(*LINE), MINE, later=False) == Change(later=False, cause=ChangeCause.NEW_ESTIMATE)
