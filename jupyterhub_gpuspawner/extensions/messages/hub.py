"""What messages add to a hub: their table, their REST, and a notice for each message that somebody reads now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jupyterhub_gpuspawner.extensions.messages.api import HANDLERS, audiences
from jupyterhub_gpuspawner.extensions.messages.store import TABLE, messages_of
from jupyterhub_gpuspawner.hub.extension import HubExtension, Notice


def notices_to(user: Any, spawner: Any = None) -> Iterator[Notice]:
    """What administrators tell this user now; with ``spawner``, in this one of the user's servers."""
    messages = messages_of(user.db)
    if messages.shown():
        spawners = [spawner] if spawner is not None else list(user.spawners.values())
        for message in messages.shown_to(audiences(user.name, spawners)):
            yield Notice(message.text, message.sender, message.at)


HUB = HubExtension(tables=(TABLE,), api=tuple(HANDLERS), notices=notices_to)
