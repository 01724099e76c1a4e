"""JupyterHub's pages of a server that is starting, stopping or not running, with what we know about it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from jupyterhub.handlers.base import UserUrlHandler
from jupyterhub.handlers.pages import SpawnPendingHandler
from jupyterhub.utils import AnyTimeoutError
from tornado.httputil import url_concat

from jupyterhub_gpuspawner.hub.ending.failure import ending_of
from jupyterhub_gpuspawner.hub.ending.record import Ending
from jupyterhub_gpuspawner.hub.spawners.server import server_of, updated_server
from jupyterhub_gpuspawner.hub.start.progress import document
from jupyterhub_gpuspawner.hub.text import wait

if TYPE_CHECKING:
    from collections.abc import Mapping


_PATIENCE = 0.5
"""Seconds that a page waits for an update of the queue; it comes without one where Slurm takes longer."""


def same_choice(spawn_url: str, options: Mapping[str, object]) -> str:
    """The address of the form with the last user options filled in; empty where there were none."""
    texts = {f"opt-{name}": str(value) for name, value in options.items() if isinstance(value, (str, int, float))}
    return url_concat(spawn_url, texts) if texts else ""


async def _pending(spaces: Mapping[str, Any]) -> dict[str, Any]:
    start = (await updated_server(spaces["spawner"], patience=_PATIENCE)).start
    return {"told": document(start, now=time.time()) if start is not None else None}


async def _not_running(spaces: Mapping[str, Any]) -> dict[str, Any]:
    spawner = spaces["user"].spawners[spaces["server_name"]]
    failure = spaces.get("exception")
    ending = ending_of(failure) or server_of(spawner, with_start=False).ending
    if ending is None and isinstance(failure, AnyTimeoutError):  # the hub's own time-out has no message
        ending = Ending(wait.NO_ANSWER, advice=wait.NO_ANSWER_ADVICE)
    return {"ending": ending, "again_url": same_choice(spaces["spawn_url"], spawner.user_options)}


_TOLD = {"spawn_pending.html": _pending, "not_running.html": _not_running}


class _Told:
    """A mixin for JupyterHub's handlers: adds what our templates of these pages show."""

    def render_template(self, name: str, sync: bool = False, **spaces: Any) -> Any:  # noqa: FBT001, FBT002 - the hub's
        if name in _TOLD:  # JupyterHub never renders these synchronously
            return self._told(name, spaces)
        return super().render_template(name, sync, **spaces)  # type: ignore[misc]

    async def _told(self, name: str, spaces: dict[str, Any]) -> Any:
        told = await _TOLD[name](spaces)
        return await super().render_template(name, **{**spaces, **told})  # type: ignore[misc]


class WaitingPage(_Told, SpawnPendingHandler):
    """``/hub/spawn-pending/...``: a server that is starting or stopping, or whose start failed."""


class NotRunningPage(_Told, UserUrlHandler):
    """``/hub/user/...``: the page of a server that is not running."""
