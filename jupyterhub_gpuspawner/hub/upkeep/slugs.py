"""Which file each profile's slug belongs to, in a table of our own in the hub's database.

A slug belongs to the file that used it first. Times of files do not tell which that was: an editor replaces a file, so
that the older profile looks like the newer one. So the hub writes down what it has found, and a hub that is restarted
goes on from there.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sqlalchemy import Column, MetaData, String, Table, Unicode, delete, insert, select
from sqlalchemy.exc import SQLAlchemyError
from traitlets.log import get_logger

from jupyterhub_gpuspawner.hub.site.database import fault, have_table, roll_back
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jupyterhub.app import JupyterHub
    from sqlalchemy.orm import Session

    from jupyterhub_gpuspawner.hub.spawners.profile_source import SharedFolder

LOOK = 30.0
"""Seconds between two looks at whether slugs have changed."""
_TABLE = Table(
    "gpuspawner_slugs",
    MetaData(),
    Column("slug", String(63), primary_key=True),
    Column("file", Unicode(255), nullable=False),
)


def read_slugs(session: Session) -> dict[str, str]:
    """The file of each slug, from a database that has the table; raises SQLAlchemyError."""
    return {row.slug: row.file for row in session.execute(select(_TABLE))}


class KeptSlugs:
    """The table, through JupyterHub's session. Every method may raise SQLAlchemyError."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def find(self) -> dict[str, str]:
        """The file of each slug."""
        have_table(self._session, _TABLE)
        return read_slugs(self._session)

    def keep(self, owners: Mapping[str, str]) -> None:
        """Write the file of each slug in the place of all that was written, and commit."""
        have_table(self._session, _TABLE)
        try:
            self._session.execute(delete(_TABLE))
            if owners:
                self._session.execute(insert(_TABLE), [{"slug": slug, "file": file} for slug, file in owners.items()])
            self._session.commit()
        except BaseException:
            roll_back(self._session)
            raise


async def keep_slugs(folder: SharedFolder, session: Session) -> None:
    """Write down which file has which slug whenever that has changed, until cancelled."""
    kept = KeptSlugs(session)
    written: dict[str, str] = {}
    while True:
        owners = folder.owners()
        if owners != written:
            try:
                kept.keep(owners)
                written = owners
            except SQLAlchemyError as error:
                get_logger().warning("The slugs of profiles are written down later: %s", fault(error))
        await asyncio.sleep(LOOK)


def register_slugs(app: JupyterHub) -> None:
    """Tell the folder of profiles which file had which slug, before it is read, and write down what changes."""
    held: set[asyncio.Task[None]] = set()

    def begin(_change: object) -> None:
        if held or not issubclass(app.spawner_class, GPUProfilesSpawner):
            return
        folder = app.spawner_class(config=app.config).source.folder
        if folder is None:
            return
        try:
            folder.remember(KeptSlugs(app.db).find())
        except SQLAlchemyError as error:
            roll_back(app.db)
            get_logger().warning("The slugs of profiles could not be read: %s", fault(error))
        held.add(asyncio.get_running_loop().create_task(keep_slugs(folder, app.db)))

    app.observe(begin, "handlers")
