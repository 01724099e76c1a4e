"""JupyterHub's pages of a server that is starting, stopping or not running, its log, and a start in its place.

``POST /hub/gpuspawner/switch/...`` gives up a server that waits in the queue, and starts what a link asks for instead.
JupyterHub has one start at a time under a server's name, so the waiting one is cancelled first. The choice is checked
before that. Where the stop takes longer than JupyterHub waits for it, the new start follows it all the same. The
address of the page that follows carries what was given up: it is offered again where the new start fails.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode
from weakref import WeakValueDictionary

from jupyterhub.apihandlers.users import SpawnProgressAPIHandler
from jupyterhub.handlers.base import BaseHandler, UserUrlHandler
from jupyterhub.handlers.pages import SpawnPendingHandler
from jupyterhub.scopes import needs_scope
from jupyterhub.spawner import Spawner
from jupyterhub.utils import AnyTimeoutError
from tornado import web
from tornado.httputil import url_concat
from tornado.iostream import StreamClosedError

from jupyterhub_gpuspawner.errors import ConfigError, RequestError
from jupyterhub_gpuspawner.hub.extensions import extensions_of
from jupyterhub_gpuspawner.hub.job.cause import start_failed
from jupyterhub_gpuspawner.hub.job.ending import Ending
from jupyterhub_gpuspawner.hub.job.ending_words import words_of
from jupyterhub_gpuspawner.hub.job.log import OF_DOWNLOAD, OF_PAGE, Extent
from jupyterhub_gpuspawner.hub.jupyterhub_compat import (
    came_with_token,
    forget_rights,
    last_start,
    log_name,
    set_last_start,
)
from jupyterhub_gpuspawner.hub.server.stop import stop_as
from jupyterhub_gpuspawner.hub.site.state import state_of
from jupyterhub_gpuspawner.hub.spawners.offers import chooses_freely, refusal_of_choice
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.spawners.server import (
    ServerState,
    contact_of,
    ended_log,
    refresh_servers,
    running_log,
    server_of,
    server_title,
    with_profiles,
)
from jupyterhub_gpuspawner.hub.start.progress import document
from jupyterhub_gpuspawner.hub.start.progress import event as progress_event
from jupyterhub_gpuspawner.hub.web.handlers import OpenStreams, as_query, parse_choice_query, pending_url, server_named
from jupyterhub_gpuspawner.hub.words import CONTACT_OF_ANOTHER, TOLD, job_in, title_of_another, words_for
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.sections import program_of
from jupyterhub_gpuspawner.slurm.estimate import utc
from jupyterhub_gpuspawner.slurm.reason import Words
from jupyterhub_gpuspawner.tasks import in_background, retrieve_failure

GAVE_UP = "gave_up"
"""Query parameter of the page that follows: the choice whose place was given up, as a query of the form."""
OF_THIS_PAGE = "gpuspawner-"
"""Prefix of the query parameters that extensions add to the page that follows."""
FAST_FAILURE_SECONDS = 1.0
"""Seconds to wait for a start that fails immediately, as JupyterHub's own form does."""
POLL_SECONDS = 0.05


class Switches(WeakValueDictionary[tuple[str, str], asyncio.Lock]):
    """By user and server: a second click waits for the first one."""


