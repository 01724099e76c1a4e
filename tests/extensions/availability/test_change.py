"""Why a job is expected to start at another time than before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyterhub_gpuspawner.extensions.availability.model.capacity import queue_view
from jupyterhub_gpuspawner.extensions.availability.model.change import (
    Change,
    ChangeCause,
    QueueView,
    cause_of_change,
    is_changed,
)
from jupyterhub_gpuspawner.slurm.estimate import Estimate, Kind
from tests.snapshots import NOW, cluster, node, running, waiting

HOUR = 3600.0


def between(low: float, high: float) -> Estimate:
    """A start within this range, in seconds from now."""
    return Estimate(Kind.EXPECTED, NOW + low, NOW + high, NOW + (low + high) / 2)


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
