"""The profiles of one file."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from jupyterhub_gpuspawner.profiles.files import NOTHING, Rights, file_content
from jupyterhub_gpuspawner.profiles.folder import opened, reread
from jupyterhub_gpuspawner.profiles.profile import Profile


def read_profiles(path: Path, rights: Rights = NOTHING) -> tuple[Profile, ...]:
    """What a folder has of the file; raises its ConfigError."""
    with opened(path.parent) as folder:
        state = reread(folder, path.name, None, partial(file_content, name=path.name, rights=rights))
    if state.fault is not None:
        raise state.fault
    return state.content.profiles if state.content is not None else ()
