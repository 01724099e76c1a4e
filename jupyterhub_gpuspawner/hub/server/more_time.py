"""A running server goes on, at ``/hub/api/gpuspawner/servers/{user}[/{server}]``: ``/extend`` and ``/keep``."""

from __future__ import annotations

import json
from typing import Any

from jupyterhub.handlers.base import BaseHandler
from jupyterhub.scopes import Scope, needs_scope
from jupyterhub.spawner import Spawner
from jupyterhub.user import User
from tornado import web

from jupyterhub_gpuspawner.courses.course_profile import slug_of
from jupyterhub_gpuspawner.errors import GPUSpawnerError, RequestError
from jupyterhub_gpuspawner.hub.course.book import course_book
from jupyterhub_gpuspawner.hub.course.rights import teaches
from jupyterhub_gpuspawner.hub.extension import NotExtended, Reason, refusal
from jupyterhub_gpuspawner.hub.idle import IdleServer, NotKept
from jupyterhub_gpuspawner.hub.jupyterhub_compat import came_with_token, is_admin
from jupyterhub_gpuspawner.hub.server.report import reporting_server
from jupyterhub_gpuspawner.hub.spawners.server import Server, extend_server, keep_server, refresh_more_time, server_of
from jupyterhub_gpuspawner.hub.times import parse_time
from jupyterhub_gpuspawner.hub.web.handlers import RateLimit, RESTHandler, server_named

REQUESTS = RateLimit(burst=20, per_minute=20)
"""For each server, whoever asks."""
PATIENCE = 2.0
"""Seconds for which GET waits for Slurm."""


def staff_for(handler: BaseHandler, spawner: Spawner) -> str:
    """The name of whoever sends the request, if they are staff for this server: its profile's limits are not for them.

    Staff are administrators, those who teach the course of which the server is, and those who have the scope `servers`
    for more than this one server. The server's own user is not, and nobody with whom the server is shared. Empty for
    all others.
    """
    requester: Any = handler.current_user
    if requester.kind == "user" and requester.name == spawner.user.name:
        return ""
    scopes = handler.parsed_scopes
    if is_admin(scopes) or _beyond_this_server(scopes.get("servers"), spawner) or _teaches(handler, spawner):
        return str(requester.name)
    return ""


def _beyond_this_server(filters: Any, spawner: Spawner) -> bool:
    """Whether a scope with these filters covers the server together with others of its user's."""
    if filters is None or filters is Scope.ALL:
        return filters is Scope.ALL
    user: Any = spawner.user
    groups = {group.name for group in user.groups}
    return user.name in filters.get("user", ()) or not groups.isdisjoint(filters.get("group", ()))


def _teaches(handler: BaseHandler, spawner: Spawner) -> bool:
    book, profile = course_book(handler.settings), server_of(spawner, with_start=False).profile
    courses = book.courses_of(spawner.user.name) if book is not None else ()
    return any(slug_of(course.slug) == profile and teaches(handler.parsed_scopes, course.slug) for course in courses)


class _RunningServerHandler(RESTHandler):
    """About one server, for whoever may start and stop it, and for the server's own token."""

    body_limit = 1024

    async def _permitted(self, action: str, user_name: str, server_name: str) -> None:
        own_token = self._own_token(user_name, server_name)
        await getattr(self, action if own_token else f"{action}_with_scope")(user_name, server_name)

    def _own_token(self, user_name: str, server_name: str) -> bool:
        """Whether the request came with the token of this very server."""
        user = self.current_user
        if not came_with_token(self) or not isinstance(user, User) or user.name != user_name:
            return False
        return reporting_server(self.expanded_scopes, user.name) == server_name

    def _spawner_of(self, user_name: str, server_name: str) -> Spawner:
        _, spawner = server_named(self, user_name, server_name)
        self.try_later(429, REQUESTS.wait((user_name, server_name)), "Too many requests about this server.")
        return spawner


