"""What handlers share: the server that is named or that asks, its addresses, limits of all kinds, and refusals."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from jupyterhub.apihandlers import APIHandler
from jupyterhub.apihandlers.users import UserServerAPIHandler
from jupyterhub.handlers.base import BaseHandler
from jupyterhub.scopes import needs_scope
from jupyterhub.spawner import Spawner
from jupyterhub.user import User
from tornado import web

from jupyterhub_gpuspawner.errors import GPUSpawnerError, RequestError
from jupyterhub_gpuspawner.hub import words
from jupyterhub_gpuspawner.hub.jupyterhub_compat import START_SERVERS, came_with_token, is_admin, posted_options
from jupyterhub_gpuspawner.hub.site.state import state_of
from jupyterhub_gpuspawner.hub.spawners.offers import chooses_freely, may_start_alone, refusal_of_choice
from jupyterhub_gpuspawner.hub.words import title_of_another

_CALLERS = 1000
"""Callers remembered; beyond that, those with their full allowance are forgotten."""
UNUSED_LINK = "link"
"""Query parameter: the choice of a link that was not used, since a server was there, as a query of the form."""


class RateLimit:
    """A token bucket for each caller. A subclass is for one kind of request, and each hub has one object of it."""

    burst: int
    """Requests that are allowed at once."""
    per_minute: float
    """Requests per minute in the long run."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._left: dict[Hashable, tuple[float, float, int]] = {}
        """For each caller the allowance left, the time at which that was so, and what was added to its burst."""

    def wait(self, caller: Hashable, *, more: int = 0) -> float:
        """Seconds until ``caller`` may make the next request; 0.0: now, and this request is counted.

        ``more`` is added to the burst of this caller.
        """
        now = self.clock()
        left = self._allowance(caller, now, more)
        if left < 1.0:
            return (1.0 - left) * 60.0 / self.per_minute
        if len(self._left) >= _CALLERS:
            self._left = {
                key: entry
                for key, entry in self._left.items()
                if self._allowance(key, now, entry[2]) < self.burst + entry[2]
            }
        self._left[caller] = (left - 1.0, now, more)
        return 0.0

    def _allowance(self, caller: Hashable, now: float, more: int) -> float:
        burst = float(self.burst + more)
        left, since, _ = self._left.get(caller, (burst, now, more))
        return min(burst, left + (now - since) * self.per_minute / 60.0)


class RESTHandler(APIHandler):
    """A handler of JupyterHub's, with what ours need beside."""

    body_limit = 65536
    """Bytes at most of the body of a request."""
    body_name = "body"
    """What error messages call it."""

    def limited_body(self) -> Any:
        """The body's JSON, None for an empty one; raises 413 for one that is too large."""
        if len(self.request.body) > self.body_limit:
            self.refuse_large_body()
        return self.get_json_body()

    def refuse_large_body(self) -> None:
        """Raise 413."""
        raise web.HTTPError(413, f"The {self.body_name} is larger than {self.body_limit} bytes.")

    def refuse(self, error: GPUSpawnerError) -> None:
        """Answer with what the caller may know of the error; an administrator also reads its ``detail``."""
        more = {"reason": error.reason}
        if isinstance(error, RequestError):
            more["field"] = error.field
        else:
            self.log.error("%s %s: %s", self.request.method, self.request.path, error)
        if error.for_admin and is_admin(self.parsed_scopes):
            more["detail"] = error.for_admin
        self.set_status(error.status_code)
        self.finish({"status": error.status_code, "message": error.for_user, **more})

    def limited(self, rate: type[RateLimit], caller: Hashable, sentence: str, *, more: int = 0) -> None:
        """Count a request of this caller; raises 429 beyond the rate, see :meth:`RateLimit.wait`."""
        self.try_later(429, state_of(self.settings).of(rate).wait(caller, more=more), sentence)

    def try_later(self, status: int, seconds: float, sentence: str) -> None:
        """Raise an error with ``Retry-After``; return where ``seconds`` is 0."""
        if seconds > 0:
            refusal = web.HTTPError(status, "%s", sentence)
            # JupyterHub's write_error sends these headers
            refusal.headers = {"Retry-After": str(math.ceil(seconds))}  # type: ignore[attr-defined]
            raise refusal


