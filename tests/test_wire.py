"""The documents between hub and node: what the launcher takes of a plan, and what a document may hold."""

from __future__ import annotations

import json

import pytest

from jupyterhub_gpuspawner.wire import LaunchPlan, parse_plan, printable


@pytest.mark.parametrize(
    "plan",
    [
        LaunchPlan(),
        LaunchPlan(2, 4, "single-numa-node", "bind", (20000, 20100), "/etc/{node}.json", 1.5, False, False),
        LaunchPlan(gpus=0, cpus=0, deadline=600),
    ],
)
def test_a_plan_comes_back_as_it_was_written(plan: LaunchPlan) -> None:
    """On one line, since it stands in a shell script."""
    text = plan.dumps()

    assert "\n" not in text
    assert parse_plan(text) == plan


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gpus", -1),
        ("gpus", "2"),
        ("gpus", True),
        ("cpus", 1.5),
        ("policy", "numa"),
        ("memory_policy", None),
        ("port_range", [20000]),
        ("port_range", [20100, 20000]),
        ("port_range", [80, 90]),
        ("port_range", "20000-20100"),
        ("topology_file", 7),
        ("deadline", 0),
        ("deadline", 601),
        ("deadline", "3"),
        ("deadline", None),
        ("set_threads", 1),
        ("report", None),
    ],
)
def test_a_plan_with_a_wrong_value_names_it(name: str, value: object) -> None:
    """As the launcher will say in its report."""
    with pytest.raises(ValueError, match=f"^{name}: .* is not what a launch plan may say$"):
        parse_plan(json.dumps({"version": 1, name: value}))


@pytest.mark.parametrize("text", ["", "[]", "7", "{", "null"])
def test_what_is_no_plan_is_refused(text: str) -> None:
    """With a ValueError and no other."""
    with pytest.raises(ValueError, match=r"."):
        parse_plan(text)


def test_a_newer_hubs_plan_is_read_as_far_as_it_is_known() -> None:
    """The notebook always starts."""
    assert parse_plan('{"version": 9, "gpus": 2, "colour": "green"}') == LaunchPlan(gpus=2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("as it is", "as it is"),
        ("two\nlines\tand\x00more", "two lines and more"),
        ("x" * 501, "x" * 499 + "…"),
        ("\u202eevil", " evil"),
    ],
)
def test_any_text_becomes_one_printable_line(text: str, expected: str) -> None:
    """At most 500 characters."""
    assert printable(text) == expected