class SwitchPage(BaseHandler):
    """Starts what a link asks for in place of a server that waits, then redirects to its page."""

    @web.authenticated
    @needs_scope("servers")
    async def post(self, user_name: str, server_name: str = "") -> None:
        """303 to the page of the server; does nothing where it no longer waits."""
        user, spawner_named = server_named(self, user_name, server_name)
        if not chooses_freely(self, user_name):
            raise web.HTTPError(403, "%s", refusal_of_choice(self.settings))
        where = pending_url(self.hub.base_url, user, server_name)
        async with state_of(self.settings).of(Switches).setdefault((user.name, server_name), asyncio.Lock()):
            spawner = with_profiles(spawner_named)
            if spawner is None:
                raise web.HTTPError(404, "This hub offers no profiles.")
            try:
                query = await self._switch(user, spawner)
            except RequestError as error:
                raise web.HTTPError(400, "%s", error.for_user) from error
        if following := self.get_body_argument("next", ""):  # JupyterHub checks where it leads
            query["next"] = following
        self.redirect(f"{where}?{urlencode(query)}" if query else where, status=303)

    async def wanted(self, spawner: GPUProfilesSpawner) -> Mapping[str, str]:
        """What is to be started, which need not be free; empty: the server is left as it is. Raises RequestError."""
        choice = parse_choice_query(self.get_body_argument("link", ""))
        if not choice:
            raise web.HTTPError(400, "The form must say in `link` what is to be started.")
        spawner.resolve(choice)
        return choice

    def not_switched(self) -> dict[str, str]:
        """The query of the page that follows where :meth:`wanted` is empty."""
        return {}

    async def _switch(self, user: Any, spawner: GPUProfilesSpawner) -> dict[str, str]:
        """The query of the page that follows. Raises RequestError."""
        if not server_of(spawner, with_start=False).waits_in_line:
            return {}
        await spawner.refresh_profiles()
        choice = await self.wanted(spawner)
        if not choice:
            return self.not_switched()
        abandoned = {GAVE_UP: as_query(spawner.user_options)}
        name = spawner.name
        await stop_as(self, user, name)
        if user.spawners[name].active:  # Slurm takes its time: the page shows how it goes
            # what is wanted now survives a restart of the hub meanwhile: pages offer it again
            stopping = user.spawners[name]
            stopping.user_options = stopping.orm_spawner.user_options = dict(choice)
            self.db.commit()
            in_background(self._start_when_stopped(user, name, choice))
        else:
            await self._start(user, name, choice)
        return abandoned

    async def _start_when_stopped(self, user: Any, name: str, choice: Mapping[str, str]) -> None:
        await _until_idle(user, name)
        if user.spawners[name].active:  # the start took longer to cancel than the stop waits for it
            await stop_as(self, user, name)
            await _until_idle(user, name)
        if user.spawners[name].active:
            self.log.error("%s runs on and is not replaced: it could not be stopped", log_name(user.spawners[name]))
        else:
            await self._start(user, name, choice)

    async def _start(self, user: Any, name: str, choice: Mapping[str, str]) -> None:
        start = asyncio.ensure_future(self.spawn_single_user(user, name, options=dict(choice)))
        await asyncio.wait({start}, timeout=FAST_FAILURE_SECONDS)
        start.add_done_callback(retrieve_failure)
        if start.done() and start.exception() is not None and last_start(user.spawners[name]) is None:
            set_last_start(user.spawners[name], start)  # refused before it began: the page shows why