class MoreTimeHandler(_RunningServerHandler):
    """More time for a running server; for whoever may start and stop it, and for the server's own token.

    A request of an administrator, of who teaches the server's course, or of who has the scope `servers` for more than
    this server does not count as one of the extensions that its profile allows.
    """

    async def get(self, user_name: str, server_name: str = "") -> None:
        """By how much it can be extended now: `possible`, `seconds`, `ends_at`, `uses_left`, `reason`, `message`."""
        await self._permitted("_answer", user_name, server_name)

    async def post(self, user_name: str, server_name: str = "") -> None:
        """Extend it by what its profile says, or by `{"minutes": 30}`; 409 with the `reason` if not possible.

        The answer is as for GET, with `extended`: the seconds that were added, which may be fewer.
        """
        await self._permitted("_extend", user_name, server_name)

    @needs_scope("servers")
    async def _answer_with_scope(self, user_name: str, server_name: str) -> None:
        await self._answer(user_name, server_name)

    @needs_scope("servers")
    async def _extend_with_scope(self, user_name: str, server_name: str) -> None:
        await self._extend(user_name, server_name)

    async def _answer(self, user_name: str, server_name: str) -> None:
        spawner = self._spawner_of(user_name, server_name)
        await refresh_more_time([spawner], patience=PATIENCE)
        self.write(json.dumps(more_time_document(server_of(spawner))))

    async def _extend(self, user_name: str, server_name: str) -> None:
        spawner = self._spawner_of(user_name, server_name)
        try:
            done = await extend_server(spawner, self._minutes(), by=staff_for(self, spawner))
        except GPUSpawnerError as error:
            self._refuse(error)
            return
        await refresh_more_time([spawner], patience=PATIENCE)
        self.write(json.dumps({**more_time_document(server_of(spawner)), "extended": done.seconds}))

    def _minutes(self) -> int | None:
        body = self.limited_body()
        if body is None:
            return None
        minutes = body.get("minutes") if isinstance(body, dict) else body
        if not isinstance(body, dict) or set(body) - {"minutes"} or not (minutes is None or type(minutes) is int):
            raise web.HTTPError(400, 'The body must be empty or {"minutes": 30}.')
        return minutes

    def _refuse(self, error: GPUSpawnerError) -> None:
        if not isinstance(error, RequestError):
            self.log.error("%s %s: %s", self.request.method, self.request.path, error)
        more: dict[str, str] = {"reason": error.reason}
        if isinstance(error, NotExtended):
            more["reason"] = error.why.value
        elif isinstance(error, RequestError):
            more["field"] = error.field
        if error.for_admin and is_admin(self.parsed_scopes):
            more["detail"] = error.for_admin
        self.set_status(error.status_code)
        self.finish(json.dumps({"status": error.status_code, "message": error.for_user, **more}))


class KeepHandler(_RunningServerHandler):
    """How a server stands by the idle policy, and keeping it; permitted as for more time."""

    async def get(self, user_name: str, server_name: str = "") -> None:
        """How it stands: `state`, `since`, `due_at`, `action`, `told`, `seen`, and what *Keep* does."""
        await self._permitted("_answer", user_name, server_name)

    async def post(self, user_name: str, server_name: str = "") -> None:
        """Leave it alone for as long as its profile says; 409 if it is not idle, or cannot be kept again.

        The answer is as for GET, with `kept`, in seconds.
        """
        await self._permitted("_keep", user_name, server_name)

    @needs_scope("servers")
    async def _answer_with_scope(self, user_name: str, server_name: str) -> None:
        await self._answer(user_name, server_name)

    @needs_scope("servers")
    async def _keep_with_scope(self, user_name: str, server_name: str) -> None:
        await self._keep(user_name, server_name)

    async def _answer(self, user_name: str, server_name: str) -> None:
        idle = server_of(self._spawner_of(user_name, server_name), with_start=False).idle
        if idle is None:
            raise web.HTTPError(404, "Nothing is known of this server's being idle.")
        self.write(json.dumps(idle_document(idle)))

    async def _keep(self, user_name: str, server_name: str) -> None:
        spawner = self._spawner_of(user_name, server_name)
        try:
            server = keep_server(spawner, by=staff_for(self, spawner))
        except NotKept as error:
            self.set_status(error.status_code)
            self.finish(json.dumps({"status": error.status_code, "message": error.for_user, "reason": error.reason}))
            return
        self.write(json.dumps({**idle_document(server), "kept": server.rule.keep_by}))


def idle_document(server: IdleServer) -> dict[str, Any]:
    """How a server stands by the idle policy, version 1. Times are ISO 8601, durations in seconds."""
    verdict, unused = server.verdict, server.unused
    return {
        "version": 1,
        "state": verdict.state.value,
        "since": parse_time(verdict.since).isoformat() if verdict.since is not None else None,
        "due_at": parse_time(verdict.due_at).isoformat() if verdict.due_at is not None else None,
        "action": server.rule.action.value,
        "told": server.is_announced,
        "seen": {
            "gpus": server.gpus,
            "until": parse_time(unused.seen).isoformat(),
            "most": unused.most,
            "held_mib": unused.held_mib,
        }
        if unused is not None
        else None,
        "keep": {"seconds": server.rule.keep_by, "uses_left": server.keeps_left},
    }


def more_time_document(server: Server) -> dict[str, Any]:
    """What can be had now, version 1; ``possible`` is false where it is not offered, without a ``reason``."""
    offer = server.more_time
    ends_at = server.placement.ends_at if server.placement is not None else None
    if offer is None:
        return {"version": 1, "possible": False, "ends_at": ends_at}
    bounded = offer.bounded
    why: Reason | None = bounded.reason
    return {
        "version": 1,
        "possible": bounded.seconds > 0,
        "ends_at": ends_at,
        "seconds": bounded.seconds,
        "until": parse_time(bounded.ends_at).isoformat() if bounded.ends_at is not None else None,
        "uses_left": offer.uses_left,
        "reason": why.value if why is not None else None,
        "message": refusal(why, bounded.name) if why is not None and not bounded.seconds else "",
    }


HANDLERS = [
    (r"/api/gpuspawner/servers/([^/]+)/extend", MoreTimeHandler),
    (r"/api/gpuspawner/servers/([^/]+)/([^/]*)/extend", MoreTimeHandler),
    (r"/api/gpuspawner/servers/([^/]+)/keep", KeepHandler),
    (r"/api/gpuspawner/servers/([^/]+)/([^/]*)/keep", KeepHandler),
]
