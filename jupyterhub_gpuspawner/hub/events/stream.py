"""The events of this hub's sessions: published once, and taken by whoever has subscribed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from traitlets.log import get_logger

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.records.record import Event

Take = Callable[["Event"], None]


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
