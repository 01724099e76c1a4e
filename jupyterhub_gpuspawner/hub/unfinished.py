"""Goes on with starts that Slurm had not taken when the hub ended; finishes those that JupyterHub has left half done.

While Slurm does not answer, the hub keeps a start (:mod:`.start.submission`), and tells people that they can close the
page. What a hub that is restarted has to know of it is in the server's state. JupyterHub cleans the server up, which
has no job, and then it is asked for once more over JupyterHub's REST API, as its user: hooks, limits and rights apply
as for a click, and JupyterHub makes what it made for the first start, such as the server's token.

The new start cancels a job that the last sbatch may have made, before it submits its own
(:func:`.submission.without_jobs`).

JupyterHub writes to its database at several steps of a start and of a stop. A database error in a step that it does
not guard leaves a server that is ready according to its row, but has no route or no job, until somebody stops it. Such
servers are looked for in memory every few seconds: one that runs gets its route and is polled, any other is stopped.
"""

from __future__ import annotations

import asyncio
import time
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from jupyterhub import orm
from jupyterhub.app import JupyterHub
from jupyterhub.spawner import Spawner
from jupyterhub.user import User
from jupyterhub.utils import make_ssl_context
from sqlalchemy import Text, type_coerce
from sqlalchemy.orm import Session
from tornado.httpclient import HTTPError, HTTPRequest, HTTPResponse
from tornado.simple_httpclient import SimpleAsyncHTTPClient
from traitlets.log import get_logger

from jupyterhub_gpuspawner.hub.job.cause import Stage, start_failed
from jupyterhub_gpuspawner.hub.job.ending import Ending
from jupyterhub_gpuspawner.hub.jupyterhub_compat import (
    START_SERVERS,
    is_polled,
    last_start,
    log_name,
    set_last_start,
    stop_single_user,
)
from jupyterhub_gpuspawner.hub.site.background import Failures, every
from jupyterhub_gpuspawner.hub.site.database import NOT_CACHED
from jupyterhub_gpuspawner.hub.spawners.server import server_of, site_of
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.hub.start.attempt import KEPT, Moment

AT_ONCE = 10
"""Requests at the same time."""
TIME_LIMIT = 120.0
"""Seconds for one request; JupyterHub answers when a server is ready, or after ``slow_spawn_timeout``."""
POLL_SECONDS = 0.2
BUSY_SECONDS = 10.0
"""Seconds until a start is asked for again that a limit of the hub's refuses, where JupyterHub does not say when."""


def servers_with_kept_starts(db: Session) -> list[tuple[str, str]]:
    """User and name of each server whose state has a start that was kept; raises SQLAlchemyError."""
    query = (
        db.query(orm.User.name, orm.Spawner.name)
        .join(orm.Spawner, orm.Spawner.user_id == orm.User.id)
        .execution_options(**NOT_CACHED)
        .filter(type_coerce(orm.Spawner.state, Text).contains(f'"{KEPT}"', autoescape=True))
    )
    return [(user, server) for user, server in query]


