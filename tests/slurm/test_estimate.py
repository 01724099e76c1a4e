"""When a job is expected to start, in one form of words, and what past waits teach."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.slurm.estimate import UNKNOWN, Estimate, Kind, Span, expected, not_before, starts_now
from tests.snapshots import NOW

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
