"""A server's state in the hub's database, written when something happens to it.

JupyterHub writes a spawner's state after ``start()`` and when the server ends. What is learned in between, such as the
id of a job, would be lost with a hub that is killed.
"""

from __future__ import annotations

import logging

from jupyterhub.spawner import Spawner
from jupyterhub.utils import utcnow
from sqlalchemy.orm import Session

from jupyterhub_gpuspawner.hub.jupyterhub_compat import session_of
from jupyterhub_gpuspawner.hub.site.database import AWAY, TO_STOP, fault, roll_back, written
from jupyterhub_gpuspawner.hub.site.tasks import in_background


class StoredState:
    """Writes the state of one spawner to its row and commits."""

    def __init__(self, spawner: Spawner, *, server: str, log: logging.Logger) -> None:
        """``server`` is the name for the log."""
        self._spawner = spawner
        self._server = server
        self._log = log

    def count_age_from_now(self) -> None:
        """Have the server's age and its idle time count from now on; the caller commits.

        JupyterHub notes when the server was asked for. A culler with a ``max_age`` would count the time in the queue.
        """
        row = self._spawner.orm_spawner
        if row is not None:
            row.started = row.last_activity = utcnow(with_tz=False)

    def store(self) -> None:
        """Write the state now, and the port of the server's address. Raises SQLAlchemyError."""
        spawner = self._spawner
        session = self.session
        if session is not None:
            server = spawner.server
            # JupyterHub writes a port to the row when it is set: a rollback since then has undone that
            if server is not None and server.orm_server is not None and server.orm_server.port != server.port:
                server.orm_server.port = server.port
            spawner.orm_spawner.state = spawner.get_state()
            session.commit()

    def store_soon(self) -> None:
        """Write the state now or, while the database takes no changes, in the background as soon as it does."""
        try:
            self.store()
        except AWAY as error:
            session = self.session
            assert session is not None  # noqa: S101 - for mypy: without one nothing fails
            roll_back(session)
            self._log.warning("The state of %s is not in the hub's database yet: %s", self._server, fault(error))
            in_background(self._store_later(session))

    async def _store_later(self, session: Session) -> None:
        if not await written(session, self.store, TO_STOP):
            self._log.error("The state of %s could not be stored in the hub's database", self._server)

    @property
    def session(self) -> Session | None:
        """The session of the hub's database; None for a spawner without a row."""
        return session_of(self._spawner.orm_spawner)
