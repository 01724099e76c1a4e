"""``GET /hub/api/gpuspawner/session``: what a running server may know of itself, for JupyterLab on the node."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from jupyterhub.spawner import Spawner
from jupyterhub.user import User
from tornado import web

from jupyterhub_gpuspawner.hub.course.book import course_book
from jupyterhub_gpuspawner.hub.jupyterhub_compat import came_with_token
from jupyterhub_gpuspawner.hub.messages.api import messages_to
from jupyterhub_gpuspawner.hub.messages.store import Message
from jupyterhub_gpuspawner.hub.server.card import idle_notice
from jupyterhub_gpuspawner.hub.server.facts import gpus_in_words, server_facts
from jupyterhub_gpuspawner.hub.server.more_time import PATIENCE, more_time_document
from jupyterhub_gpuspawner.hub.server.report import reporting_server
from jupyterhub_gpuspawner.hub.spawners.server import Server, lab_minutes, refresh_more_time, server_of
from jupyterhub_gpuspawner.hub.web.handlers import RateLimit, RESTHandler

VERSION = 1
REQUESTS = RateLimit(burst=30, per_minute=20)
"""For each server, whose browser tabs share the answer."""


@dataclass(frozen=True)
class SessionMessage:
    """What an instructor or an administrator tells, to be shown as text."""

    course: str
    """The course's title; empty for an administrator's message."""
    at: str
    """ISO 8601, UTC."""
    text: str
    """Up to 500 characters, in one or more lines."""
    sender: str
    """Their user name."""


@dataclass(frozen=True)
class SessionIdle:
    """That this server is idle, as on the home page."""

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
class SessionDocument:
    """A running server, as its own token may read it."""

    version: int
    now: str
    """The hub's time, ISO 8601, UTC: clocks of browsers differ."""
    ends_at: str | None
    """When Slurm ends the server, ISO 8601, UTC; None if that is not known."""
    profile: str
    """The profile's display name."""
    job_id: str
    node: str
    has: tuple[str, ...]
    """GPUs, cores and memory in words, as on the home page."""
    gpus: tuple[str, ...]
    """The GPUs alone."""
    more_time: Mapping[str, Any]
    """As ``GET .../extend`` answers."""
    messages: tuple[SessionMessage, ...]
    """What instructors and administrators tell now, the newest first."""
    notices: tuple[int, ...]
    """Minutes before the end at which JupyterLab tells it (``lab_notices``)."""
    saves: tuple[int, ...]
    """Minutes before the end at which JupyterLab saves open documents."""
    picture: bool
    """Whether there is a picture of the node."""
    idle: SessionIdle | None = None
    """None where its user is not told that it is idle."""

    def to_json(self) -> dict[str, Any]:
        """The document."""
        return asdict(self)


def session_document(
    server: Server,
    messages: Sequence[Message],
    *,
    now: float,
    titles: Mapping[str, str],
    notices: Sequence[int],
    saves: Sequence[int],
) -> SessionDocument:
    """The document of this server; ``titles``: of courses by slug."""
    placement = server.placement
    facts = server_facts(placement, server.topology) if placement is not None else None
    return SessionDocument(
        version=VERSION,
        now=_utc(now),
        ends_at=placement.ends_at if placement is not None else None,
        profile=server.profile_name,
        job_id=server.job_id,
        node=placement.node if placement is not None else "",
        has=facts.got if facts is not None else (),
        gpus=gpus_in_words(placement) if placement is not None else (),
        more_time=more_time_document(server),
        messages=tuple(
            SessionMessage(titles.get(message.course, message.course), _utc(message.at), message.text, message.sender)
            for message in messages
        ),
        notices=tuple(notices),
        saves=tuple(saves),
        picture=bool(facts is not None and facts.picture),
        idle=_idle(server),
    )


def _idle(server: Server) -> SessionIdle | None:
    notice = idle_notice(server)
    if notice is None or server.idle is None:
        return None
    return SessionIdle(
        said=notice.sentence,
        since=_utc(notice.since) if notice.since is not None else None,
        follows=notice.follows,
        stops_at=_utc(notice.stops_at) if notice.stops_at is not None else None,
        warnings=server.idle.verdict.warnings,
        keeps=notice.keeps,
        can_keep=notice.can_keep,
    )


def _utc(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).isoformat()


class _OwnServer(RESTHandler):
    """For the token of a running server, which need not be named: it is the server that asks."""

    def own_spawner(self) -> Spawner:
        """The asking server's spawner; raises 403 for another token, 404 if it does not run, 429 beyond the limit."""
        user = self.current_user
        name = reporting_server(self.expanded_scopes, user.name) if isinstance(user, User) else None
        if not came_with_token(self) or name is None:
            raise web.HTTPError(403, "A session is told to the server's own token alone.")
        self.try_later(429, REQUESTS.wait((user.name, name)), "This server asks too often.")
        spawner = user.spawners.get(name)
        if spawner is None or not spawner.active:
            raise web.HTTPError(404, "This server does not run.")
        return spawner


class SessionHandler(_OwnServer):
    """A running server, for itself; only its own token is accepted, which the companion in JupyterLab uses."""

    async def get(self) -> None:
        """Its end, GPUs, more time and messages: the session document, version 1."""
        spawner = self.own_spawner()
        await refresh_more_time([spawner], patience=PATIENCE)
        user: Any = self.current_user
        book = course_book(user.settings)
        notices, saves = lab_minutes(spawner)
        document = session_document(
            server_of(spawner),
            messages_to(user, spawner),
            now=time.time(),
            titles={course.slug: course.title for course in (book.courses() if book is not None else ())},
            notices=notices,
            saves=saves,
        )
        self.write(json.dumps(document.to_json()))


class PictureHandler(_OwnServer):
    """The picture of the node of a running server, for itself."""

    async def get(self) -> None:
        """As SVG; 404 where there is none."""
        server = server_of(self.own_spawner(), with_start=False)
        picture = server_facts(server.placement, server.topology).picture if server.placement is not None else ""
        if not picture:
            raise web.HTTPError(404, "There is no picture of this node.")
        self.set_header("Content-Type", "image/svg+xml")
        self.write(str(picture))


HANDLERS = [
    (r"/api/gpuspawner/session", SessionHandler),
    (r"/api/gpuspawner/session/picture", PictureHandler),
]
