"""Writes the events of sessions to JupyterHub's own event log.

An admin configures it with ``c.EventLogger.handlers``; without handlers it discards them.
"""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.hub.events.stream import STREAM
from jupyterhub_gpuspawner.hub.jupyterhub_compat import event_log

if TYPE_CHECKING:
    from jupyter_events.logger import EventLogger
    from jupyterhub.app import JupyterHub

    from jupyterhub_gpuspawner.hub.events.stream import Take
    from jupyterhub_gpuspawner.records.record import Event

SCHEMAS = Path(__file__).parent / "schemas"


def register_schemas(log: EventLogger) -> None:
    """Have the event log know our events."""
    for path in sorted(SCHEMAS.glob("*.yaml")):
        log.register_event_schema(path)


def emitter(log: EventLogger) -> Take:
    """What writes an event to this log."""

    def emit(event: Event) -> None:
        at = datetime.fromtimestamp(event.at, timezone.utc)
        log.emit(schema_id=event.schema_id(), data=event.to_json(), timestamp_override=at)

    return emit


def begin_events(app: JupyterHub) -> None:
    """Write events to the hub's event log, which is there when the hub sets up its handlers."""
    log = event_log(app)
    register_schemas(log)
    STREAM.subscribe(emitter(log))
