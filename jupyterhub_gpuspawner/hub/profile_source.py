"""Where a hub's profiles come from: its configuration, and a folder of YAML files that is shared by all users."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.profile import Profile, parse_profiles
from jupyterhub_gpuspawner.profile_file import ProfileFolder

if TYPE_CHECKING:
    from collections.abc import Sequence


@lru_cache(maxsize=8)
def profile_folder(path: str) -> ProfileFolder:
    """The folder at ``path``, read once for all users of the hub."""
    return ProfileFolder(path)


def offered_profiles(configured: Sequence[object], folder: str) -> tuple[Profile, ...]:
    """The configured profiles, then those of the folder; raises ConfigError where there is none, or a slug twice."""
    profiles = parse_profiles(configured) if configured else ()
    if folder:
        profiles += profile_folder(folder).profiles()
    if not profiles:
        raise ConfigError(
            "There is no profile to offer.",
            hint="Set c.GPUProfilesSpawner.profiles or c.GPUProfilesSpawner.profiles_dir.",
        )
    slugs = [profile.slug for profile in profiles]
    twice = next((slug for slug in slugs if slugs.count(slug) > 1), None)
    if twice:
        raise ConfigError(f"{twice!r} is the slug of two profiles", where=folder, hint="Give each a slug of its own.")
    return profiles
