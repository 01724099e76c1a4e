"""A folder that a hub reads for all its users, such as that of its profiles.

It may be on a file system that hangs, so it is read in a thread of its own and never in the hub's event loop: a request
waits a few seconds at most, and then uses the result of the last reading.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, wait
from typing import Generic, TypeVar

from jupyterhub.app import JupyterHub
from sqlalchemy import Column, String, Table, Unicode, delete, insert, select
from sqlalchemy.orm import Session
from traitlets.log import get_logger

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.site.background import Failures, every
from jupyterhub_gpuspawner.hub.site.database import transaction
from jupyterhub_gpuspawner.hub.site.tables import TABLES
from jupyterhub_gpuspawner.profiles.files import NOTHING, FolderContent, ProfileFolder, Rights
from jupyterhub_gpuspawner.profiles.profile import Profile, SlugTaken

PATIENCE = 3.0
"""Seconds that a request waits for a folder to be read."""
REST = 30.0
"""Seconds between two readings of a folder that holds too many files."""

Content = TypeVar("Content")


class FolderReader(Generic[Content]):
    """Reads a folder for all users of a hub: one reading at a time, each in a daemon thread.

    So a request waits a few seconds at most for one that hangs, and the hub can exit meanwhile.
    """

    def __init__(self, path: str, read: Callable[[], Content], before: Content, going_on: str) -> None:
        """``read`` never raises; ``before`` is the content until it was read, and ``going_on`` what is used then."""
        self.path = path
        self._read, self._last, self._going_on = read, before, going_on
        self._reading: Future[Content] | None = None
        self._begun = 0.0
        self._has_thread = True

    @property
    def last(self) -> Content:
        """What was found at the last reading that has ended."""
        if self._reading is not None and self._reading.done():
            self._last = self._reading.result()
        return self._last

    @property
    def fault(self) -> ConfigError | None:
        """Why that is not what is there now."""
        hangs = self._reading is not None and not self._reading.done()
        if hangs and time.monotonic() - self._begun >= PATIENCE:
            return ConfigError(f"the folder is not responding; {self._going_on}", where=self.path)
        if not self._has_thread:
            text = f"the folder cannot be read: this process has too many threads; {self._going_on}"
            return ConfigError(text, where=self.path)
        return None

    def _begin(self) -> Future[Content]:
        last, reading = self.last, Future[Content]()
        self._reading, self._begun, self._has_thread = reading, time.monotonic(), True
        try:
            threading.Thread(target=lambda: reading.set_result(self._read()), name=self.path, daemon=True).start()
        except RuntimeError:  # no thread can be started now
            self._has_thread = False
            reading.set_result(last)
        return reading

    async def refresh(self, rest: float = 0.0) -> bool:
        """Read the folder anew and wait for that, for :data:`PATIENCE` seconds at most; not while a reading hangs.

        Nor within ``rest`` seconds after the last one began. Returns whether it is read.
        """
        before = self._reading
        if before is not None and not await self._answered(before):
            return False
        if self._reading is not before and self._reading is not None:  # another request has had it read since
            return await self._answered(self._reading)
        if before is not None and time.monotonic() - self._begun < rest:
            return True
        return await self._answered(self._begin()) and self._has_thread

    async def _answered(self, reading: Future[Content]) -> bool:
        left = self._begun + PATIENCE - time.monotonic()
        if not reading.done() and left > 0:
            await asyncio.wait({asyncio.wrap_future(reading)}, timeout=left)
        return reading.done()

    def first_reading(self) -> None:
        """Read the folder if it never was, and wait for that: at the hub's start, and in programs without a loop."""
        if self._reading is None:
            wait({self._begin()}, timeout=PATIENCE)


class SharedFolder(FolderReader[FolderContent]):
    """A folder of profiles, shared by all users of a hub; each of its faults is logged once."""

    def __init__(self, path: str, rights: Rights = NOTHING) -> None:
        self._folder = ProfileFolder(path, rights)
        super().__init__(path, self._folder.read, FolderContent(), "the profiles last read from it are offered")
        self._taken: tuple[ConfigError, ...] = ()
        self._logged: frozenset[str] = frozenset()

    @property
    def errors(self) -> tuple[ConfigError, ...]:
        """Faults in the folder's files, and in reading it, as of the last reading."""
        return (*filter(None, [self.fault]), *self.last.errors, *self._taken)

    def file_of(self, slug: str) -> str:
        """The name of the file that a profile was read from; empty if there is none."""
        return self._folder.owners.get(slug, "")

    def owners(self) -> dict[str, str]:
        """The file of each profile's slug, as of the last reading."""
        return dict(self._folder.owners)

    def remember(self, owners: Mapping[str, str]) -> None:
        """Let files keep the slugs that they had when an earlier process read them; no effect once it has been read."""
        if self._reading is None:
            self._folder.owners = dict(owners)

    async def refresh(self, rest: float = 0.0) -> bool:
        """See :meth:`.FolderReader.refresh`; one that holds too many files is read every :data:`REST` seconds."""
        return await super().refresh(REST if self.last.crowded else rest)

    def besides(self, slugs: Collection[str]) -> tuple[Profile, ...]:
        """Return the profiles as last read, without those whose slug is in ``slugs``; never raises."""
        self.first_reading()
        profiles = self.last.profiles
        self._taken = tuple(
            SlugTaken(
                f"{profile.slug!r} is also the slug of a profile in the configuration; this one is left out",
                where=self.file_of(profile.slug),
            )
            for profile in profiles
            if profile.slug in slugs
        )
        self._log_changes()
        return tuple(profile for profile in profiles if profile.slug not in slugs)

    def _log_changes(self) -> None:
        faults = frozenset(map(str, self.errors))
        for fault in sorted(faults - self._logged):
            get_logger().error("Error in the profiles of %s: %s", self.path, fault)
        for fault in sorted(self._logged - faults):
            get_logger().info("Error corrected in the profiles of %s: %s", self.path, fault)
        self._logged = faults


class ProfileFolders(dict[tuple[str, Rights], SharedFolder]):
    """The folders of a hub by path and rights, which all its users share; each is made on first use."""

    def __missing__(self, folder: tuple[str, Rights]) -> SharedFolder:
        self[folder] = shared = SharedFolder(*folder)
        return shared


# Which file had each slug is kept in the hub's database: a slug belongs to the file that used it first. Times of files
# do not tell which that was: an editor replaces a file, so that the older profile looks like the newer one.

SLUGS_SECONDS = 30.0
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


def keep_slugs(session: Session, owners: Mapping[str, str]) -> None:
    """Write the file of each slug in the place of all that was written; raises SQLAlchemyError."""
    with transaction(session):
        session.execute(delete(_TABLE))
        if owners:
            session.execute(insert(_TABLE), [{"slug": slug, "file": file} for slug, file in owners.items()])


def begin_slugs(app: JupyterHub, folder: SharedFolder) -> None:
    """Tell the folder of profiles which file had which slug, before it is read, and write down what changes."""
    written = dict[str, str]()
    with Failures(app.db).of("Reading the slugs of profiles"):
        written = read_slugs(app.db)
        folder.remember(written)

    def write() -> None:
        nonlocal written
        owners = folder.owners()
        if owners != written:
            keep_slugs(app.db, owners)
            written = owners

    every(app, SLUGS_SECONDS, write, "Writing down the slugs of profiles")
