"""Tests wait for other processes by one module."""

from __future__ import annotations

import itertools

import pytest

from tests.waiting import true_within, wait_until, wait_until_equal


def test_the_first_true_value_is_the_result() -> None:
    """The condition is asked again until then."""
    numbers = itertools.count()

    assert wait_until(lambda: next(numbers)) == 1
    wait_until_equal(lambda: next(numbers), 3, interval=0)
    assert true_within(1, lambda: next(numbers))


def test_what_does_not_come_is_named() -> None:
    """So that the failure says what was waited for, and what there was."""
    with pytest.raises(AssertionError, match="not within 0 s: the log of the hub"):
        wait_until(bool, lambda: "the log of the hub", seconds=0)
    with pytest.raises(AssertionError):
        wait_until_equal(int, 1, seconds=0)
    assert not true_within(0, bool)