class StartHandler(UserServerAPIHandler):
    """JupyterHub's handler of one server, in which others choose for a user only what they may.

    JupyterHub stores the options that come with a request before any spawner sees them, and the user's next start has
    them. So what somebody may not choose for a user is refused here, and once more when it is to be started.
    """

    @needs_scope(START_SERVERS)
    async def post(self, user_name: str, server_name: str = "") -> None:
        """Start a server."""
        options = posted_options(self.get_json_body())
        if options is not None and not may_start_alone(self, options):
            self._only_free(user_name)
        await super().post(user_name, server_name)

    @needs_scope(START_SERVERS)
    async def put(self, user_name: str, server_name: str = "") -> None:
        """Create a named server with its options (JupyterHub 6)."""
        self._only_free(user_name)
        await super().put(user_name, server_name)

    @needs_scope(START_SERVERS)
    async def patch(self, user_name: str, server_name: str = "") -> None:
        """Rename a server, or change its options (JupyterHub 6)."""
        self._only_free(user_name)
        await super().patch(user_name, server_name)

    def _only_free(self, user_name: str) -> None:
        if not chooses_freely(self, user_name):
            raise web.HTTPError(HTTPStatus.FORBIDDEN, "%s", refusal_of_choice(self.settings))


def server_named(handler: BaseHandler, user_name: str, server_name: str) -> tuple[Any, Spawner]:
    """The user and the spawner of a server, which need not run; raises 404 where there is none."""
    user = handler.find_user(user_name)
    if user is None or server_name not in user.orm_spawners:
        raise web.HTTPError(404, "There is no such server.")
    return user, user.spawners[server_name]


def server_routes(path: str, handler: type, *, end: str = "") -> list[tuple[str, type]]:
    """The routes of a handler for a user's default server, and for a named one."""
    return [(rf"{path}/([^/]+){end}", handler), (rf"{path}/([^/]+)/([^/]*){end}", handler)]


def title_for(handler: BaseHandler, user: Any, title: str) -> str:
    """The title of a user's server, with the user's name for anybody else."""
    if user is handler.current_user:
        return title
    return words.OF_USER.format(title=title_of_another(title), owner=user.name)


_SERVER_SCOPE = "access:servers!server="


def reporting_server(scopes: Iterable[str], user: str) -> str | None:
    """The name of the one server whose own token holds ``scopes``; None if it is no server's token of ``user``.

    A server's token carries ``access:servers!server=<user>/<name>`` for itself and for no other. That
    survives a restart of the hub; comparing with ``spawner.api_token`` does not.
    """
    servers = {scope.removeprefix(_SERVER_SCOPE) for scope in scopes if scope.startswith(_SERVER_SCOPE)}
    if len(servers) != 1:
        return None
    owner, _, name = servers.pop().partition("/")
    return name if owner == user else None


def own_server(handler: BaseHandler) -> str | None:
    """The name of the server whose own token came with the request; None for any other request."""
    user = handler.current_user
    if not came_with_token(handler) or not isinstance(user, User):
        return None
    return reporting_server(handler.expanded_scopes, user.name)


Method = Callable[..., Awaitable[None]]


def permitted(method: Method) -> Method:
    """Limit a handler's method as ``needs_scope("servers")`` does; the server's own token is enough, too."""
    with_scope: Method = needs_scope("servers")(method)

    @wraps(method)
    async def checked(handler: BaseHandler, user_name: str, server_name: str = "") -> None:
        user: Any = handler.current_user
        own = own_server(handler) == server_name and user.name == user_name
        await (method if own else with_scope)(handler, user_name, server_name)

    return checked


class OpenStreams:
    """The open streams by reader, the oldest first. Each hub has one object of a subclass."""

    limit: int
    """Streams that a reader may have open."""

    def __init__(self) -> None:
        self._open: dict[Hashable, list[asyncio.Future[None]]] = {}

    @contextmanager
    def one(self, reader: Hashable) -> Iterator[asyncio.Future[None]]:
        """Count one more stream while the block runs; the future is done when that stream must end."""
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        streams = self._open.setdefault(reader, [])
        streams.append(mine)
        for oldest in streams[: -self.limit]:
            if not oldest.done():
                oldest.set_result(None)
        try:
            yield mine
        finally:
            streams.remove(mine)
            if not streams:
                self._open.pop(reader, None)


def as_query(options: Mapping[str, object]) -> str:
    """User options as the query that fills in the form; what is no plain value is left out."""
    plain = {name: str(value) for name, value in options.items() if isinstance(value, (str, int, float))}
    return urlencode({f"opt-{name}": value for name, value in plain.items()})


def parse_choice_query(query: str) -> dict[str, str]:
    """The user options in what :func:`as_query` made."""
    pairs = parse_qsl(query)
    return {name.removeprefix("opt-"): value for name, value in pairs if name.startswith("opt-")}


def form_url(base_url: str, user: Any, server_name: str) -> str:
    """The address of the form that starts a server."""
    return f"{base_url}spawn/{user.escaped_name}/{quote(server_name, safe='')}".rstrip("/")


def pending_url(base_url: str, user: Any, server_name: str) -> str:
    """The address of the page of a server that is starting, stopping, or not running."""
    return f"{base_url}spawn-pending/{user.escaped_name}/{quote(server_name, safe='')}".rstrip("/")
