"""A running server over REST, below ``/hub/api/gpuspawner``: more time, keeping it, and what it may know of itself.

``servers/{user}[/{server}]/extend`` and ``/keep`` are for whoever may start and stop the server and for its own token,
``session`` for its own token alone.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from jupyterhub.handlers.base import BaseHandler
from jupyterhub.scopes import Scope
from jupyterhub.spawner import Spawner
from jupyterhub.user import User
from tornado import web

from jupyterhub_gpuspawner.cluster.estimate import utc
from jupyterhub_gpuspawner.errors import GPUSpawnerError
from jupyterhub_gpuspawner.hub import words
from jupyterhub_gpuspawner.hub.extensions import Notice, extensions_of
from jupyterhub_gpuspawner.hub.idle import IdleServer, NotKept
from jupyterhub_gpuspawner.hub.jupyterhub_compat import is_admin
from jupyterhub_gpuspawner.hub.server.card import IdleNotice, idle_notice, server_facts
from jupyterhub_gpuspawner.hub.spawners.offers import lead_scopes, occasion_of
from jupyterhub_gpuspawner.hub.spawners.server import (
    Server,
    extend_server,
    keep_server,
    lab_minutes,
    refresh_servers,
    server_of,
)
from jupyterhub_gpuspawner.hub.web.handlers import (
    RateLimit,
    RESTHandler,
    own_server,
    permitted,
    server_named,
    server_routes,
)
from jupyterhub_gpuspawner.profiles.offered import OccasionNow

REQUESTS = RateLimit(burst=20, per_minute=20)
"""For each server, whoever asks."""


def staff_for(handler: BaseHandler, spawner: Spawner) -> str:
    """The name of whoever sends the request, if they are staff for this server: its profile's limits are not for them.

    Staff are administrators, those who lead the occasion for which its profile is offered, such as a course, and those
    who have the scope `servers` for more than this one server. The server's own user is not, and nobody with whom the
    server is shared. Empty for all others.
    """
    requester: Any = handler.current_user
    if requester.kind == "user" and requester.name == spawner.user.name:
        return ""
    scopes = handler.parsed_scopes
    if is_admin(scopes) or _beyond_this_server(scopes.get("servers"), spawner) or _leads_server(handler, spawner):
        return str(requester.name)
    return ""


def extends_without_limit(handler: BaseHandler) -> bool:
    """Whether what staff may add to one server holds not for whoever sends the request.

    They are administrators, and those who may start and stop everybody's servers.
    """
    return is_admin(handler.parsed_scopes) or handler.parsed_scopes.get("servers") is Scope.ALL


def _beyond_this_server(filters: Any, spawner: Spawner) -> bool:
    """Whether a scope with these filters covers the server together with others of its user's."""
    if filters is None or filters is Scope.ALL:
        return filters is Scope.ALL
    user: Any = spawner.user
    groups = {group.name for group in user.groups}
    return user.name in filters.get("user", ()) or not groups.isdisjoint(filters.get("group", ()))


def leads_user(handler: BaseHandler, user: Any) -> bool:
    """Whether whoever sends the request leads an occasion of this user's, such as a course."""
    return any(_leads(handler, group.name) for group in user.groups)


def _leads_server(handler: BaseHandler, spawner: Spawner) -> bool:
    user: Any = spawner.user
    occasion = occasion_of(handler.settings, server_of(spawner, with_start=False).profile)
    return (
        occasion is not None
        and any(group.name == occasion.group for group in user.groups)
        and _leads(handler, occasion.group)
    )


def _leads(handler: BaseHandler, group: str) -> bool:
    return any(handler.has_scope(f"{scope}!group={group}") for scope in lead_scopes(handler.settings))


class _RunningServerHandler(RESTHandler):
    """About one server, for whoever may start and stop it, and for the server's own token."""

    body_limit = 1024

    def spawner_of(self, user_name: str, server_name: str) -> Spawner:
        """The server's spawner; raises 404 where there is none, 429 beyond the limit."""
        _, spawner = server_named(self, user_name, server_name)
        self.try_later(429, REQUESTS.wait((user_name, server_name)), "Too many requests about this server.")
        return spawner


class MoreTimeHandler(_RunningServerHandler):
    """More time for a running server; for whoever may start and stop it, and for the server's own token.

    A request of an administrator, of who teaches the server's course, or of who has the scope `servers` for more than
    this server does not count as one of the extensions that its profile allows. All of these together, without
    administrators and those who have that scope for everybody, extend one server by 24 h at most.
    """

    @permitted
    async def get(self, user_name: str, server_name: str = "") -> None:
        """By how much it can be extended now: `possible`, `seconds`, `uses_left`, `reason`, `words`, ..."""
        spawner = self.spawner_of(user_name, server_name)
        await refresh_servers([spawner])
        self.write(more_time_document(server_of(spawner)))

    @permitted
    async def post(self, user_name: str, server_name: str = "") -> None:
        """Extend it by what its profile says, or by `{"minutes": 30}`; 409 with the `reason` if not possible.

        The answer is as for GET, with `extended`: the seconds that were added, which may be fewer.
        """
        spawner = self.spawner_of(user_name, server_name)
        try:
            by, unlimited = staff_for(self, spawner), extends_without_limit(self)
            done = await extend_server(spawner, self._minutes(), by=by, unlimited=unlimited)
        except GPUSpawnerError as error:
            self.refuse(error)
            return
        await refresh_servers([spawner])
        self.write({**more_time_document(server_of(spawner)), "extended": done.seconds})

    def _minutes(self) -> int | None:
        body = self.limited_body()
        if body is None:
            return None
        minutes = body.get("minutes") if isinstance(body, dict) else body
        if not isinstance(body, dict) or set(body) - {"minutes"} or not (minutes is None or type(minutes) is int):
            raise web.HTTPError(400, 'The body must be empty or {"minutes": 30}.')
        return minutes


