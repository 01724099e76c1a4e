"""The idle policy, replayed over curves of use: who is told and stopped, and when."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.idle_table import CURVES, Outcome, replay
from jupyterhub_gpuspawner.hub.idle import IdleServer, Span, State, Using, Verdict, follow, judge
from jupyterhub_gpuspawner.profiles.profile import IdleAction, IdleRule

ROOT = Path(__file__).parents[3]
BUSY, UNKNOWN, EXEMPT = (Outcome(state=state) for state in (State.BUSY, State.UNKNOWN, State.EXEMPT))


def stopped(*told: int, at: int) -> Outcome:
    return Outcome(told, at, stopped=True, state=State.DUE)


OUTCOMES = {
    "training for five hours": BUSY,
    "bursts: 5 minutes in each half hour": BUSY,
    "bursts: 5 minutes in each 50": Outcome((30, 80, 130, 180, 230, 280), state=State.BUSY),
    "used for 20 minutes, then left": stopped(50, 70, at=80),
    "never used": stopped(30, 50, at=60),
    "used again after the first warning": stopped(50, 130, 150, at=160),
    "half of the memory held and not used": stopped(110, 130, at=140),
    "two GPUs, one of them used": BUSY,
    "two GPUs, the use of one unknown": UNKNOWN,
    "unknown for 5 minutes in between": stopped(30, 80, 100, at=110),
    "no summary for 20 minutes in between": stopped(30, 95, 115, at=125),
    "the process that measures is ended": Outcome((30,), state=State.UNKNOWN),
    "a MIG device whose utilisation is unknown": UNKNOWN,
    "a second node with GPUs, which is not measured": UNKNOWN,
    "a course's session until 2:00": stopped(150, 170, at=180),
    "a course's session from 0:50 to 2:00": stopped(30, 150, 170, at=180),
    "kept once, at 0:55": stopped(30, 50, 60, 80, at=90),
    "kept twice, and a third time in vain": stopped(30, 50, 60, 80, 90, 110, at=120),
    "`kernel: 30min`, and somebody works until 2:00": stopped(135, 140, at=150),
    "`kernel: 30min`, and nobody works": stopped(45, 50, at=60),
    "without GPUs": EXEMPT,
    "without GPUs, `kernel: 30min`, nobody works": stopped(15, 20, at=30),
    "the same, but a program computes": BUSY,
    "`gpu: null`": EXEMPT,
    "`action: tell`": Outcome((30, 50), 60, state=State.DUE),
    "`action: report`": Outcome((), 60, state=State.DUE),
}
"""Minutes from the server's start."""


@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.what)
def test_who_is_told_and_stopped_and_when(curve) -> None:
    """After an hour without use, with a warning after 30 and 50 minutes."""
    assert replay(curve) == OUTCOMES[curve.what]


def test_the_table_in_the_documentation_is_what_the_policy_does() -> None:
    """It is printed by the script from the same curves."""
    printed = subprocess.run(
        [sys.executable, "benchmarks/idle_table.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert printed.stdout in (ROOT / "docs" / "explanation" / "idle.md").read_text("utf-8")


def unused(since: float, seen: float, most: float = 0.0) -> Span:
    return Span(since, seen, most=most)


def span(begins: float, ends: float, using: Using = Using.UNUSED, most: float = 0.0) -> Span:
    return Span(begins, ends, using, most)


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([], unused(0.0, 300.0, 1.0)),
        ([span(300, 600, most=2.0)], unused(0.0, 600.0, 2.0)),
        ([span(340, 640)], unused(0.0, 640.0, 1.0)),  # the clocks of hub and node are not the same
        ([span(400, 700)], unused(400.0, 700.0)),  # a summary is missing
        ([span(300, 600, Using.USED)], None),
        ([span(300, 600, Using.UNKNOWN)], None),
        ([span(300, 600, Using.USED), span(600, 900)], unused(600.0, 900.0)),
        ([span(300, 3600)], unused(0.0, 3600.0, 1.0)),  # what the node could not send while the hub was away
    ],
)
def test_a_time_without_use_grows_with_each_summary_and_ends_with_use_doubt_or_silence(spans, expected) -> None:
    """A summary that is late counts as long as it tells of the whole time."""
    assert follow(unused(0.0, 300.0, 1.0), spans) == expected


def test_a_notice_that_is_given_after_the_last_summary_stays() -> None:
    """It puts off the stop, so that it is there for its time; it does not put off itself."""
    rule = IdleRule(gpu=600, leads=(595,), action=IdleAction.STOP)
    idle = unused(1000.0, 1010.0)
    server = IdleServer("12", gpus=True, rule=rule, using=Using.UNUSED, unused=idle, told_at=1012.0)

    assert judge(server) == Verdict(State.WARNED, since=1000.0, due_at=1607.0, warnings=1)


@pytest.mark.parametrize(("every", "due_at"), [(0.0, 1900.0), (200.0, 2000.0), (3000.0, 4600.0)])
def test_a_stop_is_told_for_the_time_of_the_summary_that_brings_it(every: float, due_at: float) -> None:
    """The use between two summaries is not known, so nothing is stopped in between."""
    rule = IdleRule(gpu=900, leads=(), action=IdleAction.STOP)
    idle = unused(1000.0, 1600.0)
    server = IdleServer("12", gpus=True, rule=rule, using=Using.UNUSED, unused=idle, every=every)

    assert judge(server) == Verdict(State.IDLE, since=1000.0, due_at=due_at)
