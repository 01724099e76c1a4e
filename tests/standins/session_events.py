"""The events of a session."""

from __future__ import annotations

from typing import Any

from jupyterhub_gpuspawner.hub.job.cause import Cause, Kind
from jupyterhub_gpuspawner.hub.job.session import Ended, Event, Placed, Ready, Submitted, Usage

NOON = 1772452800.0
"""2026-03-02 12:00 UTC."""
COMMON: dict[str, Any] = {"session": "0a1b-7", "username": "ada", "servername": "second", "job_id": "42"}
SUBMITTED = Submitted(
    **COMMON,
    at=NOON + 1,
    begun_at=NOON,
    profile="two-k80",
    course="dl",
    partition="gpu",
    gpus=2,
    gpu_type="k80",
    cpus=4,
    memory_mib=8192,
    seconds=3600,
)
PLACED = Placed(
    **COMMON,
    at=NOON + 41,
    profile="two-k80",
    allocated_at=NOON + 31,
    node="g3",
    partition="gpu",
    gpus=2,
    gpu_model="Tesla K80",
    cpus=4,
    memory_mib=8192,
    aligned=True,
    weakest_link="PIX",
    reasons=("Priority", "Resources"),
)
READY = Ready(**COMMON, at=NOON + 45, profile="two-k80", queue_seconds=30.0, start_seconds=10.0, ready_seconds=4.0)
USAGE = Usage(
    **COMMON,
    at=NOON + 345,
    seconds=300.0,
    gpu_seconds_measured=600.0,
    gpu_seconds_busy=150.0,
    gpu_memory_max_mib=2000,
    memory_max_mib=1500,
    joules=9000.0,
)
ENDED = Ended(
    **COMMON,
    at=NOON + 645,
    begun_at=NOON,
    profile="two-k80",
    course="dl",
    served=True,
    cause=Cause(Kind.TIME_LIMIT),
    reasons=("Priority", "Resources"),
)
LIFE: tuple[Event, ...] = (SUBMITTED, PLACED, READY, USAGE, ENDED)
