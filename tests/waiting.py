"""Waiting for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
POLL_SECONDS = 0.1


def wait_until(condition: Callable[[], T], what: str | Callable[[], object] = "", *, seconds: float = 90.0) -> T:
    """The first true value of ``condition()``. Raises AssertionError with ``what`` if there is none in time."""
    ends_at = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > ends_at:
            raise AssertionError(f"not within {seconds:g} s: {what() if callable(what) else what or condition}")
        time.sleep(POLL_SECONDS)
    return value


def wait_until_equal(
    answer: Callable[[], object], expected: object, *, seconds: float = 90.0, interval: float = 0.3
) -> None:
    """Wait until ``answer()`` is ``expected``. Raises AssertionError with the last answer if it is not in time."""
    ends_at = time.monotonic() + seconds
    while (value := answer()) != expected and time.monotonic() < ends_at:
        time.sleep(interval)
    assert value == expected


def true_within(seconds: float, condition: Callable[[], object]) -> bool:
    """Whether ``condition()`` becomes true in time."""
    try:
        wait_until(condition, seconds=seconds)
    except AssertionError:
        return False
    return True
