"""JupyterHub's pages of a server that is starting, stopping or not running, with what we know about it."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from jupyterhub.apihandlers.users import SpawnProgressAPIHandler
from jupyterhub.handlers.base import BaseHandler, UserUrlHandler
from jupyterhub.handlers.pages import SpawnPendingHandler
from jupyterhub.scopes import needs_scope
from jupyterhub.spawner import Spawner
from jupyterhub.utils import AnyTimeoutError
from tornado import web
from tornado.httputil import url_concat

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub import words
from jupyterhub_gpuspawner.hub.job.ending import Ending, ending_of
from jupyterhub_gpuspawner.hub.job.log import OF_DOWNLOAD, OF_PAGE, Extent
from jupyterhub_gpuspawner.hub.jupyterhub_compat import forget_rights
from jupyterhub_gpuspawner.hub.server.switch import (
    AT_MOST,
    GAVE_UP,
    NOT_FREE,
    alternatives,
    parse_choice_query,
)
from jupyterhub_gpuspawner.hub.spawners.server import (
    ended_log,
    running_log,
    server_of,
    server_title,
    updated_server,
    with_profiles,
)
from jupyterhub_gpuspawner.hub.start.progress import document, headline
from jupyterhub_gpuspawner.hub.web.handlers import server_named

# ``/hub/gpuspawner/log/...``: the end of a server's log, for everyone with access to the server.

LOG_SCOPE = "access:servers"
"""The scope to read what a server has written."""


class LogPage(BaseHandler):
    """The path and the last lines of a server's log, read with the rights of its owner."""

    @web.authenticated
    @needs_scope(LOG_SCOPE)
    async def get(self, user_name: str, server_name: str = "") -> None:
        """The page, or with ``?download`` the log as a file; 404 for a server without a log."""
        user, spawner = server_named(self, user_name, server_name)
        if "download" in self.request.query_arguments:
            path, text = await server_log(spawner, OF_DOWNLOAD)
            self.set_header("Content-Type", "text/plain; charset=utf-8")
            self.set_header("Content-Disposition", f'attachment; filename="{file_name(path)}"')
            self.set_header("X-Content-Type-Options", "nosniff")
            self.finish(f"{text}\n" if text else "")
            return
        path, lines = await server_log(spawner, OF_PAGE)
        html = await self.render_template(
            "log.html",
            title=server_title(server_of(spawner, with_start=False)),
            owner=user.name if user is not self.current_user else "",
            path=path,
            lines=lines,
            number=len(lines.splitlines()),
        )
        self.finish(html)


def file_name(path: str) -> str:
    """The name of a download: that of the log, with other characters than letters, digits and ``._-`` replaced."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", path.rpartition("/")[2]) or "server.log"


async def server_log(spawner: Spawner, extent: Extent) -> tuple[str, str]:
    """Path and last lines of the log of the server that runs, or of the one that ended; 404 where there is none."""
    server = server_of(spawner, with_start=False)
    if server.can_show_log:
        return await running_log(spawner, extent)
    if server.ending is not None and server.ending.log:
        return server.ending.log, await ended_log(spawner, server.ending, extent)
    raise web.HTTPError(404, "This server has no log.")


_PATIENCE = 0.5
"""Seconds that a page waits for an update of the queue; it comes without one where Slurm takes longer."""
_STOPPED = "stopped"
"""Query parameter after *Stop this server*."""
_OURS = (_STOPPED, GAVE_UP, NOT_FREE)
_NEXT = "next"
"""JupyterHub's query parameter: where a server that is ready leads."""


def same_choice(spawn_url: str, options: Mapping[str, object]) -> str:
    """The address of the form with the last user options filled in; empty where there were none."""
    texts = {f"opt-{name}": str(value) for name, value in options.items() if isinstance(value, (str, int, float))}
    return url_concat(spawn_url, texts) if texts else ""


def _profile_name(spawner: Any, slug: str) -> str:
    """What the form calls the profile; its slug where it is no longer offered, empty where there is none."""
    profiles = with_profiles(spawner)
    if profiles is None or not slug:
        return ""
    try:
        return next((profile.display_name for profile in profiles.offered() if profile.slug == slug), slug)
    except ConfigError:
        return slug


