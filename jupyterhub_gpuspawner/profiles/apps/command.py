"""The command that a job starts: an application's, or that of a single-user server."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jupyterhub_gpuspawner.profiles.resolve import JobRequest


def server_command(request: JobRequest | None, cmd: Sequence[str], args: Sequence[str]) -> list[str]:
    """The server's command: the application's own, or the profile's, or ``cmd``, with JupyterHub's arguments."""
    if request is not None and request.app is not None:
        return list(request.app.launched(cmd[0]))
    return [*((request.command if request is not None else None) or cmd), *args]
