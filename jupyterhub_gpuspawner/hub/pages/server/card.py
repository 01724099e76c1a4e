"""A server's card on the home page: its state, where it runs and when it ends, or how it ended.

Servers of other packages' spawners, and hubs without profiles, have cards as well.
"""

from __future__ import annotations

import time
import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.hub.jupyterhub_compat import first_line
from jupyterhub_gpuspawner.hub.pages.server.facts import ServerFacts, headline, server_facts
from jupyterhub_gpuspawner.hub.start.progress import event
from jupyterhub_gpuspawner.hub.text import home
from jupyterhub_gpuspawner.hub.text.times import parse_time

if TYPE_CHECKING:
    from datetime import datetime

    from jupyterhub_gpuspawner.hub.spawners.server import Server

SOON, VERY_SOON = 15 * 60, 5 * 60
"""Seconds before a server's end at which the page warns for the first and the second time."""


@dataclass(frozen=True)
class TimeLeft:
    """When a server ends, in words; the page's script keeps the words up to date."""

    ends: datetime
    """In the hub's zone."""
    words: str
    warning: str = ""
    """Empty while there is time."""


@dataclass(frozen=True)
class ServerCard:
    """One server of a user."""

    name: str
    """Empty for the default server."""
    title: str
    state: str
    """``running``, ``starting``, ``stopping``, ``ended`` or ``failed``."""
    headline: str = ""
    """Its node and resources while it runs, its progress while it starts, or how it ended."""
    advice: str = ""
    facts: ServerFacts | None = None
    left: TimeLeft | None = None
    silent: bool = False
    """Slurm is not responding: the card shows the last known state."""
    log: bool = False
    """There is a log to show."""

    @property
    def word(self) -> str:
        """The state in words."""
        return home.STATES[self.state]

    @property
    def news(self) -> str:
        """What screen readers announce when the state changes."""
        return f"{self.title}: {self.word}."

    @property
    def version(self) -> str:
        """A checksum of everything on the card except the time left."""
        rows = self.facts.rows if self.facts is not None else ()
        told = (self.state, self.headline, self.advice, rows, self.left and self.left.ends, self.silent)
        return f"{zlib.crc32(repr(told).encode()):08x}"


def server_card(server: Server, *, now: float | None = None) -> ServerCard | None:
    """The card of a server; None where nothing runs and there is nothing to say."""
    now = time.time() if now is None else now
    title = home.title(server.name, server.display_name)
    if server.pending == "stop":
        return ServerCard(server.name, title, "stopping", home.STOPPING)
    if server.pending:
        progress = str(event(server.start, now=now)["message"]) if server.start is not None else ""
        return ServerCard(server.name, title, "starting", progress, silent=server.silent)
    if server.ready:
        return _running(server, title, now)
    return _over(server, title)


def _running(server: Server, title: str, now: float) -> ServerCard:
    card = ServerCard(server.name, title, "running", silent=server.silent, log=server.can_show_log)
    placement = server.placement
    if placement is None:
        return card
    return replace(
        card,
        headline=headline(placement),
        facts=server_facts(placement, server.topology),
        left=time_left(placement.ends_at, now),
    )


def _over(server: Server, title: str) -> ServerCard | None:
    ending = server.ending
    if ending is not None:
        state = "ended" if ending.served else "failed"
        return ServerCard(server.name, title, state, ending.what, ending.advice, log=bool(ending.log))
    if server.failure is None:
        return None
    return ServerCard(server.name, title, "failed", first_line(server.failure) or home.START_FAILED)


def time_left(ends_at: str | None, now: float) -> TimeLeft | None:
    """The time until ``ends_at`` (ISO 8601); None where there is no end, or where it cannot be parsed."""
    if ends_at is None:
        return None
    try:
        ends = parse_time(ends_at)
    except ValueError:
        return None
    left = ends.timestamp() - now
    words = home.time_left(left)
    if left <= 0:
        return TimeLeft(ends, words, home.TIME_IS_OVER)
    warning = home.ENDS_VERY_SOON if left <= VERY_SOON else home.ENDS_SOON if left <= SOON else ""
    return TimeLeft(ends, words, warning.format(left=words))