async def _pending(spaces: Mapping[str, Any], query: Mapping[str, str]) -> dict[str, Any]:
    spawner = spaces["spawner"]
    server = await updated_server(spawner, patience=_PATIENCE)
    profiles = with_profiles(spawner)
    # not within the moment in which Slurm has not looked at the job yet: it may start at once
    waits = server.waits_in_line and server.start is not None and headline(server.start) == words.WAITING
    instead = await alternatives(profiles) if profiles is not None and waits else ()
    return {
        "told": document(server.start, now=time.time()) if server.start is not None else None,
        "profile": _profile_name(spawner, server.profile),
        "instead": instead[:AT_MOST],
        "next": query.get(_NEXT, ""),
        "switch_note": words.NOT_FREE if NOT_FREE in query and server.waits_in_line else "",
    }


async def _not_running(spaces: Mapping[str, Any], query: Mapping[str, str]) -> dict[str, Any]:
    spawner = spaces["user"].spawners[spaces["server_name"]]
    failure = spaces.get("exception")
    ending = ending_of(failure) or server_of(spawner, with_start=False).ending
    if ending is None and isinstance(failure, AnyTimeoutError):  # the hub's own time-out has no message
        profiles = with_profiles(spawner)
        contact = profiles.contact if profiles is not None else words.CONTACT
        ending = Ending(words.NO_ANSWER, advice=words.NO_ANSWER_ADVICE.format(contact=contact))
    given_up = parse_choice_query(query.get(GAVE_UP, ""))
    return {
        "ending": ending,
        "again_url": same_choice(spaces["spawn_url"], given_up or spawner.user_options),
        "given_up": _profile_name(spawner, given_up.get("profile", "")) if given_up else "",
        "stopped": _STOPPED in query,
    }


_CONTENT = {"spawn_pending.html": _pending, "not_running.html": _not_running}


class _WithContent:
    """A mixin for JupyterHub's handlers: adds what our templates of these pages show."""

    def render_template(self, name: str, sync: bool = False, **spaces: Any) -> Any:  # noqa: FBT001, FBT002 - the hub's
        if name in _CONTENT:  # JupyterHub never renders these synchronously
            return self._with_content(name, spaces)
        return super().render_template(name, sync, **spaces)  # type: ignore[misc]

    async def _with_content(self, name: str, spaces: dict[str, Any]) -> Any:
        query = {
            name: self.get_query_argument(name)  # type: ignore[attr-defined]
            for name in (*_OURS, _NEXT)
            if name in self.request.query_arguments  # type: ignore[attr-defined]
        }
        content = await _CONTENT[name](spaces, query)
        if content.get("ending") is not None and not self._may_read_log(spaces["user"], spaces["server_name"]):
            content["ending"] = replace(content["ending"], log="", lines="")
        return await super().render_template(name, **{**spaces, **content})  # type: ignore[misc]

    def _may_read_log(self, user: Any, server_name: str) -> bool:
        allowed = self.get_scope_filter(LOG_SCOPE)  # type: ignore[attr-defined]
        return bool(allowed(user.spawners[server_name].orm_spawner, "server"))


class WaitingPage(_WithContent, SpawnPendingHandler):
    """``/hub/spawn-pending/...``: a server that is starting or stopping, or whose start failed."""

    async def get(self, user_name: str, server_name: str = "") -> None:
        """JupyterHub's, also for a named server that was stopped: JupyterHub has no spawner of it in memory then."""
        user: Any = self.find_user(user_name) if self.current_user is not None else None
        if user is not None and server_name in user.orm_spawners:
            user.spawners[server_name]  # creates it
        await super().get(user_name, server_name)

    def append_query_parameters(self, url: str, exclude: list[str] | None = None) -> Any:
        """JupyterHub's, without the parameters that are for this page: a server that is ready does not get them."""
        return super().append_query_parameters(url, exclude=[*(exclude or ["next"]), *_OURS])


class NotRunningPage(_WithContent, UserUrlHandler):
    """``/hub/user/...``: the page of a server that is not running."""


class ProgressStream(SpawnProgressAPIHandler):
    """``/hub/api/users/.../progress``: JupyterHub's own handler."""

    async def send_event(self, event: dict[str, Any]) -> None:
        """Send an event; the rights of the request have been checked, and the stream may last for hours."""
        forget_rights(self)
        await super().send_event(event)
