"""The record of a session."""

from __future__ import annotations

from jupyterhub_gpuspawner.extensions.records.record import SessionRecord
from jupyterhub_gpuspawner.hub.job.cause import Cause, Kind
from tests.extensions.records.events import PROMISES
from tests.standins.session_events import NOON

RECORD = SessionRecord(
    session="0a1b-7",
    username="ada",
    servername="second",
    job_id="42",
    profile="two-k80",
    course="dl",
    begun_at=NOON,
    submitted_at=NOON + 1,
    allocated_at=NOON + 31,
    placed_at=NOON + 41,
    ready_at=NOON + 45,
    ended_at=NOON + 645,
    seen_at=NOON + 645,
    queue_seconds=30.0,
    start_seconds=10.0,
    ready_seconds=4.0,
    reasons=("Priority", "Resources"),
    promises=PROMISES,
    asked_partition="gpu",
    asked_nodes=1,
    asked_gpus=2,
    asked_gpu_type="k80",
    asked_cpus=4,
    asked_memory_mib=8192,
    asked_seconds=3600,
    partition="gpu",
    node="g3",
    nodes=1,
    gpus=2,
    gpu_model="Tesla K80",
    cpus=4,
    memory_mib=8192,
    aligned=True,
    weakest_link="PIX",
    gpu_seconds_measured=600.0,
    gpu_seconds_busy=150.0,
    gpu_memory_max_mib=2000,
    memory_max_mib=1500,
    joules=9000.0,
    cause=Cause(Kind.TIME_LIMIT),
)
"""What is left of :data:`LIFE`."""
