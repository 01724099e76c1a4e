"""Finish the starts and stops of servers that JupyterHub shows as ready and does not poll.

JupyterHub writes to its database at several steps of a start and of a stop. A database error in a step that it does not
guard leaves a server that is ready according to its row, but has no route or no job, until somebody stops it. Such
servers are looked for in memory every few seconds: one that runs gets its route and is polled, any other is stopped.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sqlalchemy.exc import SQLAlchemyError
from traitlets.log import get_logger

from jupyterhub_gpuspawner.hub.ending.record import Ending
from jupyterhub_gpuspawner.hub.jupyterhub_compat import is_polled, last_start, log_name, set_last_start
from jupyterhub_gpuspawner.hub.site.database import fault, roll_back
from jupyterhub_gpuspawner.hub.spawners.server import keeps_ending, server_of, starts_slurm_jobs

if TYPE_CHECKING:
    from jupyterhub.app import JupyterHub
    from jupyterhub.spawner import Spawner
    from jupyterhub.user import User

LOOK = 10.0
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
        self._seen: set[tuple[str, str]] = set()

    async def run(self) -> None:
        """Check every :data:`LOOK` seconds, until cancelled."""
        while True:
            await asyncio.sleep(LOOK)
            try:
                await self.look()
            except SQLAlchemyError as error:
                get_logger().warning(
                    "The check for servers that are not polled failed and is repeated later: %s", fault(error)
                )
                roll_back(self._app.db)

    async def look(self) -> None:
        """Finish the servers that this check and the one before it have found."""
        found = {
            (user.name, name): (user, spawner)
            for user in self._app.users.values()
            for name, spawner in list(user.spawners.items())
            if keeps_ending(spawner) and unwatched(spawner)
        }
        again, self._seen = self._seen & found.keys(), set(found)
        for key in sorted(again):
            try:
                await self._finish(*found[key])
            except SQLAlchemyError:
                raise
            except Exception:  # noqa: BLE001 - a fault of one server must not keep the others from being finished
                get_logger().exception("A server of %s that is not polled could not be finished", key[0])

    async def _finish(self, user: User, spawner: Spawner) -> None:
        start = last_start(spawner)
        status = await spawner.poll()
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
        await self._app.proxy.delete_user(user, name)
        await user.stop(name)


def register_unfinished(app: JupyterHub) -> None:
    """Start the checks, which run as long as the hub does."""
    held: set[asyncio.Task[None]] = set()

    def begin(_change: object) -> None:
        if not held and starts_slurm_jobs(app.spawner_class):
            task = asyncio.get_running_loop().create_task(Unfinished(app).run())
            held.add(task)
            task.add_done_callback(_ended)

    app.observe(begin, "handlers")


def _ended(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        get_logger().error("The checks for servers that are not polled have stopped", exc_info=task.exception())
