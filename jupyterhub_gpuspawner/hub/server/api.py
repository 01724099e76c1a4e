"""A running server over REST: who is staff for it, and what it may know of itself (``/hub/api/gpuspawner/session``)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from jupyterhub.handlers.base import BaseHandler
from jupyterhub.scopes import Scope
from jupyterhub.spawner import Spawner
from jupyterhub.user import User
from tornado import web

from jupyterhub_gpuspawner.hub import words
from jupyterhub_gpuspawner.hub.extension import Notice
from jupyterhub_gpuspawner.hub.extensions import extensions_of
from jupyterhub_gpuspawner.hub.jupyterhub_compat import is_admin
from jupyterhub_gpuspawner.hub.server.card import server_facts
from jupyterhub_gpuspawner.hub.spawners.offers import lead_scopes, occasion_of
from jupyterhub_gpuspawner.hub.spawners.server import Server, refresh_servers, server_of
from jupyterhub_gpuspawner.hub.web.handlers import RateLimit, RESTHandler, own_server, server_named
from jupyterhub_gpuspawner.slurm.estimate import utc


class RequestRate(RateLimit):
    """For each server, whoever asks."""

    burst, per_minute = 20, 20


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


class RunningServerHandler(RESTHandler):
    """About one server, for whoever may start and stop it, and for the server's own token."""

    body_limit = 1024

    def spawner_of(self, user_name: str, server_name: str) -> Spawner:
        """The server's spawner; raises 404 where there is none, 429 beyond the limit."""
        _, spawner = server_named(self, user_name, server_name)
        self.limited(RequestRate, (user_name, server_name), "Too many requests about this server.")
        return spawner


# ``GET /hub/api/gpuspawner/session``: what a running server may know of itself, for what runs beside it.

VERSION = 1


class SessionRate(RateLimit):
    """For each server, whose browser tabs share the answer."""

    burst, per_minute = 30, 20


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
    """A running server, as its own token may read it; extensions add what they show of it."""

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
    messages: tuple[SessionMessage, ...]
    """What instructors and administrators tell now, the newest first."""


def session_document(
    server: Server,
    messages: Sequence[Notice],
    *,
    now: float,
) -> dict[str, Any]:
    """The document of this server, with that of each part."""
    placement = server.placement
    facts = server_facts(server)
    document = SessionDocument(
        version=VERSION,
        now=utc(now),
        ends_at=placement.ends_at if placement is not None else None,
        profile=server.profile_name,
        job_id=server.job_id,
        node=placement.node if placement is not None else "",
        has=facts.got if facts is not None else (),
        gpus=words.gpus(placement.gpus) if placement is not None else (),
        messages=tuple(
            SessionMessage(message.of, utc(message.at), message.text, message.sender) for message in messages
        ),
    )
    return {**asdict(document), **{key: value for part in server.parts for key, value in part.document.items()}}


class OwnServerHandler(RESTHandler):
    """For the token of a running server, which need not be named: it is the server that asks."""

    def own_spawner(self) -> Spawner:
        """The asking server's spawner; raises 403 for another token, 404 if it does not run, 429 beyond the limit."""
        name, user = own_server(self), self.current_user
        if name is None or not isinstance(user, User):
            raise web.HTTPError(403, "A session is told to the server's own token alone.")
        self.limited(SessionRate, (user.name, name), "This server asks too often.")
        spawner = user.spawners.get(name)
        if spawner is None or not spawner.active:
            raise web.HTTPError(404, "This server does not run.")
        return spawner


class SessionHandler(OwnServerHandler):
    """A running server, for itself; only its own token is accepted, which JupyterLab's companion and the gate use."""

    async def get(self) -> None:
        """Its end, its GPUs, what is told to its user, and what extensions add: the session document, version 1."""
        spawner = self.own_spawner()
        await refresh_servers([spawner])
        user: Any = self.current_user
        server, now = server_of(spawner), time.time()
        document = session_document(
            server,
            extensions_of(user.settings).notices(user, spawner),
            now=now,
        )
        self.write(document)


HANDLERS: list[tuple[str, type]] = [
    (r"/api/gpuspawner/session", SessionHandler),
]
