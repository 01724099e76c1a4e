"""A server's card on the home page: its state, where it runs and when it ends, or how it ended.

Servers of other packages' spawners, and hubs without profiles, have cards as well.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from jupyterhub_gpuspawner.hub import extension, words
from jupyterhub_gpuspawner.hub.jupyterhub_compat import first_line
from jupyterhub_gpuspawner.hub.server.facts import ServerFacts, UsageCard, server_facts, usage_card
from jupyterhub_gpuspawner.hub.spawners.server import Server, ServerState
from jupyterhub_gpuspawner.hub.start.progress import event
from jupyterhub_gpuspawner.hub.times import parse_time
from jupyterhub_gpuspawner.hub.web.handlers import utc
from jupyterhub_gpuspawner.profiles.profile import IdleAction

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
class Extending:
    """The button *More time*, and what it does or why it does nothing."""

    words: str
    """With ``{time}`` in the place of :attr:`ends_at`."""
    ends_at: float | None
    possible: bool
    uses: str = ""
    """How often it can be used."""


@dataclass(frozen=True)
class IdleNotice:
    """That a server is idle, on its card and in the session document."""

    said: str
    """Since when it is; ``{time}`` stands for :attr:`since`."""
    since: str | None
    """ISO 8601, UTC."""
    follows: str
    """What follows; ``{time}`` stands for :attr:`stops_at`."""
    stops_at: str | None
    """ISO 8601, UTC; None where it will not be stopped."""
    warnings: int
    """How often it has been warned; each time it is shown anew."""
    keeps: str
    """What *Keep* does, or why it does nothing."""
    can_keep: bool


@dataclass(frozen=True)
class ServerCard:
    """One server of a user."""

    name: str
    """Empty for the default server."""
    title: str
    """The profile's name, and the server's where it has one."""
    state: str
    """``running``, ``waiting`` (in Slurm's queue), ``starting``, ``stopping``, ``ended``, ``failed`` or ``stopped``."""
    headline: str = ""
    """Its progress while it starts, or how it ended."""
    ended: str = ""
    """When it ended, with ``{time}`` in the place of :attr:`at`."""
    at: float | None = None
    """Seconds since the epoch."""
    advice: str = ""
    facts: ServerFacts | None = None
    usage: UsageCard | None = None
    """None where nothing is known of its use."""
    left: TimeLeft | None = None
    extending: Extending | None = None
    """None where more time is not offered."""
    idle: IdleNotice | None = None
    """None where its user is not told that it is idle."""
    extended: str = ""
    """The last extension, with ``{time}`` in the place of :attr:`extended_at`."""
    extended_at: float | None = None
    silent: bool = False
    """Slurm is not responding: the card shows the last known state."""
    as_of: float | None = None
    """When Slurm last responded, in seconds since the epoch, while it is silent; None: not yet."""
    log: bool = False
    """There is a log to show."""

    @property
    def word(self) -> str:
        """The state in words."""
        return words.STATES[self.state]

    @property
    def news(self) -> str:
        """What screen readers announce when the state changes."""
        return f"{self.title}: {self.word}."

    @property
    def version(self) -> str:
        """A checksum of everything on the card except the time left."""
        rows = self.facts.rows if self.facts is not None else ()
        ends = self.left.ends if self.left is not None else None
        content = (self.state, self.title, self.headline, self.ended, self.at, self.advice, rows, ends, self.silent)
        nodes = (
            (self.facts.problems, [other.facts.rows for other in self.facts.others]) if self.facts is not None else ()
        )
        more = (nodes, self.extending, self.extended_at, self.usage.at if self.usage is not None else None, self.idle)
        return f"{zlib.crc32(repr((content, more)).encode()):08x}"


def server_cards(servers: Iterable[Server], *, now: float | None = None) -> tuple[ServerCard, ...]:
    """A card for each server, those that are active first.

    A default server that is not active and about which there is nothing to say has one only beside another card that
    is: where nothing runs the page says that in a sentence.
    """
    ordered = sorted(servers, key=lambda server: not server.active)
    cards = [server_card(server, now=now) for server in ordered]
    any_active = any(server.active for server in ordered)
    return tuple(card for card in cards if any_active or card.name or card.state != "stopped" or card.ended)


def server_card(server: Server, *, now: float | None = None) -> ServerCard:
    """The card of a server."""
    now = time.time() if now is None else now
    title = words.title(server.name, server.display_name, server.profile_name)
    state = server.state
    if state is ServerState.STOPPING:
        return ServerCard(server.name, title, state.value, words.STOPPING)
    if server.pending:
        facts = replace(server.start, silent=False) if server.start is not None else None
        progress = str(event(facts, now=now)["message"]) if facts is not None else ""
        return _dated(ServerCard(server.name, title, state.value, progress), server)
    if state is ServerState.RUNNING:
        return _running(server, title, now)
    return _over(server, title)


def _running(server: Server, title: str, now: float) -> ServerCard:
    card = _dated(ServerCard(server.name, title, "running", log=server.can_show_log), server)
    card = replace(card, usage=usage_card(server.usage, now=now), idle=idle_notice(server))
    placement, done = server.placement, server.extended
    if done is not None:
        card = replace(card, extended=extension.extended(done.seconds, done.by), extended_at=done.at)
    if placement is None:
        return card
    left = time_left(placement.ends_at, now)
    return replace(
        card,
        facts=server_facts(placement, server.topology, server.node_topologies),
        left=left,
        extending=_extending(server),
    )


def idle_notice(server: Server) -> IdleNotice | None:
    """What the user of a server is told about its being idle; None where it is not, or they are not told."""
    idle = server.idle
    if idle is None or not idle.is_announced:
        return None
    verdict = idle.verdict
    stops_at = verdict.due_at if idle.rule.action is IdleAction.STOP else None
    return IdleNotice(
        said=words.NOT_USED if idle.gpus else words.NOT_USED_CORES,
        since=utc(verdict.since) if verdict.since is not None else None,
        follows=words.what_follows(gpus=idle.gpus, stops=idle.rule.action is IdleAction.STOP),
        stops_at=utc(stops_at) if stops_at is not None else None,
        warnings=verdict.warnings,
        keeps=words.keeps(idle.rule.keep_by, idle.keeps_left),
        can_keep=idle.keeps_left > 0,
    )


def _extending(server: Server) -> Extending | None:
    offer = server.more_time
    if offer is None:
        return None
    possible = offer.bounded.seconds > 0
    uses = extension.uses(offer.uses_left) if possible else ""
    return Extending(extension.more(offer.bounded), offer.bounded.ends_at, possible, uses)


def _dated(card: ServerCard, server: Server) -> ServerCard:
    """The card with what holds while Slurm is silent."""
    if server.start is None or not server.start.silent:
        return card
    return replace(card, silent=True, as_of=server.start.answered_at)


def _over(server: Server, title: str) -> ServerCard:
    ending, stopped, state = server.ending, server.stopped, server.state
    if ending is not None:
        card = ServerCard(server.name, title, state.value, ending.what, advice=ending.advice, log=bool(ending.log))
        if state is ServerState.FAILED:
            return card
        return replace(card, ended=words.ENDED_AT if ending.at is not None else "", at=ending.at)
    if state is ServerState.FAILED and server.failure is not None:
        return ServerCard(server.name, title, state.value, first_line(server.failure) or words.START_FAILED)
    if stopped is not None:
        return ServerCard(server.name, title, state.value, ended=stopped.what, at=stopped.at)
    return ServerCard(server.name, title, state.value)


def time_left(ends_at: str | None, now: float) -> TimeLeft | None:
    """The time until ``ends_at`` (ISO 8601); None where there is no end, or where it cannot be parsed."""
    if ends_at is None:
        return None
    try:
        ends = parse_time(ends_at)
    except ValueError:
        return None
    left = ends.timestamp() - now
    left_in_words = words.time_left(left)
    if left <= 0:
        return TimeLeft(ends, left_in_words, words.TIME_IS_OVER)
    warning = words.ENDS_VERY_SOON if left <= VERY_SOON else words.ENDS_SOON if left <= SOON else ""
    return TimeLeft(ends, left_in_words, warning)
