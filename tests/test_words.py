"""Durations and amounts of memory in words."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.words import duration, memory


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "0 s"),
        (0, "0 s"),
        (45, "45 s"),
        (59.7, "1 min"),
        (60, "1 min"),
        (720, "12 min"),
        (3599, "1 h"),
        (3600, "1 h"),
        (5400, "1 h 30 min"),
        (24 * 3600, "24 h"),
        (36.5 * 3600, "36 h 30 min"),
        (48 * 3600 - 1, "2 days"),
        (60 * 3600, "2 days 12 h"),
        (72 * 3600, "3 days"),
        (72 * 3600 - 1, "3 days"),
    ],
)
def test_duration(seconds: float, words: str) -> None:
    """At most two units, the smaller one rounded."""
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("mib", "words"),
    [
        (None, ""),
        (0, "0 MiB"),
        (512, "512 MiB"),
        (1024, "1 GiB"),
        (9728, "9.5 GiB"),
        (11441, "11 GiB"),
        (65536, "64 GiB"),
    ],
)
def test_memory(mib: int | None, words: str) -> None:
    """MiB below one GiB, one decimal below ten."""
    assert memory(mib) == words
