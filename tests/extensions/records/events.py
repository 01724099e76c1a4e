"""The events of a session of which promises are kept."""

from __future__ import annotations

from dataclasses import replace

from jupyterhub_gpuspawner.extensions.records.promises import Promise, PromiseMoment
from jupyterhub_gpuspawner.hub.job.session import Event
from jupyterhub_gpuspawner.slurm.estimate import expected, starts_now
from tests.standins import session_events
from tests.standins.session_events import NOON, READY, SUBMITTED, USAGE

PROMISES = (
    Promise(NOON, PromiseMoment.CLICK, starts_now(), "gpu"),
    Promise(NOON + 1, PromiseMoment.QUEUED, expected(NOON + 61, now=NOON + 1), "gpu"),
)
PLACED = replace(session_events.PLACED, promises=PROMISES)
ENDED = replace(session_events.ENDED, promises=PROMISES)
LIFE: tuple[Event, ...] = (SUBMITTED, PLACED, READY, USAGE, ENDED)
