"""The documents between hub and node: what the launcher takes of a plan, and what a document may hold."""

from __future__ import annotations

import json
import re

import pytest

from jupyterhub_gpuspawner.wire.documents import (
    COUNT_LIMIT,
    DEADLINE_LIMIT,
    UNKNOWN_STEP,
    LaunchPlan,
    Step,
    printable,
    recover_plan,
)

CHOOSE = Step("a.b:C", {"folder": "/run/claims"})


@pytest.mark.parametrize(
    "plan",
    [
        LaunchPlan(),
        LaunchPlan(2, 4, "restricted", "bind", (20000, 20100), "/etc/{node}.json", 1.5, False, False),
        LaunchPlan(gpus=0, cpus=0, deadline=600),
        LaunchPlan(choose=CHOOSE, before=(CHOOSE, Step("a.b:c", doing="Doing it")), beside=(CHOOSE,), instead=CHOOSE),
    ],
)
def test_a_plan_comes_back_as_it_was_written(plan: LaunchPlan) -> None:
    """On one line, since it stands in a shell script."""
    text = plan.dumps()

    assert "\n" not in text
    assert recover_plan(text) == (plan, "")


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
        ("choose", ""),
        ("choose", {"settings": {}}),
        ("choose", {"entry": "a.b"}),
        ("choose", {"entry": "a:b", "settings": 1}),
        ("instead", {"entry": "a:b", "more": 1}),
        ("before", {"entry": "a:b"}),
        ("beside", [{"entry": "a:b", "doing": 1}]),
    ],
)
def test_a_plan_with_a_wrong_value_names_it(name: str, value: object) -> None:
    """The fault is named as in the launcher's report."""
    plan, fault = recover_plan(json.dumps({"version": 1, name: value}))

    assert re.fullmatch(f"{name}: .* is not valid in a launch plan", fault)
    assert plan == LaunchPlan(choose=UNKNOWN_STEP if name == "choose" else None)


@pytest.mark.parametrize(
    "plan",
    [
        LaunchPlan(deadline=0),
        LaunchPlan(deadline=DEADLINE_LIMIT + 1),
        LaunchPlan(deadline=float("nan")),
        LaunchPlan(gpus=-1),
        LaunchPlan(cpus=COUNT_LIMIT + 1),
        LaunchPlan(policy="numa"),
        LaunchPlan(port_range=(80, 90)),
        LaunchPlan(choose=UNKNOWN_STEP),
        LaunchPlan(beside=(Step("no function"),)),
    ],
)
def test_a_plan_that_a_node_would_refuse_cannot_be_sent(plan: LaunchPlan) -> None:
    """The hub finds out, not the node."""
    with pytest.raises(ValueError, match="is not valid in a launch plan"):
        plan.dumps()


@pytest.mark.parametrize(
    ("text", "plan", "fault"),
    [
        (LaunchPlan(gpus=2, choose=CHOOSE).dumps(), LaunchPlan(gpus=2, choose=CHOOSE), ""),
        (
            '{"choose": {"entry": "a:b"}, "gpus": "two", "deadline": 0, "cpus": 3, "new": 1}',
            LaunchPlan(choose=Step("a:b"), cpus=3),
            "gpus: 'two' is not valid in a launch plan; deadline: 0 is not valid in a launch plan",
        ),
        (
            '{"choose": 7, "gpus": 1}',
            LaunchPlan(gpus=1, choose=UNKNOWN_STEP),
            "choose: 7 is not valid in a launch plan",
        ),
        ("[]", LaunchPlan(choose=UNKNOWN_STEP), "a launch plan is a JSON object"),
        ("", LaunchPlan(choose=UNKNOWN_STEP), "Expecting value: line 1 column 1 (char 0)"),
    ],
)
def test_a_node_takes_what_it_can_read_of_a_plan(text: str, plan: LaunchPlan, fault: str) -> None:
    """What chooses GPUs does not count as missing where it cannot be read."""
    assert recover_plan(text) == (plan, fault)


def test_a_plan_that_was_cut_off_tells_whether_gpus_must_be_chosen() -> None:
    """That comes first in a plan."""
    for choose, expected in ((None, None), (CHOOSE, UNKNOWN_STEP)):
        text = LaunchPlan(choose=choose).dumps()
        assert all(recover_plan(text[:length])[0].choose == expected for length in range(16, len(text)))


@pytest.mark.parametrize("text", ["", "[]", "7", "{", "null"])
def test_what_is_not_a_plan_promises_nothing(text: str) -> None:
    """Neither a GPU nor that Slurm has chosen them; the fault is named."""
    plan, fault = recover_plan(text)

    assert plan == LaunchPlan(choose=UNKNOWN_STEP)
    assert fault


def test_a_newer_hubs_plan_is_read_as_far_as_it_is_known() -> None:
    """The notebook always starts."""
    assert recover_plan('{"version": 9, "gpus": 2, "colour": "green"}') == (LaunchPlan(gpus=2), "")


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
