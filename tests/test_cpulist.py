"""CPU lists, against the examples of cpuset(7)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyterhub_gpuspawner.cpulist import format_cpulist, parse_cpulist


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("", ()),
        ("0", (0,)),
        ("0-4,9", (0, 1, 2, 3, 4, 9)),
        ("0-2,7,12-14", (0, 1, 2, 7, 12, 13, 14)),
        ("3,1,1", (1, 3)),
        ("0-3\n", (0, 1, 2, 3)),
    ],
)
def test_a_cpulist_is_that_of_cpuset_7(text: str, cpus: tuple[int, ...]) -> None:
    """The examples of the page, and what a file of the kernel ends with."""
    assert parse_cpulist(text) == cpus


@pytest.mark.parametrize("text", ["0-1-2", "3-1", "0-", "-1", "a", "0,,1", "0-31:2", "0 1", "٣"])
def test_anything_else_is_refused(text: str) -> None:
    """Reversed and double ranges, and the strides that cpuset(7) does not know."""
    with pytest.raises(ValueError, match=r"is not a CPU or a range of CPUs: write a list such as 0-3,8"):
        parse_cpulist(text)


def test_a_range_beyond_any_machine_is_refused_at_once() -> None:
    """Before its numbers fill the reader's memory."""
    with pytest.raises(ValueError, match="more than 65536 CPUs"):
        parse_cpulist("0-999999999")


@given(st.lists(st.integers(0, 4095)))
def test_a_cpulist_is_read_as_it_was_written(cpus: list[int]) -> None:
    """format, then parse, gives the sorted set."""
    assert parse_cpulist(format_cpulist(cpus)) == tuple(sorted(set(cpus)))
