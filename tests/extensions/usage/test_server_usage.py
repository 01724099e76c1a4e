"""Summaries of a server's use at the hub: what is refused, what is kept, and for how long."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from jupyterhub_gpuspawner.errors import ReportError
from jupyterhub_gpuspawner.extensions.usage.metric import use_of_gpus
from jupyterhub_gpuspawner.extensions.usage.node.summary import GpuUse, UsageSummary
from jupyterhub_gpuspawner.extensions.usage.use import SUMMARIES_AT_MOST, ServerUsage, Use, parse_usage
from jupyterhub_gpuspawner.hub.job.session import Event, Life, Session, Stream, Usage
from jupyterhub_gpuspawner.wire.documents import PlacedGpu, PlacementDocument

SUMMARY = UsageSummary(
    job_id="7",
    seconds=300.0,
    samples=10,
    interval=30.0,
    gpus=(
        GpuUse(0, "GPU-a", None, 83.0, 71.2, 99.0, 10, 40960, 21504, 30000, 2, 240.5, 70000.0),
        GpuUse(1, "GPU-b"),
    ),
    cores=3.2,
    cores_mean=2.5,
    cores_max=4.0,
    memory_mib=2048,
    memory_max_mib=4096,
    problems=("The use of GPU 1 is unknown: GPU is lost.",),
)
PLACEMENT = PlacementDocument(job_id="7", partition="gpu", gpus=(PlacedGpu(0, "GPU-a"), PlacedGpu(1, "GPU-b")))


class Spawner:
    """A spawner with a placement, a job and a clock."""

    def __init__(self, placement: PlacementDocument | None = PLACEMENT, job_id: str = "7") -> None:
        self.report, self.job_id, self.now = SimpleNamespace(placement=placement), job_id, 1000.0
        self.child_profile, self.cluster = "a100", ""
        self.events: list[Event] = []
        stream = Stream()
        stream.subscribe(self.events.append)
        self.life = Life(stream, clock=lambda: self.now)
        self.usage = ServerUsage(self, clock=lambda: self.now)


def test_the_hub_reads_what_the_node_has_sent() -> None:
    """The same value."""
    assert parse_usage(SUMMARY.dumps().encode()) == SUMMARY


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        ({}, "usage.version: Field required"),
        ({"version": 2}, "usage.version: Input should be less than or equal to 1"),
        ({"version": 1, "who": 1}, "usage.who: Extra inputs are not permitted"),
        ({"version": 1, "seconds": -1}, "usage.seconds: Input should be greater than or equal to 0"),
        ({"version": 1, "seconds": "60"}, "usage.seconds: Input should be a valid number"),
        ({"version": 1, "gpus": [{}]}, "usage.gpus[0].index: Field required"),
        (
            {"version": 1, "gpus": [{"index": 0, "utilization": 101}]},
            "usage.gpus[0].utilization: Input should be less than or equal to 100",
        ),
        ({"version": 1, "problems": ["a\nb"]}, "usage.problems[0]: must be printable text"),
        (
            {"version": 1, "gpus": [{"index": 0}] * 65},
            "usage.gpus: List should have at most 64 items after validation, not 65",
        ),
    ],
)
def test_a_summary_that_is_none_is_refused_with_the_field(document: object, fault: str) -> None:
    """Every field has its type and its bounds."""
    with pytest.raises(ReportError) as refused:
        parse_usage(json.dumps(document).encode())

    assert str(refused.value) == fault


def test_the_last_hour_is_kept() -> None:
    """By the hub's clock; a summary is about the time before it came."""
    spawner = Spawner()
    for minute in range(0, 70, 5):
        spawner.now = 60.0 * minute
        spawner.usage.accept(SUMMARY)

    assert [use.at / 60 for use in spawner.usage.last_hour()] == [5.0 * n for n in range(1, 14)]
    assert spawner.usage.last_hour()[0].since == 0.0


