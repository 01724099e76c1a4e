"""The running servers of a hub, as they stood at the last check, and *Keep* for one that is idle."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from jupyterhub_gpuspawner.errors import RequestError
from jupyterhub_gpuspawner.extensions.idle import words
from jupyterhub_gpuspawner.extensions.idle.policy import IdleServer
from jupyterhub_gpuspawner.extensions.idle.times import IdleTimes
from jupyterhub_gpuspawner.hub.jupyterhub_compat import log_name, session_of
from jupyterhub_gpuspawner.hub.site.state import state_for
from jupyterhub_gpuspawner.hub.spawners.profiles import job_spawner
from jupyterhub_gpuspawner.hub.spawners.server import Server


class NotKept(RequestError):
    """A server is not kept: it is not idle, or was kept as often as its profile allows."""

    status_code = 409
    reason = "not_kept"


class IdleServers(dict[tuple[str, str], IdleServer]):
    """By user and server name: those that were running at the last check."""

    def of_job(self, user: str, name: str, job_id: str) -> IdleServer | None:
        """How the server of this job stands, whether it runs or not; None where it has not been looked at."""
        server = self.get((user, name))
        return server if server is not None and server.job_id == job_id else None


def idle_server(spawner: Any, server: Server) -> IdleServer | None:
    """How a spawner's server stands; None where it does not run, and where its job has not been looked at."""
    if not server.ready or not server.job_id:
        return None
    return state_for(spawner).of(IdleServers).of_job(server.user, server.name, server.job_id)


def keep(spawner: Any, job_id: str, *, now: float, staff: bool = False) -> IdleServer:
    """Have an idle server left alone for the time that its profile says; that is in the database when this returns.

    ``staff``: an instructor or administrator does it, which does not count as one of the profile's times. Raises
    NotKept, and SQLAlchemyError.
    """
    servers, key = state_for(spawner).of(IdleServers), (spawner.user.name, spawner.name)
    server = servers.of_job(*key, job_id)
    if server is None or not server.is_announced:
        raise NotKept(words.NOT_IDLE)
    if not staff and not server.keeps_left:
        raise NotKept(words.NO_KEEP_LEFT)
    longer = server.prolonged(now, staff=staff)
    session = session_of(spawner.orm_spawner)
    if session is not None and longer.row is not None:
        row = replace(longer.row, keeps=longer.keeps, kept=longer.kept, told_at=longer.told_at, due_at=None)
        longer = replace(longer, row=IdleTimes(session).write([row])[0])
    servers[key] = longer
    return longer


def keep_server(spawner: Any, *, by: str = "") -> IdleServer:
    """Have an idle server left alone for a while; ``by`` names staff who ask for it.

    Raises NotKept, and SQLAlchemyError.
    """
    ours = job_spawner(spawner)
    server = keep(spawner, ours.job_id if ours is not None else "", now=time.time(), staff=bool(by))
    spawner.log.info("The idle server of %s is kept%s", log_name(spawner), f" by {by}" if by else "")
    return server
