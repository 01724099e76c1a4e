"""The hub's own account for courses: a JupyterHub service that may start and stop the servers of courses' people.

Servers are started and stopped through JupyterHub's REST API, so its limits, hooks, events and log apply. The service
has no process and no URL. It is made when the hub has started and removed by JupyterHub at the next start, since it is
not in the configuration; its token is known to this process alone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from ssl import SSLContext
from typing import Any
from urllib.parse import quote

from jupyterhub import orm
from jupyterhub.app import JupyterHub
from jupyterhub.roles import create_role, grant_role
from jupyterhub.utils import make_ssl_context
from tornado.httpclient import HTTPError, HTTPRequest
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from jupyterhub_gpuspawner.hub.course.participants import ServerKey
from jupyterhub_gpuspawner.hub.jupyterhub_compat import START_SERVERS, start_body

NAME = "gpuspawner-courses"
"""The name of the service and of its role."""
TIME_LIMIT = 120.0
"""Seconds for one request; JupyterHub answers when a server is ready, or after ``slow_spawn_timeout``."""
UNSEEN = 404
"""JupyterHub's answer where the rights do not cover a user."""
RETRY_SECONDS = 6.0
"""Seconds until such a request is repeated once: a login with ``manage_groups`` has just taken the user out of the
course's group, and :mod:`.upkeep` puts them back within five seconds."""
READY = 201
"""JupyterHub's answer where the server is ready; 202 where it is still starting."""
BUSY = 429
"""HTTP status where a limit of JupyterHub's is reached."""


@dataclass(frozen=True)
class Answer:
    """JupyterHub's answer to a request."""

    status: int
    """HTTP status; 599 where there was no answer."""
    message: str = ""
    """JupyterHub's sentence about an error."""
    retry_after: float | None = None
    """Seconds after which JupyterHub wants the request repeated."""

    @property
    def is_success(self) -> bool:
        """It was done, or is under way."""
        return self.status < 300


class ServiceAccount:
    """Starts and stops servers through JupyterHub's REST API."""

    def __init__(self, app: JupyterHub, concurrency: int) -> None:
        """``at_once``: how many starts may be under way at the same time, and how many stops."""
        self._app = app
        self._at_once = concurrency
        self._token = ""

    @cached_property
    def _client(self) -> SimpleAsyncHTTPClient:
        """A client of its own: the ten requests at once of tornado's shared one are other people's, too."""
        return SimpleAsyncHTTPClient(force_instance=True, max_clients=2 * self._at_once)

    @cached_property
    def _certificates(self) -> SSLContext | None:
        """With ``internal_ssl`` the hub answers only those who have a certificate of its authority."""
        app = self._app
        if not app.internal_ssl:
            return None
        context: SSLContext = make_ssl_context(app.internal_ssl_key, app.internal_ssl_cert, app.internal_ssl_ca)
        return context

    def update(self, groups: Collection[str]) -> None:
        """Have the service's rights cover exactly the users in these groups; raises SQLAlchemyError."""
        db = self._app.db
        if not groups and not self._token:
            return
        scopes = [
            f"{scope}!group={group}"
            for group in sorted(groups)
            for scope in dict.fromkeys((START_SERVERS, "delete:servers"))
        ]
        role = orm.Role.find(db, NAME)
        if role is None or (role.scopes or []) != scopes:
            create_role(db, {"name": NAME, "description": "Starts and stops the servers of courses", "scopes": scopes})
        service = orm.Service.find(db, NAME)
        if service is None:
            service = orm.Service(name=NAME, admin=False, from_config=True)
            db.add(service)
            db.commit()
        grant_role(db, service, rolename=NAME)
        if not self._token:
            self._token = service.new_api_token(note="Servers of courses; made when the hub started")

    async def start(self, server: ServerKey, options: Mapping[str, Any]) -> Answer:
        """Start a server."""
        return await self._ask("POST", server, json.dumps(start_body(options)))

    async def stop(self, server: ServerKey) -> Answer:
        """Stop a server."""
        return await self._ask("DELETE", server)

    async def _ask(self, method: str, server: ServerKey, body: str | None = None) -> Answer:
        path = f"servers/{quote(server.name, safe='')}" if server.name else "server"
        request = HTTPRequest(
            f"{self._app.hub.api_url}/users/{quote(server.user, safe='@')}/{path}",
            method=method,
            headers={"Authorization": f"token {self._token}", "Content-Type": "application/json"},
            body=body,
            request_timeout=TIME_LIMIT,
            ssl_options=self._certificates,
        )
        try:
            answer = await self._client.fetch(request, raise_error=False)
            if answer.code == UNSEEN:
                await asyncio.sleep(RETRY_SECONDS)
                answer = await self._client.fetch(request, raise_error=False)
        except (OSError, HTTPError) as error:  # raise_error=False is for answers only, not for a time-out
            return Answer(599, str(error))
        if answer.code < 300:
            return Answer(answer.code)
        retry = answer.headers.get("Retry-After", "")
        return Answer(answer.code, _message(answer.body) or answer.reason, float(retry) if retry.isdigit() else None)


def _message(body: bytes) -> str:
    try:
        document = json.loads(body or b"null")
    except ValueError:
        return ""
    return str(document.get("message") or "") if isinstance(document, dict) else ""
