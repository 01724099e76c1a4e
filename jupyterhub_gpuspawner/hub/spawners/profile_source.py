"""Where a hub's profiles come from: its configuration, and a folder of YAML files that is shared by all users.

The folder may be on a file system that hangs, so it is read in a thread of its own and never in the hub's event loop:
a request waits a few seconds at most for a reading, and then uses the result of the last one.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from functools import lru_cache

from traitlets.log import get_logger

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.profiles.file_rights import NOTHING, Rights
from jupyterhub_gpuspawner.profiles.files import ProfileFolder
from jupyterhub_gpuspawner.profiles.profile import Profile, SlugTaken, parse_profiles

PATIENCE = 3.0
"""Seconds that a request waits for the folder to be read."""
REST = 30.0
"""Seconds between two readings of a folder that holds too many files."""


@dataclass(frozen=True)
class FolderContent:
    """What was found when the folder was read."""

    profiles: tuple[Profile, ...] = ()
    errors: tuple[ConfigError, ...] = ()
    missing: bool = False
    crowded: bool = False


class _Reading:
    """One reading of the folder, in a daemon thread, so that the hub can exit while it hangs."""

    def __init__(self, folder: ProfileFolder, last: FolderContent) -> None:
        self.begun = time.monotonic()
        self.found: Future[FolderContent] = Future()
        try:
            threading.Thread(target=self._run, args=(folder,), name="profiles", daemon=True).start()
        except RuntimeError:  # no thread can be started now
            fault = ConfigError("the folder cannot be read: this process has too many threads", where=str(folder.path))
            self.found.set_result(replace(last, errors=(fault,)))

    def _run(self, folder: ProfileFolder) -> None:
        profiles = folder.profiles()
        self.found.set_result(FolderContent(profiles, folder.errors, folder.missing, folder.crowded))

    @property
    def late(self) -> bool:
        return not self.found.done() and time.monotonic() - self.begun >= PATIENCE


class SharedFolder:
    """A folder of profiles, shared by all users of a hub; each of its faults is logged once."""

    def __init__(self, path: str, rights: Rights = NOTHING) -> None:
        self.path = path
        self._folder = ProfileFolder(path, rights)
        self._look: _Reading | None = None
        self._found: FolderContent | None = None
        self._taken: tuple[ConfigError, ...] = ()
        self._told: frozenset[str] = frozenset()

    @property
    def errors(self) -> tuple[ConfigError, ...]:
        """Faults in the folder's files, and in reading it, as of the last reading."""
        silent: tuple[ConfigError, ...] = ()
        if self._look is not None and self._look.late:
            silent = (
                ConfigError(
                    "the folder is not responding; the profiles last read from it are offered", where=self.path
                ),
            )
        return (*silent, *self._last.errors, *self._taken)

    @property
    def missing(self) -> bool:
        """Whether the folder was missing when it was last read."""
        return self._last.missing

    def file_of(self, slug: str) -> str:
        """The name of the file that a profile was read from; empty if there is none."""
        return self._folder.owners.get(slug, "")

    def owners(self) -> dict[str, str]:
        """The file of each profile's slug, as of the last reading."""
        return dict(self._folder.owners)

    def remember(self, owners: Mapping[str, str]) -> None:
        """Let files keep the slugs that they had when an earlier process read them; no effect once it has been read."""
        if self._look is None:
            self._folder.owners = dict(owners)

    @property
    def _last(self) -> FolderContent:
        if self._look is not None and self._look.found.done():
            self._found = self._look.found.result()
        return self._found or FolderContent()

    async def refresh(self) -> None:
        """Read the folder anew and wait for that, for :data:`PATIENCE` seconds at most; not while a reading hangs."""
        before = self._look
        if before is not None and not before.found.done() and not await self._answered(before):
            return
        if self._look is before:
            last = self._last
            if before is not None and last.crowded and time.monotonic() - before.begun < REST:
                return
            self._look = _Reading(self._folder, last)
        if self._look is not None:
            await self._answered(self._look)

    @staticmethod
    async def _answered(reading: _Reading) -> bool:
        left = reading.begun + PATIENCE - time.monotonic()
        if not reading.found.done() and left > 0:
            await asyncio.wait({asyncio.wrap_future(reading.found)}, timeout=left)
        return reading.found.done()

    def first_reading(self) -> None:
        """Read the folder if it never was, and wait for that: at the hub's start, and in programs without a loop."""
        if self._look is None:
            self._look = _Reading(self._folder, self._last)
            wait({self._look.found}, timeout=PATIENCE)

    def besides(self, slugs: Collection[str]) -> tuple[Profile, ...]:
        """Return the profiles as last read, without those whose slug is in ``taken``; never raises."""
        self.first_reading()
        profiles = self._last.profiles
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
        for fault in sorted(faults - self._told):
            get_logger().error("Error in the profiles of %s: %s", self.path, fault)
        for fault in sorted(self._told - faults):
            get_logger().info("Error corrected in the profiles of %s: %s", self.path, fault)
        self._told = faults


@lru_cache(maxsize=8)
def profile_folder(path: str, rights: Rights = NOTHING) -> SharedFolder:
    """Return the folder at ``path``, which is shared by all users of the hub."""
    return SharedFolder(path, rights)


@dataclass(frozen=True)
class ProfileSource:
    """The profiles that a hub offers: those of its configuration, then those of its folder."""

    configured: Sequence[object]
    """Profiles of the configuration, as the admin wrote them."""
    folder: SharedFolder | None = None
    setting: str = "profiles"
    """The setting with the configured profiles, for paths in errors."""

    def configured_profiles(self) -> tuple[Profile, ...]:
        """Return the profiles of the configuration; raises ConfigError, which names the profile and the field."""
        return parse_profiles(self.configured, name=self.setting) if self.configured else ()

    def check_folder(self, setting: str) -> None:
        """Raise ConfigError if the folder, which ``setting`` names, is missing; or, without one, if nothing is offered.

        A folder may be filled later.
        """
        if self.folder is None:
            self.profiles()
            return
        self.folder.first_reading()
        if self.folder.missing:
            raise ConfigError(
                f"there is no folder {self.folder.path!r}.",
                where=setting,
                hint="Create it, and put YAML files with profiles into it.",
            )

    def profiles(self) -> tuple[Profile, ...]:
        """Return all profiles, those of the folder as last read.

        Raises ConfigError for a fault in a configured profile, and if there is no profile at all. A fault in a file of
        the folder affects that file only: it is left out, or kept at its last good version.
        """
        profiles = self.configured_profiles()
        if self.folder is not None:
            profiles += self.folder.besides({profile.slug for profile in profiles})
        if profiles:
            return profiles
        hint = "Set c.GPUProfilesSpawner.profiles, or put profiles into c.GPUProfilesSpawner.profiles_dir."
        if self.folder is not None and self.folder.errors:
            hint = f"In {self.folder.path}: {self.folder.errors[0]}"
        raise ConfigError("There is no profile to offer.", hint=hint)

    async def refresh(self) -> None:
        """Read the folder anew, if there is one."""
        if self.folder is not None:
            await self.folder.refresh()

    def errors(self) -> tuple[ConfigError, ...]:
        """Return the faults in files of the folder; their last good versions are offered."""
        return self.folder.errors if self.folder is not None else ()