class KeepHandler(_RunningServerHandler):
    """How a server stands by the idle policy, and keeping it; permitted as for more time."""

    @permitted
    async def get(self, user_name: str, server_name: str = "") -> None:
        """How it stands: `state`, `since`, `due_at`, `action`, `told`, `seen`, and what *Keep* does."""
        idle = server_of(self.spawner_of(user_name, server_name), with_start=False).idle
        if idle is None:
            raise web.HTTPError(404, "Nothing is known of this server's being idle.")
        self.write(idle_document(idle))

    @permitted
    async def post(self, user_name: str, server_name: str = "") -> None:
        """Leave it alone for as long as its profile says; 409 if it is not idle, or cannot be kept again.

        The answer is as for GET, with `kept`, in seconds.
        """
        spawner = self.spawner_of(user_name, server_name)
        try:
            server = keep_server(spawner, by=staff_for(self, spawner))
        except NotKept as error:
            self.refuse(error)
            return
        self.write({**idle_document(server), "kept": server.rule.keep_by})


def idle_document(server: IdleServer) -> dict[str, Any]:
    """How a server stands by the idle policy, version 1. Times are ISO 8601, durations in seconds."""
    verdict, unused = server.verdict, server.unused
    return {
        "version": 1,
        "state": verdict.state.value,
        "since": utc(verdict.since),
        "due_at": utc(verdict.due_at),
        "action": server.rule.action.value,
        "told": server.is_announced,
        "seen": {
            "gpus": server.gpus,
            "until": utc(unused.seen),
            "most": unused.most,
            "held_mib": unused.held_mib,
        }
        if unused is not None
        else None,
        "keep": {"seconds": server.rule.keep_by, "uses_left": server.keeps_left},
    }


def more_time_document(server: Server) -> dict[str, Any]:
    """What can be had now, version 1; ``possible`` is false where it is not offered, without a ``reason``."""
    more = server.more_time
    return {
        "version": 1,
        "possible": more is not None and more.possible,
        "ends_at": server.placement.ends_at if server.placement is not None else None,
        **(more.document() if more is not None else {}),
    }


# ``GET /hub/api/gpuspawner/session``: what a running server may know of itself, for what runs beside it.

VERSION = 1
SESSIONS = RateLimit(burst=30, per_minute=20)
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
    idle: IdleNotice | None = None
    """None where its user is not told that it is idle."""
    course: str = ""
    """The title of the occasion for which its profile is offered, such as a course; empty for one of the hub's own."""
    session_ends_at: str | None = None
    """When its session ends, ISO 8601, UTC; None where none is under way."""


def session_document(
    server: Server,
    messages: Sequence[Notice],
    *,
    now: float,
    notices: Sequence[int],
    saves: Sequence[int],
    course: OccasionNow | None = None,
) -> SessionDocument:
    """The document of this server; ``course``: its own."""
    placement = server.placement
    facts = server_facts(placement, server.topology, cluster=server.cluster) if placement is not None else None
    return SessionDocument(
        version=VERSION,
        now=utc(now),
        ends_at=placement.ends_at if placement is not None else None,
        profile=server.profile_name,
        job_id=server.job_id,
        node=placement.node if placement is not None else "",
        has=facts.got if facts is not None else (),
        gpus=words.gpus(placement.gpus) if placement is not None else (),
        more_time=more_time_document(server),
        messages=tuple(
            SessionMessage(message.of, utc(message.at), message.text, message.sender) for message in messages
        ),
        notices=tuple(notices),
        saves=tuple(saves),
        picture=bool(facts is not None and facts.picture),
        idle=idle_notice(server),
        course=course.title if course is not None else "",
        session_ends_at=utc(course.session_ends) if course is not None and course.session_ends is not None else None,
    )


class _OwnServer(RESTHandler):
    """For the token of a running server, which need not be named: it is the server that asks."""

    def own_spawner(self) -> Spawner:
        """The asking server's spawner; raises 403 for another token, 404 if it does not run, 429 beyond the limit."""
        name, user = own_server(self), self.current_user
        if name is None or not isinstance(user, User):
            raise web.HTTPError(403, "A session is told to the server's own token alone.")
        self.try_later(429, SESSIONS.wait((user.name, name)), "This server asks too often.")
        spawner = user.spawners.get(name)
        if spawner is None or not spawner.active:
            raise web.HTTPError(404, "This server does not run.")
        return spawner


class SessionHandler(_OwnServer):
    """A running server, for itself; only its own token is accepted, which JupyterLab's companion and the gate use."""

    async def get(self) -> None:
        """Its end, GPUs, more time and messages: the session document, version 1."""
        spawner = self.own_spawner()
        await refresh_servers([spawner])
        user: Any = self.current_user
        notices, saves = lab_minutes(spawner)
        server, now = server_of(spawner), time.time()
        occasion = occasion_of(user.settings, server.profile)
        document = session_document(
            server,
            extensions_of(user.settings).notices(user, spawner),
            now=now,
            course=occasion.at(now) if occasion is not None else None,
            notices=notices,
            saves=saves,
        )
        self.write(asdict(document))


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


HANDLERS: list[tuple[str, type]] = [
    *server_routes("/api/gpuspawner/servers", MoreTimeHandler, end="/extend"),
    *server_routes("/api/gpuspawner/servers", KeepHandler, end="/keep"),
    (r"/api/gpuspawner/session", SessionHandler),
    (r"/api/gpuspawner/session/picture", PictureHandler),
]
