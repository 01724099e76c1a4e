"""A server's card on the home page: what it does, where it runs, when it ends; or how it ended.

It takes any spawner, so that a hub with other children, or without profiles, has cards as well.
"""

from __future__ import annotations

import time
import zlib
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from jupyterhub_gpuspawner.hub.ending.failure import ending_of
from jupyterhub_gpuspawner.hub.ending.record import parse_ending
from jupyterhub_gpuspawner.hub.jupyterhub_compat import display_name
from jupyterhub_gpuspawner.hub.pages.server.facts import ServerFacts, headline, server_facts, up_to_date
from jupyterhub_gpuspawner.hub.pages.text import live
from jupyterhub_gpuspawner.hub.start.progress import event

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.hub.ending.record import Ending
    from jupyterhub_gpuspawner.wire.documents import PlacementDocument

SOON, VERY_SOON = 15 * 60, 5 * 60
"""Seconds before a server's end at which the page warns, and warns again."""


@dataclass(frozen=True)
class TimeLeft:
    """When a server ends, and what is said of it; the page's script says it anew as time goes by."""

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
    """Where it runs and what it got; or what happens; or how it ended."""
    advice: str = ""
    facts: ServerFacts | None = None
    left: TimeLeft | None = None
    silent: bool = False
    """Slurm does not answer: what is said is what was last known."""
    log: bool = False
    """There is a log to look at."""

    @property
    def word(self) -> str:
        """The state in words."""
        return live.STATES[self.state]

    @property
    def news(self) -> str:
        """What is said of it aloud when it changes."""
        return f"{self.title}: {self.word}."

    @property
    def version(self) -> str:
        """Another one as soon as anything but the time is another."""
        rows = self.facts.rows if self.facts is not None else ()
        told = (self.state, self.headline, self.advice, rows, self.left and self.left.ends, self.silent)
        return f"{zlib.crc32(repr(told).encode()):08x}"


def server_card(spawner: Any, *, now: float | None = None) -> ServerCard | None:
    """The card of a spawner; None where nothing runs and nothing is to be told."""
    now = time.time() if now is None else now
    title = live.title(spawner.name, display_name(spawner))
    if spawner.pending == "stop":
        return ServerCard(spawner.name, title, "stopping", live.STOPPING)
    if spawner.pending:
        return _starting(spawner, title, now)
    if spawner.ready:
        return _running(spawner, title, now)
    return _over(spawner, title)


def _own(spawner: Any) -> Any:
    """The spawner that starts the server: a profile's child, or this one."""
    return getattr(spawner, "child_spawner", None) or spawner


def current_placement(spawner: Any) -> PlacementDocument | None:
    """Where a server runs and what it got, with its end as Slurm tells it now; None before that is known."""
    placement: PlacementDocument | None = getattr(spawner, "placement", None)
    return up_to_date(placement, getattr(_own(spawner), "job", None)) if placement is not None else None


def _starting(spawner: Any, title: str, now: float) -> ServerCard:
    own = _own(spawner)
    facts = own.start_facts() if hasattr(own, "start_facts") else None
    told = str(event(facts, now=now)["message"]) if facts is not None else ""
    return ServerCard(spawner.name, title, "starting", told, silent=facts is not None and facts.silent)


def _running(spawner: Any, title: str, now: float) -> ServerCard:
    own, placement = _own(spawner), current_placement(spawner)
    silent = hasattr(own, "start_facts") and own.start_facts().silent
    log = bool(getattr(own, "job_id", "")) and hasattr(own, "job_log")
    if placement is None:
        return ServerCard(spawner.name, title, "running", silent=silent, log=log)
    return ServerCard(
        spawner.name,
        title,
        "running",
        headline(placement),
        facts=server_facts(placement, getattr(spawner, "topology", None)),
        left=time_left(placement.ends_at, now),
        silent=silent,
        log=log,
    )


def _over(spawner: Any, title: str) -> ServerCard | None:
    start = getattr(spawner, "_spawn_future", None)
    fault = start.exception() if start is not None and start.done() and not start.cancelled() else None
    ending = ending_of(fault) or last_ending(spawner)
    if ending is not None:
        state = "ended" if ending.served else "failed"
        return ServerCard(spawner.name, title, state, ending.what, ending.advice, log=bool(ending.log))
    if fault is None:
        return None
    told = getattr(fault, "jupyterhub_message", "") or live.START_FAILED
    return ServerCard(spawner.name, title, "failed", str(told).partition("\n")[0])


def last_ending(spawner: Any) -> Ending | None:
    """How a server ended; for a named server that is gone JupyterHub has nothing but its row of the database."""
    ending: Ending | None = getattr(spawner, "ending", None)
    return ending or parse_ending((getattr(spawner, "state", None) or {}).get("ending"))


def time_left(ends_at: str | None, now: float) -> TimeLeft | None:
    """What is said of an end in ISO 8601; None where there is none."""
    if ends_at is None:
        return None
    try:
        ends = datetime.fromisoformat(ends_at.replace("Z", "+00:00"))
    except ValueError:
        return None
    ends = (ends if ends.tzinfo else ends.replace(tzinfo=timezone.utc)).astimezone()
    left = ends.timestamp() - now
    words = live.span(left)
    if left <= 0:
        return TimeLeft(ends, words, live.TIME_IS_OVER)
    warning = live.ENDS_VERY_SOON if left <= VERY_SOON else live.ENDS_SOON if left <= SOON else ""
    return TimeLeft(ends, words, warning.format(left=words))
