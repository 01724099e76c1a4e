"""Whom the idle policy tells and stops, and when: a table for curves of use, one of each kind.

    python benchmarks/extensions/idle/idle_table.py

It is the table in docs/explanation/idle.md. The curves are made of summaries of five minutes, as servers send them; the
policy is the site's default with ``action: stop``, unless the row says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from jupyterhub_gpuspawner.extensions.idle.fields import Idle, IdleRule, idle_rule
from jupyterhub_gpuspawner.extensions.idle.policy import IdleServer, State
from jupyterhub_gpuspawner.extensions.usage.node.summary import GpuUse, UsageSummary
from jupyterhub_gpuspawner.extensions.usage.use import RETENTION_SECONDS, Use
from jupyterhub_gpuspawner.wire.documents import NodeGrant, PlacedGpu, PlacementDocument

MINUTE = 60.0
STOP = idle_rule(Idle(action="stop"))
WITH_KERNEL = idle_rule(Idle(action="stop", kernel="30min"))
ONE = PlacementDocument(job_id="1", node="g1", gpus=(PlacedGpu(0, "GPU-a", memory_mib=40960),))
TWO = replace(ONE, gpus=(*ONE.gpus, PlacedGpu(1, "GPU-b", memory_mib=40960)))
MIG = replace(ONE, gpus=(PlacedGpu(0, "MIG-a", "1g.10gb", memory_mib=9856),))
NONE = replace(ONE, gpus=())


def gpu(index: int = 0, most: float | None = 0.0, held_mib: int = 400) -> GpuUse:
    """A GPU that was used by at most so many per cent."""
    samples = 10 if most is not None else 0
    return GpuUse(index, f"GPU-{'ab'[index]}", None, most, most, most, samples, 40960, held_mib, held_mib, 1)


IDLE, BUSY, LOST, HELD = gpu(), gpu(most=91.0, held_mib=21000), gpu(most=None), gpu(held_mib=21000)
_MIG = GpuUse(0, "MIG-a", "1g.10gb", None, None, None, 0, 9856, 1200, 1200, 1)


@dataclass(frozen=True)
class Curve:
    """A server's use, and what happens meanwhile. Times are in minutes from its start."""

    what: str
    parts: tuple[tuple[int, tuple[GpuUse, ...] | None], ...]
    """For how many minutes its GPUs were used so; None: no summary came."""
    placement: PlacementDocument = ONE
    rule: IdleRule = STOP
    cores: float = 0.05
    keeps: tuple[int, ...] = ()
    """When its user presses *Keep*."""
    active: tuple[int, int] | None = None
    """From when to when JupyterHub sees activity; None: at the start alone."""
    session: tuple[int, int] | None = None
    """When a session of its course begins and ends."""


def curve(what: str, *parts: tuple[int, GpuUse | tuple[GpuUse, ...] | None], **more: object) -> Curve:
    """A curve of one GPU, or of several."""
    curve_parts = tuple((minutes, (use,) if isinstance(use, GpuUse) else use) for minutes, use in parts)
    return Curve(what, curve_parts, **more)  # type: ignore[arg-type]


