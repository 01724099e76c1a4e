"""What the card of a server, REST and JupyterLab show of more time for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from jupyterhub_gpuspawner.extensions.more_time.bounds import MoreTime
from jupyterhub_gpuspawner.extensions.more_time.extending import Extended, ServerTime, extend_server
from jupyterhub_gpuspawner.hub.extension import Place, ServerPart
from jupyterhub_gpuspawner.hub.spawners.server import Server, ServerState, kept_with


@dataclass(frozen=True)
class Shown:
    """What the card of a server shows of more time."""

    offer: MoreTime | None = None
    """What the button *More time* does, or why it does nothing; None where more time is not offered."""
    last: Extended | None = None
    """The last extension."""


def parts_of(spawner: Any, server: Server) -> Iterator[ServerPart]:
    """The part of any server: that of one that cannot be extended says so over REST, and is not on its card."""
    of_server = kept_with(spawner, ServerTime)
    offer = of_server.offer() if of_server is not None and server.ready and server.start is not None else None
    shown = Shown()
    if of_server is not None and server.state is ServerState.RUNNING:
        suspended = server.job is not None and server.job.state == "SUSPENDED"
        shown = Shown(offer if server.placement is not None and not suspended else None, of_server.last)
    document = {
        "version": 1,
        "possible": offer is not None and offer.possible,
        "ends_at": server.placement.ends_at if server.placement is not None else None,
        **(offer.document() if offer is not None else {}),
    }
    template = "more_time_card.html" if shown != Shown() else ""
    yield ServerPart(
        "more_time",
        Place.ACTION,
        template,
        shown,
        version=repr(shown),
        extend=partial(_extend, spawner),
        document={"more_time": document},
    )


async def _extend(spawner: Any, minutes: int | None, by: str) -> int:
    return (await extend_server(spawner, minutes, by=by)).seconds


def part_of(server: Server) -> ServerPart:
    """The part of a server that is known."""
    return next(part for part in server.parts if part.name == "more_time")