class KeptStarts:
    """The starts that a hub before this one has kept."""

    def __init__(self, app: JupyterHub) -> None:
        self._app = app
        self._client = SimpleAsyncHTTPClient(force_instance=True, max_clients=AT_ONCE)

    async def go_on(self) -> None:
        """Ask for each server once more; a start that cannot go on is given up, and its page says so.

        Raises the first exception, once all others are done; called again, it goes on with those that are left.
        """
        servers = servers_with_kept_starts(self._app.db)
        results = await asyncio.gather(*(self._go_on(*server) for server in servers), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _go_on(self, user_name: str, server_name: str) -> None:
        asked = False
        while True:
            spawner = await self._spawner(user_name, server_name)
            if spawner is None or spawner.attempt.kept is None:  # its start has begun, or the server was deleted
                return
            if spawner.active:  # a hook of the site's, which comes before that, may take its time, and may refuse it
                await asyncio.sleep(POLL_SECONDS)
            elif asked or spawner.ended.last is not None or not self._may_go_on(spawner):
                give_up(spawner)
                return
            else:
                get_logger().info("The start of %s was kept when the hub ended: going on with it", log_name(spawner))
                answer = await self._ask(spawner.user, server_name)
                asked = answer.code != HTTPStatus.TOO_MANY_REQUESTS
                if not asked:
                    seconds = answer.headers.get("Retry-After", "")
                    await asyncio.sleep(float(seconds) if seconds.isdigit() else BUSY_SECONDS)

    def _may_go_on(self, spawner: GPUSlurmSpawner) -> bool:
        """Whether there is time left, and JupyterHub has not stopped it since its user is blocked."""
        blocked = spawner.user.name in self._app.authenticator.blocked_users
        return spawner.attempt.kept is not None and spawner.attempt.kept.left(Moment.now()) > 0 and not blocked

    async def _spawner(self, user_name: str, server_name: str) -> Any:
        """The server's spawner, once JupyterHub has checked it and cleaned it up; None where there is none of ours."""
        while True:
            orm_user = orm.User.find(self._app.db, user_name)
            if orm_user is None or server_name not in orm_user.orm_spawners:
                return None
            spawner = self._app.users[orm_user].spawners[server_name]
            if spawner.pending not in ("check", "stop"):
                return spawner if isinstance(spawner, GPUSlurmSpawner) else None
            await asyncio.sleep(POLL_SECONDS)

    async def _ask(self, user: Any, server_name: str) -> HTTPResponse:
        """Start the server with its last options, as its user."""
        app, db = self._app, self._app.db
        token = user.new_api_token(
            note="Goes on with a start that was kept",
            expires_in=int(2 * TIME_LIMIT),
            scopes=[f"{START_SERVERS}!user={user.name}"],
        )
        path = f"servers/{quote(server_name, safe='')}" if server_name else "server"
        request = HTTPRequest(
            f"{app.hub.api_url}/users/{quote(user.name, safe='@')}/{path}",
            method="POST",
            headers={"Authorization": f"token {token}", "Content-Type": "application/json"},
            body="",
            request_timeout=TIME_LIMIT,
            ssl_options=make_ssl_context(app.internal_ssl_key, app.internal_ssl_cert, app.internal_ssl_ca)
            if app.internal_ssl
            else None,
        )
        try:
            return await self._client.fetch(request, raise_error=False)
        except (OSError, HTTPError):  # raise_error=False is for answers only, not for a time-out
            return HTTPResponse(request, HTTPStatus.TOO_MANY_REQUESTS)
        finally:
            row = orm.APIToken.find(db, token)
            if row is not None:
                db.delete(row)
                db.commit()


def give_up(spawner: GPUSlurmSpawner) -> None:
    """Have the page of a start that does not go on say so; raises SQLAlchemyError."""
    get_logger().warning("The start of %s, which was kept when the hub ended, is given up", log_name(spawner))
    spawner.attempt.kept = None
    # a start that was refused has its reason, which JupyterHub forgets with the next look at the form
    why = server_of(spawner, with_start=False).ending
    spawner.ended.keep(why or Ending(start_failed("hub_restarted"), at=time.time(), stage=Stage.SUBMITTED))
    spawner.row.store()


def begin_kept_starts(app: JupyterHub) -> None:
    """Go on with starts that Slurm had not taken when the hub ended, once the hub has started."""
    if site_of(app.tornado_settings) is not None:
        every(app, 0, KeptStarts(app).go_on, "Going on with starts that were kept")


UNWATCHED_SECONDS = 10.0
"""Seconds between two checks. A server is acted on when two have found it: a step of the hub's own takes less."""


def unwatched(spawner: Spawner) -> bool:
    """Whether the hub shows this server as ready, but would not notice its end."""
    return bool(spawner.server is not None and spawner.pending is None and not is_polled(spawner))


class Unfinished:
    """Finishes starts and stops that JupyterHub has left unfinished.

    It compares what JupyterHub keeps of a server with itself, and keeps nothing of it but that it was found before.
    """

    def __init__(self, app: JupyterHub) -> None:
        self._app = app
        self._failures = Failures(app.db)
        self._seen: set[tuple[str, str]] = set()

    async def run_once(self) -> None:
        """Finish the servers that this check and the one before it have found."""
        unwatched_servers = {
            (user.name, name): (user, spawner)
            for user in self._app.users.values()
            for name, spawner in list(user.spawners.items())
            if isinstance(spawner, GPUSlurmSpawner) and unwatched(spawner)
        }
        repeated, self._seen = self._seen & unwatched_servers.keys(), set(unwatched_servers)
        for key in sorted(repeated):
            user, spawner = unwatched_servers[key]
            with self._failures.of(f"Finishing the start or stop of {log_name(spawner)}"):
                await self._finish(user, spawner)

    async def _finish(self, user: User, spawner: Spawner) -> None:
        start = last_start(spawner)
        status = await spawner.poll()
        if not unwatched(spawner):  # somebody stops it, or it was stopped meanwhile
            return
        if status is None and server_of(spawner, with_start=False).reachable:
            get_logger().warning("The server of %s runs and was not watched: taking it up", log_name(spawner))
            await self._app.proxy.add_user(user, spawner.name)
            set_last_start(spawner, None)
            spawner.add_poll_callback(self._stop, user, spawner.name)
            spawner.start_polling()
            return
        get_logger().warning("The server of %s was left half started or half stopped: stopping it", log_name(spawner))
        lost = Ending(start_failed("database"), at=time.time(), stage=Stage.READY)
        spawner.ended.keep(spawner.ended.last or lost)
        if start is not None and start.done() and not start.cancelled():
            start.exception()
        await self._stop(user, spawner.name)

    async def _stop(self, user: User, name: str) -> None:
        spawner = user.spawners.get(name)
        if spawner is not None:
            await stop_single_user(self._app.proxy, user, spawner)


def begin_unfinished(app: JupyterHub) -> None:
    """Look every few seconds for starts and stops that JupyterHub has left unfinished, and finish them."""
    if site_of(app.tornado_settings) is not None:
        every(app, UNWATCHED_SECONDS, Unfinished(app).run_once, "The check for servers that are not polled")
