"""Where a hub's profiles come from: its configuration, and a folder of YAML files that is shared by all users."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from traitlets.log import get_logger

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.profile import Profile, parse_profiles
from jupyterhub_gpuspawner.profile_file import ProfileFolder

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


class SharedFolder(ProfileFolder):
    """A folder of profiles whose faults the hub's log is told, each once."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._taken: tuple[ConfigError, ...] = ()
        self._told: frozenset[str] = frozenset()

    @property
    def errors(self) -> tuple[ConfigError, ...]:
        """What was wrong at the last look."""
        return (*super().errors, *self._taken)

    def besides(self, taken: Collection[str]) -> tuple[Profile, ...]:
        """The profiles as they are now, less those whose slug is in ``taken``; never raises."""
        found = self.profiles()
        self._taken = tuple(
            ConfigError(f"{profile.slug!r} is the slug of a profile in the configuration, too; this one is left out")
            for profile in found
            if profile.slug in taken
        )
        self._tell()
        return tuple(profile for profile in found if profile.slug not in taken)

    def _tell(self) -> None:
        faults = frozenset(map(str, self.errors))
        for fault in sorted(faults - self._told):
            get_logger().error("A fault in the profiles of %s: %s", self.path, fault)
        for fault in sorted(self._told - faults):
            get_logger().info("Mended in the profiles of %s: %s", self.path, fault)
        self._told = faults


@lru_cache(maxsize=8)
def profile_folder(path: str) -> SharedFolder:
    """The folder at ``path``, read once for all users of the hub."""
    return SharedFolder(path)


def offered_profiles(configured: Sequence[object], folder: str, *, name: str = "profiles") -> tuple[Profile, ...]:
    """The configured profiles, then those of the folder.

    Raises ConfigError for a fault in a configured one, with ``name`` in the path to the field, and where there is none
    to offer. A fault in the folder takes its own file out, or keeps that at its last good version.
    """
    profiles = parse_profiles(configured, name=name) if configured else ()
    faults: tuple[ConfigError, ...] = ()
    if folder:
        profiles += profile_folder(folder).besides({profile.slug for profile in profiles})
        faults = profile_folder(folder).errors
    if not profiles:
        raise ConfigError(
            "There is no profile to offer.",
            hint=f"In {folder}: {faults[0]}"
            if faults
            else "Set c.GPUProfilesSpawner.profiles, or put profiles into c.GPUProfilesSpawner.profiles_dir.",
        )
    return profiles
