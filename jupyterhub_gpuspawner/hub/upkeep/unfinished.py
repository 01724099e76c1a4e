"""Finish the starts and stops of servers that JupyterHub shows as ready and does not poll.

JupyterHub writes to its database at several steps of a start and of a stop. A database error in a step that it does not
guard leaves a server that is ready according to its row, but has no route or no job, until somebody stops it. Such
servers are looked for in memory every few seconds: one that runs gets its route and is polled, any other is stopped.
"""

from __future__ import annotations

from jupyterhub.app import JupyterHub
from jupyterhub.spawner import Spawner
from jupyterhub.user import User
from traitlets.log import get_logger

from jupyterhub_gpuspawner.hub.job.ending import Ending
from jupyterhub_gpuspawner.hub.jupyterhub_compat import (
    is_polled,
    last_start,
    log_name,
    set_last_start,
    stop_single_user,
)
from jupyterhub_gpuspawner.hub.site.tasks import Failures, every
from jupyterhub_gpuspawner.hub.spawners.server import keeps_ending, server_of, starts_slurm_jobs

POLL_SECONDS = 10.0
"""Seconds between two checks. A server is acted on when two have found it: a step of the hub's own takes less."""
LOST = Ending(
    "The hub's database failed while your server was being started or stopped, and the server is gone.",
    advice="Please start your server again.",
)


def unwatched(spawner: Spawner) -> bool:
    """Whether the hub shows this server as ready, but would not notice its end."""
    return bool(spawner.server is not None and spawner.pending is None and not is_polled(spawner))


class Unfinished:
    """Finishes starts and stops that JupyterHub has left unfinished."""

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
            if keeps_ending(spawner) and unwatched(spawner)
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
        spawner.ending = spawner.ending or LOST
        if start is not None and start.done() and not start.cancelled():
            start.exception()
        await self._stop(user, spawner.name)

    async def _stop(self, user: User, name: str) -> None:
        spawner = user.spawners.get(name)
        if spawner is not None:
            await stop_single_user(self._app.proxy, user, spawner)


def begin_unfinished(app: JupyterHub) -> None:
    """Begin the checks."""
    if starts_slurm_jobs(app.spawner_class):
        every(app, POLL_SECONDS, Unfinished(app).run_once, "The check for servers that are not polled")
