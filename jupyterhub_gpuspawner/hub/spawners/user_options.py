"""Applies the user options of one start: JupyterHub's ``apply_user_options``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jupyterhub_gpuspawner.errors import GPUSpawnerError
from jupyterhub_gpuspawner.hub.ending.failure import spawn_failure

if TYPE_CHECKING:
    from collections.abc import Mapping


async def apply_user_options(spawner: Any, user_options: Mapping[str, object]) -> None:
    """Check the options of form, link or REST, store them normalised, and build the child of a profiles spawner."""
    await spawner.look_at_profiles()
    try:
        request = spawner.resolve(user_options)
        spawner.prepare(request)
    except GPUSpawnerError as error:
        raise spawn_failure(error, server=spawner._log_name, contact=spawner.contact) from error  # noqa: SLF001 - ours
    spawner.user_options = dict(request.options)
    if spawner.orm_spawner is not None:
        spawner.orm_spawner.user_options = dict(request.options)
