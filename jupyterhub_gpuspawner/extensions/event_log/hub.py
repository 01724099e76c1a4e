"""Writes events to the hub's event log, which is there when the hub sets up its handlers."""

from __future__ import annotations

from datetime import datetime, timezone

from jupyter_events.logger import EventLogger
from jupyterhub.app import JupyterHub

from jupyterhub_gpuspawner.hub.extension import HubExtension
from jupyterhub_gpuspawner.hub.job.session import SCHEMAS, Event, Stream, Take
from jupyterhub_gpuspawner.hub.site.state import state_of


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
    """Pass each event on to the hub's log."""
    register_schemas(app.eventlog)
    state_of(app.tornado_settings).of(Stream).subscribe(emitter(app.eventlog))


HUB = HubExtension(begin=(begin_events,))