CURVES = (
    curve("training for five hours", (300, BUSY)),
    curve("bursts: 5 minutes in each half hour", *(((25, IDLE), (5, BUSY)) * 10)),
    curve("bursts: 5 minutes in each 50", *(((45, IDLE), (5, BUSY)) * 6)),
    curve("used for 20 minutes, then left", (20, BUSY), (280, IDLE)),
    curve("never used", (300, IDLE)),
    curve("used again after the first warning", (20, BUSY), (40, IDLE), (40, BUSY), (200, IDLE)),
    curve("half of the memory held and not used", (20, BUSY), (280, HELD)),
    curve("two GPUs, one of them used", (300, (IDLE, replace(gpu(1), utilization_max=60.0))), placement=TWO),
    curve("two GPUs, the use of one unknown", (300, (IDLE, gpu(1, None))), placement=TWO),
    curve("unknown for 5 minutes in between", (45, IDLE), (5, LOST), (250, IDLE)),
    curve("no summary for 20 minutes in between", (45, IDLE), (20, None), (235, IDLE)),
    curve("the process that measures is ended", (40, IDLE), (260, None)),
    curve("a MIG device whose utilisation is unknown", (300, (_MIG,)), placement=MIG),
    curve(
        "a second node with GPUs, which is not measured",
        (300, IDLE),
        placement=replace(ONE, other_nodes=(NodeGrant("g2", gpus=(0,)),)),
    ),
    curve(
        "a second node without GPUs, `kernel: 30min`, nobody works",
        (300, ()),
        placement=replace(NONE, other_nodes=(NodeGrant("g2", gpus=()),)),
        rule=WITH_KERNEL,
    ),
    curve("a course's session until 2:00", (300, IDLE), session=(-10, 120)),
    curve("a course's session from 0:50 to 2:00", (300, IDLE), session=(50, 120)),
    curve("kept once, at 0:55", (300, IDLE), keeps=(55,)),
    curve("kept twice, and a third time in vain", (300, IDLE), keeps=(55, 85, 115)),
    curve("`kernel: 30min`, and somebody works until 2:00", (300, IDLE), rule=WITH_KERNEL, active=(0, 120)),
    curve("`kernel: 30min`, and nobody works", (300, IDLE), rule=WITH_KERNEL),
    curve("without GPUs", (300, ()), placement=NONE),
    curve("without GPUs, `kernel: 30min`, nobody works", (300, ()), placement=NONE, rule=WITH_KERNEL),
    curve("the same, but a program computes", (300, ()), placement=NONE, rule=WITH_KERNEL, cores=3.0),
    curve("`gpu: null`", (300, IDLE), rule=idle_rule(Idle(gpu=None, action="stop"))),
    curve("`action: tell`", (300, IDLE), rule=idle_rule(Idle(action="tell"))),
    curve("`action: tell`, kept at 3:00", (300, IDLE), rule=idle_rule(Idle(action="tell")), keeps=(180,)),
    curve("`action: report`", (300, IDLE), rule=idle_rule()),
)


@dataclass(frozen=True)
class Outcome:
    """What became of a server, in minutes from its start."""

    warnings: tuple[int, ...] = ()
    """When its user was warned."""
    due: int | None = None
    """When it was due for the first time."""
    stopped: bool = False
    state: State = State.UNKNOWN
    """At the end."""


def summaries(of: Curve) -> tuple[Use, ...]:
    """The summaries that the hub gets, by its clock; the server starts at 0."""
    uses, at = [], 0
    for minutes, gpus in of.parts:
        for _ in range(0, minutes, 5):
            at += 5
            if gpus is not None:
                summary = UsageSummary("1", 300.0, 10, 30.0, gpus=gpus, cores_max=of.cores)
                uses.append(Use(at * MINUTE, summary))
    return tuple(uses)


def replay(of: Curve) -> Outcome:
    """Look at a server each minute until it is stopped or the curve is over, as the hub does."""
    uses, warnings, due, warned = summaries(of), [], None, 0
    server = IdleServer("1", gpus=bool(of.placement.gpus))
    for minute in range(1, sum(minutes for minutes, _ in of.parts) + 1):
        now = minute * MINUTE
        active = of.active is not None and of.active[0] <= minute <= of.active[1]
        server = server.evaluated(
            [use for use in uses if now - RETENTION_SECONDS <= use.at <= now],
            of.placement,
            of.rule,
            now=now,
            last_activity=now if active else of.active[1] * MINUTE if of.active is not None else 0.0,
            in_session=of.session is not None and of.session[0] <= minute < of.session[1],
            session_ended=of.session[1] * MINUTE if of.session is not None and of.session[1] <= minute else 0.0,
        )
        if server.is_announced and server.verdict.warnings > warned and server.verdict.state is not State.DUE:
            warnings.append(minute)
        warned = server.verdict.warnings if server.is_announced else 0
        if minute in of.keeps and server.is_announced and server.keeps_left:
            server = server.prolonged(now)
            warned = server.verdict.warnings if server.is_announced else 0
        if server.verdict.state is State.DUE and due is None:
            due = minute
        if server.verdict.state is State.DUE and of.rule.action.value == "stop":
            return Outcome(tuple(warnings), due, stopped=True, state=server.verdict.state)
    return Outcome(tuple(warnings), due, state=server.verdict.state)


def clock(minutes: int) -> str:
    """``1:05``."""
    return f"{minutes // 60}:{minutes % 60:02}"


def row(of: Curve) -> str:
    """A line of the table."""
    outcome = replay(of)
    warning_times = ", ".join(map(clock, outcome.warnings)) or "-"
    end = clock(outcome.due) if outcome.due is not None else f"no: {outcome.state.value}"
    end = f"no; reported at {end}" if outcome.due is not None and not outcome.stopped else end
    return f"| {of.what} | {warning_times} | {end} |"


def main() -> None:
    """Print the table."""
    print("| use in five hours | its user is warned at | stopped at |", "|---|---|---|", *map(row, CURVES), sep="\n")


if __name__ == "__main__":
    main()
