"""A start is given up by elapsed time, whatever the wall clock says in the next hub."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from jupyterhub_gpuspawner.hub.start.deadline import Clocks, Deadline, clocks, parse_deadline

NOW = Clocks(wall=1_000_000.0, since_boot=5_000.0, boot="this")
LEFT: dict[str, tuple[Clocks, float]] = {
    "at once": (NOW, 900.0),
    "after a minute": (replace(NOW, wall=NOW.wall + 60, since_boot=5_060.0), 840.0),
    "the clock was set back by an hour": (replace(NOW, wall=NOW.wall - 3540, since_boot=5_060.0), 840.0),
    "the clock was set forward by an hour": (replace(NOW, wall=NOW.wall + 3660, since_boot=5_060.0), 840.0),
    "too late": (replace(NOW, wall=NOW.wall - 3600, since_boot=9_999.0), 0.0),
    "another boot, a minute later": (Clocks(NOW.wall + 60, 10.0, "another"), 840.0),
    "another boot, and the clock was set back": (Clocks(NOW.wall - 3600, 10.0, "another"), 900.0),
    "another boot, much later": (Clocks(NOW.wall + 3600, 10.0, "another"), 0.0),
    "a kernel that does not tell its boot": (Clocks(NOW.wall + 60, 5_060.0, ""), 840.0),
}


@pytest.mark.parametrize(("then", "left"), LEFT.values(), ids=LEFT.keys())
def test_what_is_left_of_a_starts_time(then: Clocks, left: float) -> None:
    """By the time since boot in the same boot, else by the wall clock, and never more than the whole time."""
    stored = json.loads(json.dumps(Deadline.after(900.0, NOW).to_state()))
    deadline = parse_deadline(stored)

    assert deadline is not None
    assert deadline.left(then, at_most=900.0) == left


STORED: dict[str, tuple[dict[str, Any], Deadline | None]] = {
    "nothing": ({}, None),
    "an older version's": ({"start_by": 7}, Deadline(7)),
    "a truth value": ({"start_by": True}, None),
    "a damaged clock": ({"start_by": 7, "start_by_boot": ["this", "soon"]}, Deadline(7)),
    "a clock without a boot": ({"start_by": 7, "start_by_boot": ["", 3.5]}, Deadline(7)),
    "both": ({"start_by": 7, "start_by_boot": ["this", 3.5]}, Deadline(7, 3.5, "this")),
}


@pytest.mark.parametrize(("state", "deadline"), STORED.values(), ids=STORED.keys())
def test_what_was_stored_is_read(state: dict[str, Any], deadline: Deadline | None) -> None:
    """What cannot be read is dropped."""
    assert parse_deadline(state) == deadline


def test_the_machines_own_clock_goes_on() -> None:
    """The kernel has an id for each boot."""
    first, second = clocks(), clocks()

    assert first.boot == second.boot != ""
    assert first.since_boot <= second.since_boot
