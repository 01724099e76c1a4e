"""The events of this hub's sessions: published once, taken by whoever has subscribed, and put into JupyterHub's log.

An admin configures that log with ``c.EventLogger.handlers``; without handlers it discards them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

from jupyter_events.logger import EventLogger
from jupyterhub.app import JupyterHub
from traitlets.log import get_logger

from jupyterhub_gpuspawner.hub.job.events import Event
from jupyterhub_gpuspawner.hub.jupyterhub_compat import event_log

Take = Callable[[Event], None]


class Stream:
    """Passes events on to subscribers, in the order of their subscription."""

    def __init__(self) -> None:
        self._subscribers: list[Take] = []

    def subscribe(self, take: Take) -> Callable[[], None]:
        """Call ``take`` with each event from now on; returns what ends that.

        It is called in the hub's event loop, so it must not block. Its error is logged, and concerns nobody else.
        """
        self._subscribers.append(take)
        return lambda: self._subscribers.remove(take)

    def publish(self, event: Event) -> None:
        """Pass an event on; never raises."""
        for take in tuple(self._subscribers):
            try:
                take(event)
            except Exception:  # noqa: BLE001 - no server may fail because of who hears of it
                get_logger().exception("The event %s of session %s was not taken", event.NAME, event.session)


STREAM = Stream()
"""That of the hub of this process."""


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