def test_a_server_that_sends_without_end_costs_no_memory() -> None:
    """The number of summaries is bounded."""
    spawner = Spawner()
    for _ in range(SUMMARIES_AT_MOST + 50):
        spawner.usage.accept(SUMMARY)

    assert len(spawner.usage.last_hour()) == SUMMARIES_AT_MOST


def test_gpus_that_are_not_the_servers_are_not_kept() -> None:
    """A summary may name any."""
    spawner = Spawner()
    spawner.usage.accept(replace(SUMMARY, gpus=(*SUMMARY.gpus, GpuUse(2, "GPU-c"), GpuUse(0, "GPU-x"))))

    assert spawner.usage.last_hour() == (Use(1000.0, SUMMARY),)


@pytest.mark.parametrize(
    ("spawner", "fault"),
    [
        (Spawner(placement=None), "usage: this server has not reported its placement"),
        (Spawner(job_id=""), "usage: this server has not reported its placement"),
        (Spawner(job_id="8"), "usage.job_id: must be 8, the job of this server"),
    ],
)
def test_a_summary_of_another_server_is_refused(spawner: Spawner, fault: str) -> None:
    """Nothing is kept."""
    with pytest.raises(ReportError) as refused:
        spawner.usage.accept(SUMMARY)

    assert (str(refused.value), spawner.usage.last_hour()) == (fault, ())


def test_the_use_of_an_earlier_job_is_not_shown() -> None:
    """The next start begins with nothing."""
    spawner = Spawner()
    spawner.usage.accept(SUMMARY)
    spawner.job_id = "8"

    assert spawner.usage.last_hour() == ()


def test_the_metrics_add_up_gpus_by_profile_and_partition() -> None:
    """Unknown are GPUs that could not be measured, and those of servers from which nothing has come for long."""
    measured, silent, quiet, cpu = Spawner(), Spawner(), Spawner(), Spawner(PlacementDocument(partition="cpu"))
    measured.usage.accept(SUMMARY)
    silent.usage.accept(SUMMARY)
    silent.now += 361

    metrics = use_of_gpus([spawner.usage for spawner in (measured, silent, quiet, cpu)])

    assert metrics == (
        {("", "a100", "gpu"): 0.83},
        {("", "a100", "gpu", "known"): 1, ("", "a100", "gpu", "unknown"): 5},
    )


@pytest.mark.parametrize("restarted", [False, True])
def test_nobody_uses_more_time_than_has_passed(restarted: bool) -> None:
    """A summary may claim a day; its energy is taken in proportion, and an unknown use stays unknown.

    The time counts from when the hub knew where the server runs, also after a restart.
    """
    gpu = replace(SUMMARY.gpus[0], utilization_mean=25.0, energy_joules=4500.0)
    summary = replace(SUMMARY, gpus=(gpu, replace(gpu, index=1, uuid="GPU-b")))
    spawner = Spawner()
    spawner.life.session = Session("0a1b-7", "ada", "second", 900.0, job_id="7")
    spawner.usage.placed(PLACEMENT, ())
    if restarted:
        state = spawner.usage.to_state()
        spawner.usage = ServerUsage(spawner, clock=lambda: spawner.now)
        spawner.usage.load(state)
    for now, sent in (
        (1030.0, summary),
        (1030.0, summary),
        (1060.0, replace(summary, seconds=30.0, samples=1, gpus=(GpuUse(0, "GPU-a"),))),
    ):
        spawner.now = now
        spawner.usage.accept(sent)

    used = Usage(
        session="0a1b-7",
        username="ada",
        servername="second",
        job_id="7",
        at=1030.0,
        seconds=30.0,
        gpu_seconds_measured=60.0,
        gpu_seconds_busy=15.0,
        gpu_memory_max_mib=30000,
        memory_max_mib=4096,
        joules=900.0,
    )
    nothing: dict[str, Any] = {"gpu_seconds_measured": 0.0, "gpu_seconds_busy": 0.0}
    assert spawner.events == [
        used,
        replace(used, seconds=0.0, joules=0.0, **nothing),
        replace(used, at=1060.0, joules=None, gpu_memory_max_mib=None, **nothing),
    ]