async def _until_idle(user: Any, name: str) -> None:
    """Wait until the server neither starts nor stops."""
    while user.spawners[name].pending:  # noqa: ASYNC110 - JupyterHub has no event for it
        await asyncio.sleep(POLL_SECONDS)


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
        title = server_title(server_of(spawner, with_start=False))
        html = await self.render_template(
            "log.html",
            title=title_of_another(title) if user is not self.current_user else title,
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


_STOPPED = "stopped"
"""Query parameter after *Stop this server*."""
_OURS = (_STOPPED, GAVE_UP)


def same_choice(spawn_url: str, options: Mapping[str, object]) -> str:
    """The address of the form with the last user options filled in; empty where there were none."""
    texts = {f"opt-{name}": str(value) for name, value in options.items() if isinstance(value, (str, int, float))}
    return url_concat(spawn_url, texts) if texts else ""


def _offered_profile(spawner: Any, slug: str) -> Profile | None:
    """The profile of this slug; None where it is no longer offered."""
    profiles = with_profiles(spawner)
    with suppress(ConfigError):
        offered = profiles.offered() if profiles is not None and slug else ()
        return next((profile for profile in offered if profile.slug == slug), None)
    return None


def _profile_name(spawner: Any, slug: str) -> str:
    """What the form calls the profile; its slug where it is no longer offered, empty where there is none."""
    profile = _offered_profile(spawner, slug)
    if profile is not None:
        return profile.display_name
    return slug if with_profiles(spawner) is not None else ""


async def _pending(spaces: Mapping[str, Any], _query: Mapping[str, str], *, own: bool) -> dict[str, Any]:
    spawner = spaces["spawner"]
    await refresh_servers([spawner])
    server = server_of(spawner)
    profile = _offered_profile(spawner, server.profile)
    return {
        "told": document(server.start, now=time.time(), own=own) if server.start is not None else None,
        "profile": _profile_name(spawner, server.profile),
        "application": bool(server.app or program_of(profile)),
    }


async def _not_running(spaces: Mapping[str, Any], query: Mapping[str, str], *, own: bool) -> dict[str, Any]:
    spawner = spaces["user"].spawners[spaces["server_name"]]
    failure = spaces.get("exception")
    server = server_of(spawner, with_start=False)
    ending = server.ending
    stage = ending.stage if ending is not None and ending.stopped else None
    if ending is None or ending.stopped:  # the hub's own time-out has no message
        ending = Ending(start_failed("timeout")) if isinstance(failure, AnyTimeoutError) else None
    abandoned = parse_choice_query(query.get(GAVE_UP, ""))
    return {
        "ending": ending,
        "shown": _shown(ending, spawner, own=own) if ending is not None else None,
        "report": _report(ending, spawner) if ending is not None else "",
        "server": server,
        "again_url": same_choice(spaces["spawn_url"], abandoned or spawner.user_options),
        "given_up": _profile_name(spawner, abandoned.get("profile", "")) if abandoned else "",
        "stopped": _STOPPED in query,
        "stopped_in": stage.value if stage is not None and _STOPPED in query else "",
    }


def _report(ending: Ending, spawner: Any) -> str:
    """What an administrator needs to know of a start that failed, line by line; nothing that the log alone says."""
    job, cluster = ending.job, server_of(spawner, with_start=False).cluster
    facts = {
        "Profile": f"{ending.profile} ({ending.slug})" if ending.slug else "",
        "Job": job_in(ending.job_id, job.partition if job is not None else "", cluster) if ending.job_id else "",
        "Node": (job.batch_host or job.nodes) if job is not None else "",
        "When": utc(ending.at) or "",
        "User": spawner.user.name,
        "Log": ending.log,
    }
    lines = (f"{name + ':':<9}{fact}" for name, fact in facts.items() if fact)
    return "\n".join((words_of(ending, to_user=False).sentence, *lines))


def _shown(ending: Ending, spawner: Any, *, own: bool) -> Words:
    """What is said of an ending to the server's user, or to somebody else, who reads what the user is told."""
    if own:
        return words_of(ending, contact=contact_of(spawner))
    shown = words_of(ending, contact=CONTACT_OF_ANOTHER, to_user=False)

    def told(text: str) -> str:
        return TOLD.format(owner=spawner.user.name, advice=text) if text else ""

    sentence = told(shown.sentence) if ending.quoted.sentence and not ending.stopped else shown.sentence
    return replace(shown, sentence=sentence, advice=told(shown.advice))


_CONTENT = {"spawn_pending.html": _pending, "not_running.html": _not_running}
_PAGES = {*_CONTENT, "stop_pending.html"}


def _is_being_stopped(spawner: Any) -> bool:
    """Whether its start was cancelled, which takes long to end; JupyterHub says that it is starting."""
    return server_of(spawner, with_start=False).state is ServerState.STOPPING


class _WithContent:
    """A mixin for JupyterHub's handlers: adds what our templates of these pages show."""

    def render_template(self, name: str, sync: bool = False, **spaces: Any) -> Any:
        if name == "spawn_pending.html" and _is_being_stopped(spaces["spawner"]):
            name = "stop_pending.html"
        if name in _PAGES:  # JupyterHub never renders these synchronously
            return self._with_content(name, spaces)
        return super().render_template(name, sync, **spaces)  # type: ignore[misc]

    async def _with_content(self, name: str, spaces: dict[str, Any]) -> Any:
        query = {
            name: self.get_query_argument(name)  # type: ignore[attr-defined]
            for name in _OURS
            if name in self.request.query_arguments  # type: ignore[attr-defined]
        }
        own = spaces.get("user", self.current_user) is self.current_user  # type: ignore[attr-defined]
        content = await _CONTENT[name](spaces, query, own=own) if name in _CONTENT else {}
        if name == "spawn_pending.html":
            extensions = extensions_of(self.settings)  # type: ignore[attr-defined]
            content["below"] = await extensions.below_wait(self, spaces["spawner"])
        if content.get("ending") is not None and not self._may_read_log(spaces["user"], spaces["server_name"]):
            content["ending"] = replace(content["ending"], log="", lines="", line="")
            spawner = spaces["user"].spawners[spaces["server_name"]]
            content["shown"] = _shown(content["ending"], spawner, own=own)
            content["report"] = _report(content["ending"], spawner)
        return await super().render_template(name, **{**spaces, **content, "own": own, "spoken": words_for(own=own)})  # type: ignore[misc]

    def _may_read_log(self, user: Any, server_name: str) -> bool:
        allowed = self.get_scope_filter(LOG_SCOPE)  # type: ignore[attr-defined]
        return bool(allowed(user.spawners[server_name].orm_spawner, "server"))


class WaitingPage(_WithContent, SpawnPendingHandler):
    """``/hub/spawn-pending/...``: a server that is starting or stopping, or whose start failed."""

    @web.authenticated
    @needs_scope("servers")  # as JupyterHub's: before anything is made
    async def get(self, user_name: str, server_name: str = "") -> None:
        """JupyterHub's, also for a named server that was stopped: JupyterHub has no spawner of it in memory then."""
        user: Any = self.find_user(user_name)
        if user is not None and server_name in user.orm_spawners:
            user.spawners[server_name]  # creates it
        await super().get(user_name, server_name)

    def append_query_parameters(self, url: str, exclude: list[str] | None = None) -> Any:
        """JupyterHub's, without the parameters that are for this page: a server that is ready does not get them."""
        ours = [*_OURS, *(name for name in self.request.query_arguments if name.startswith(OF_THIS_PAGE))]
        return super().append_query_parameters(url, exclude=[*(exclude or ["next"]), *ours])


class NotRunningPage(_WithContent, UserUrlHandler):
    """``/hub/user/...``: the page of a server that is not running."""


class ProgressStreams(OpenStreams):
    """The streams that each reader has open about the servers of one user; each holds a file of the hub's."""

    limit = 12


class ProgressStream(SpawnProgressAPIHandler):
    """``/hub/api/users/.../progress``: JupyterHub's own handler, whose streams are counted."""

    _over: asyncio.Future[None]

    async def get(self, user_name: str, *server_name: str) -> None:
        """The events of a start; beyond their limit the reader's oldest stream ends with its next event."""
        reader: Any = self.current_user
        streams = state_of(self.settings).of(ProgressStreams)
        with streams.one((getattr(reader, "kind", ""), getattr(reader, "name", ""), user_name)) as self._over:
            await super().get(user_name, *server_name)

    async def send_event(self, event: dict[str, Any]) -> None:
        """Send an event; the rights of the request have been checked, and the stream may last for hours."""
        if self._over.done():
            with suppress(StreamClosedError):
                self.write("event: elsewhere\ndata: {}\n\n")
                await self.flush()
            raise web.Finish
        forget_rights(self)
        await super().send_event(self._for_reader(event))

    def _for_reader(self, event: dict[str, Any]) -> dict[str, Any]:
        """The event as it is said to the server's user, or on a page to somebody else; a program gets the user's.

        JupyterHub says ``failed`` of a start that was stopped, too: that one has ``stopped``.
        """
        user_name, *name = self.path_args
        user: Any = self.find_user(user_name)
        spawner = user.spawners.get("".join(name)) if user is not None else None
        if event.get("failed") and (spawner is None or server_of(spawner, with_start=False).failure is None):
            return {**event, "stopped": True}
        if spawner is None or user is self.current_user or came_with_token(self):
            return event
        if event.get("failed"):
            return {"progress": event.get("progress", 100), "failed": True, "message": words_for(own=False).FAILED}
        start = server_of(spawner).start if "gpuspawner" in event else None
        if start is None:
            return event
        told = progress_event(start, now=time.time(), own=False)
        return {**event, **{key: value for key, value in told.items() if key in event}}
