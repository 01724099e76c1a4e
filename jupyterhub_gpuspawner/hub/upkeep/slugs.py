"""Which file each profile's slug belongs to, in a table of our own in the hub's database.

A slug belongs to the file that used it first. Times of files do not tell which that was: an editor replaces a file, so
that the older profile looks like the newer one. So the hub writes down what it has found, and a hub that is restarted
goes on from there.
"""

from __future__ import annotations

from collections.abc import Mapping

from jupyterhub.app import JupyterHub
from sqlalchemy import Column, String, Table, Unicode, delete, insert, select
from sqlalchemy.orm import Session
from traitlets import TraitError

from jupyterhub_gpuspawner.hub.site.database import transaction
from jupyterhub_gpuspawner.hub.site.schema import TABLES
from jupyterhub_gpuspawner.hub.site.tasks import Failures, every
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner

POLL_SECONDS = 30.0
"""Seconds between two looks at whether slugs have changed."""
_TABLE = Table(
    "gpuspawner_slugs",
    TABLES,
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
        return read_slugs(self._session)

    def keep(self, owners: Mapping[str, str]) -> None:
        """Write the file of each slug in the place of all that was written, and commit."""
        with transaction(self._session):
            self._session.execute(delete(_TABLE))
            if owners:
                self._session.execute(insert(_TABLE), [{"slug": slug, "file": file} for slug, file in owners.items()])


def begin_slugs(app: JupyterHub) -> None:
    """Tell the folder of profiles which file had which slug, before it is read, and write down what changes."""
    if not issubclass(app.spawner_class, GPUProfilesSpawner):
        return
    try:
        folder = app.spawner_class(config=app.config).source.folder
    except TraitError:  # the hub's check of its configuration, which comes next, says so
        return
    if folder is None:
        return
    stored, written = KeptSlugs(app.db), dict[str, str]()
    with Failures(app.db).of("Reading the slugs of profiles"):
        written = stored.find()
        folder.remember(written)

    def write() -> None:
        nonlocal written
        owners = folder.owners()
        if owners != written:
            stored.keep(owners)
            written = owners

    every(app, POLL_SECONDS, write, "Writing down the slugs of profiles")
