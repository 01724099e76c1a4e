"""The documents between hub and node: what the launcher takes of a plan, and what a document may hold."""

from __future__ import annotations

import json

import pytest

from jupyterhub_gpuspawner.placement.topology import as_line
from jupyterhub_gpuspawner.wire.documents import (
    UNKNOWN_STEP,
    LaunchPlan,
    Step,
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
    "fields",
    [
        {"choose": ""},
        {"choose": 7, "gpus": 1},
        {"choose": {"settings": {}}},
        {"instead": {"entry": "a:b", "more": 1}},
        {"before": {"entry": "a:b"}},
        {"port_range": 20000},
    ],
)
def test_a_plan_of_another_form_promises_nothing(fields: dict[str, object]) -> None:
    """It is not known what chooses GPUs."""
    plan, fault = recover_plan(json.dumps({"version": 1, **fields}))

    assert plan == LaunchPlan(choose=UNKNOWN_STEP)
    assert fault


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
    assert as_line(text) == expected
