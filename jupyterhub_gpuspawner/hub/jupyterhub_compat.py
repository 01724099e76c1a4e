"""JupyterHub's private names that this package uses, and the differences between the supported versions, 5.4 to 6.1.

Differences are detected by what JupyterHub has, not by its version number: a site may run a version with a fix of its
own. No other module uses an underscored name of JupyterHub's, except to override a method of a page. Each name has a
contract test, which is run with the oldest supported version, too. Where an issue of JupyterHub's is known that brought
a name, or would end its use here, its number is beside it; the others have no public counterpart.
"""
# ruff: noqa: SLF001 - see above

from __future__ import annotations

import asyncio
import sys
from asyncio import Future
from collections.abc import Callable, Mapping
from functools import cached_property, partial, wraps
from http import HTTPStatus
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING, Any

import jupyterhub.spawner
from jinja2 import Environment
from jupyterhub import orm, roles
from jupyterhub._data import DATA_FILES_PATH
from jupyterhub.app import JupyterHub
from jupyterhub.handlers.base import BaseHandler
from jupyterhub.metrics import TOTAL_USERS
from jupyterhub.scopes import Scope, scope_definitions
from jupyterhub.spawner import Spawner
from jupyterhub.user import UserDict
from jupyterhub.utils import maybe_future
from sqlalchemy import inspect
from sqlalchemy.orm import Session
from tornado import web
from traitlets import Dict

from jupyterhub_gpuspawner.errors import RequestError
from jupyterhub_gpuspawner.tasks import contained

HAS_DISPLAY_NAMES = hasattr(Spawner, "display_name")
"""Servers have a display name beside the name in their URL (JupyterHub 6.0)."""

SPAWN_PAGE_PARAMETERS = ("next", "display_name") if HAS_DISPLAY_NAMES else ("next",)
"""Query parameters of ``/hub/spawn/...`` that JupyterHub reads itself; it takes any other one for a user option."""

_SpawnException: type[web.HTTPError] | None = getattr(jupyterhub.spawner, "SpawnException", None)
"""JupyterHub 6.0: an HTTPError whose ``reason`` is a label of a metric, and which is logged without a traceback."""

START_SERVERS = "start:servers" if "start:servers" in scope_definitions else "servers"
"""The scope for starting servers: JupyterHub 5 has none that does not also include the others for servers."""

CONSTRUCTOR_ARGUMENTS = (
    "user",
    "orm_spawner",
    "hub",
    "authenticator",
    "oauth_client_id",
    "config",
    "cookie_options",
    "cookie_host_prefix_enabled",
    "proxy_spec",
    "public_url",
    "public_hub_url",
    "trusted_alt_names",
    "internal_ssl",
    "internal_trust_bundles",
    "internal_certs_location",
    "_deprecated_db_session",
)
"""Arguments with which JupyterHub constructs a spawner."""


class UserOptions(Dict):
    """``Spawner.user_options`` that accept any JSON: a value that is not an object becomes an option that is refused.

    JupyterHub 6 refuses a REST body that is not an object. 5.4 stores it before it checks it, and could not construct
    the spawner from then on: not for a page of its user, and not when the hub starts.
    """

    def validate(self, obj: Any, value: Any) -> dict[str, Any] | None:
        """Return a dict, whatever was set."""
        return super().validate(obj, value if isinstance(value, dict) else {"user_options": value})


def checked_server_name(name: str) -> str:
    """Return a server's name that can be put into an environment; raises RequestError.

    JupyterHub 6 refuses more names itself.
    """
    if not name.isprintable():
        raise RequestError("The name of a server must be printable text.", field="server", hint="Choose another one.")
    return name


async def delete_named_server(user: Any, spawner: Any) -> None:
    """Delete a named server that is not active, as ``DELETE /users/USER/servers/NAME`` with ``remove`` does."""
    await user._delete_spawner(spawner)
    user.db.delete(spawner.orm_spawner)
    user.spawners.pop(spawner.name, None)
    user.db.commit()


def add_user(app: JupyterHub, name: str) -> Any:
    """Add a user's row, as a first login does (``BaseHandler.user_from_username``); returns it."""
    user = orm.User(name=name)
    app.db.add(user)
    roles.assign_default_roles(app.db, entity=user)
    TOTAL_USERS.inc()
    app.db.commit()
    return user


def start_body(user_options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of ``POST /users/USER/server``; JupyterHub 5 takes all of it for user options."""
    return {"user_options": dict(user_options)} if HAS_DISPLAY_NAMES else dict(user_options)


def posted_options(body: Any) -> Any:
    """The user options in the body of ``POST /users/USER/server``; None where JupyterHub takes the last ones."""
    if HAS_DISPLAY_NAMES and isinstance(body, dict):
        if "display_name" in body or "user_options" in body:
            return body.get("user_options")
        return body or None
    return body


def display_name(spawner: Any) -> str:
    """Return the name to show of a server: its display name, or the name in its URL; empty for the default server."""
    return str(getattr(spawner, "display_name", "") or spawner.name)


def used_spawner(user: Any, spawner: Any) -> Any:
    """Return the spawner that JupyterHub starts: after a failed start, version 6 hands another one to handlers.

    jupyterhub/jupyterhub#3802: a new start does not use the spawner again that is kept for its error.
    """
    return user.spawners[spawner.name]


def last_start(spawner: Any) -> Future[Any] | None:
    """Return the future of the server's last start, pending or done; None if there was none since the hub started.

    jupyterhub/jupyterhub#1393: kept so that waiting pages raise the error of a start that has failed.
    """
    return getattr(spawner, "_spawn_future", None)


def set_last_start(spawner: Any, start: Future[Any] | None) -> None:
    """Make JupyterHub's pages show ``start`` as the server's last one; None for none."""
    spawner._spawn_future = start


def is_polled(spawner: Any) -> bool:
    """Whether JupyterHub polls the server: it registers a callback for each one that has become ready."""
    return bool(spawner._callbacks)


def log_name(spawner: Any) -> str:
    """Return the name of the server in JupyterHub's log: ``user`` or ``user:server``."""
    return str(spawner._log_name)


class LogName:
    """A mixin for spawners: the server's name in the log, which can be read while the database is away.

    After a rollback SQLAlchemy reads each row anew when it is next used, and JupyterHub reads this name first of all
    when it stops a server.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._log_name  # noqa: B018 - cached from now on

    if TYPE_CHECKING:
        _log_name: str
    else:

        @cached_property
        def _log_name(self) -> str:
            return super()._log_name


class SiteHooks:
    """A mixin for spawners: runs the hooks of the site's configuration, of which JupyterHub expects only an Exception.

    Each of those before ``start()`` may take ``start_timeout``; JupyterHub waits for them without a limit.
    """

    if TYPE_CHECKING:
        start_timeout: int
        auth_state_hook: Callable[..., Any] | None

    def hook_failed(self, name: str, error: Exception) -> Exception:
        """The exception to raise for what the hook of this name has raised."""
        raise NotImplementedError

    async def run_pre_spawn_hook(self) -> None:
        await self._run("pre_spawn_hook", super().run_pre_spawn_hook)  # type: ignore[misc]

    async def run_auth_state_hook(self, auth_state: Any) -> None:
        if self.auth_state_hook is not None:  # as JupyterHub, which makes a task of a coroutine
            await self._run("auth_state_hook", self.auth_state_hook, self, auth_state)

    async def _run_apply_user_options(self, user_options: Any) -> None:
        await self._run("apply_user_options", super()._run_apply_user_options, user_options)  # type: ignore[misc]

    async def run_post_stop_hook(self) -> None:
        await maybe_future(await contained(super().run_post_stop_hook))  # type: ignore[misc]

    async def _run(self, name: str, hook: Callable[..., Any], *arguments: Any) -> None:
        try:
            await maybe_future(await contained(partial(hook, *arguments), seconds=self.start_timeout))
        except Exception as error:
            failure = self.hook_failed(name, error)
            if failure is error:
                raise
            raise failure from error


NO_TIME_LIMIT = 10 * 366 * 86400
"""Seconds: what JupyterHub reads as the ``start_timeout`` of a start that it must not end."""


class OwnStartTimeout:
    """A mixin for spawners that give up their starts themselves.

    JupyterHub reads ``start_timeout`` immediately after it has called ``start()``, and cancels a start that takes
    longer, whatever it waits for (jupyterhub/batchspawner#88). For that moment the setting is raised: it has its value
    again before the first step of the start, and also if the start is cancelled before that.

    A site's subclass may have a ``start`` that calls ours. What it does before and after that may take
    ``start_timeout`` each, and its start then fails with the exception of JupyterHub's own time-out.
    """

    sites_starts: tuple[_SitesStart, ...] = ()
    """Those under way; several where a site's class inherits from another one."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if "start" in vars(cls):
            of_a_site = OwnStartTimeout not in cls.__bases__
            start = _with_time_limit(cls.start) if of_a_site else _noted(cls.start)  # type: ignore[attr-defined]
            cls.start = _without_time_limit(start)  # type: ignore[attr-defined]


class _SitesStart:
    """A ``start`` of a site's subclass, and when ours, which it calls, begins and ends."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.ours_began: Future[None] = loop.create_future()
        self.ours_ended: Future[None] = loop.create_future()


def _noted(start: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(start)
    async def noted(spawner: Any, *arguments: Any, **named: Any) -> Any:
        for earlier in spawner.sites_starts:
            _done(earlier.ours_began)
        try:
            return await maybe_future(start(spawner, *arguments, **named))
        finally:
            for earlier in spawner.sites_starts:
                _done(earlier.ours_ended)

    return noted


def _done(future: Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _with_time_limit(start: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(start)
    async def limited(spawner: Any, *arguments: Any, **named: Any) -> Any:
        this, limit = _SitesStart(), spawner.start_timeout
        spawner.sites_starts = (*spawner.sites_starts, this)
        work = asyncio.ensure_future(maybe_future(start(spawner, *arguments, **named)))
        try:
            await asyncio.wait({work, this.ours_began}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            if this.ours_began.done():
                await asyncio.wait({work, this.ours_ended}, return_when=asyncio.FIRST_COMPLETED)
                await asyncio.wait({work}, timeout=limit)
            if not work.done():
                raise asyncio.TimeoutError
            return work.result()
        finally:
            spawner.sites_starts = tuple(start for start in spawner.sites_starts if start is not this)
            if not work.done():
                work.cancel()
                await asyncio.wait({work})

    return limited


def _without_time_limit(start: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(start)
    def begin(spawner: Any, *arguments: Any, **named: Any) -> Any:
        limits = [spawner.start_timeout]

        def restore() -> None:
            if limits:
                spawner.start_timeout = limits.pop()

        async def started() -> Any:
            restore()
            return await maybe_future(start(spawner, *arguments, **named))

        asyncio.get_running_loop().call_soon(restore)
        spawner.start_timeout = NO_TIME_LIMIT
        return started()

    return begin


def leave_out_of_spawn_limit(users: UserDict, left_out: Callable[[Spawner], bool]) -> None:
    """Have ``concurrent_spawn_limit`` count pending starts without those for which ``left_out`` is true.

    JupyterHub counts all of them in one method, for a form and for REST (jupyterhub/jupyterhub#1301). A second call
    changes nothing.
    """
    if "count_active_users" in vars(users):
        return
    count = users.count_active_users

    def counted() -> dict[str, int]:
        counts: dict[str, int] = count()
        pending = (spawner for user in users.values() for spawner in user.spawners.values() if spawner._spawn_pending)
        counts["spawn_pending"] -= sum(map(left_out, pending))
        return counts

    users.count_active_users = counted


def retry_after(refusal: web.HTTPError) -> int | None:
    """Return after how many seconds JupyterHub wants a start repeated that ``concurrent_spawn_limit`` refused.

    None for any other refusal.
    """
    seconds = (getattr(refusal, "headers", None) or {}).get("Retry-After")
    return int(seconds) if seconds is not None and refusal.status_code == HTTPStatus.TOO_MANY_REQUESTS else None


def is_first_check(spawner: Any) -> bool:
    """Whether the hub, which has just started, checks this restored server for the first time."""
    return bool(spawner._check_pending and spawner._spawn_future is None)


def is_checked(spawner: Any) -> bool:
    """Whether the hub, which has just started, is checking this restored server."""
    return bool(spawner._check_pending)


def begin_pending_start(spawner: Any, start: Future[Any]) -> None:
    """Make JupyterHub show the server as starting, as its handlers do for a start of their own."""
    spawner._spawn_future = start
    spawner._spawn_pending = True


def end_pending_start(spawner: Any) -> None:
    """End what :func:`begin_pending_start` began; the start itself is kept if it failed, for the server's page."""
    start = spawner._spawn_future
    spawner._spawn_pending = False
    if start.cancelled():
        spawner._check_pending = False  # so that a stop may go on
    if start.cancelled() or start.exception() is None:
        spawner._spawn_future = None


async def stop_single_user(proxy: Any, user: Any, spawner: Any) -> bool:
    """Take a server's route away and stop it, as ``BaseHandler.stop_single_user`` does; return whether that was done.

    It is pending from the first moment on, so that nobody else stops or starts it meanwhile. Not done while something
    else is, and where the user has another server by this name now.
    """
    name = spawner.name
    if spawner.pending or user.spawners.get(name) is not spawner:
        return False
    spawner._stop_pending = True  # before anything is awaited
    try:
        await proxy.delete_user(user, name)
        await user.stop(name)
    finally:
        spawner._stop_pending = False
    return True


def session_of(orm_spawner: Any) -> Session | None:
    """Return the database session of a spawner's row; None without a row, or for one that is not in the database."""
    session: Session | None = inspect(orm_spawner).session if orm_spawner is not None else None
    return session


def cookie_secret(spawner: Any) -> bytes:
    """Return the hub's secret, of which it makes its cookies; empty without a hub."""
    secret: bytes = spawner.user.settings.get("cookie_secret", b"")
    return secret


def proxy_of(spawner: Any) -> Any:
    """Return the hub's proxy, with ``add_user`` and ``delete_user``."""
    return spawner.user.settings["proxy"]


def internal_certificates(spawner: Any) -> tuple[str | None, str | None, str | None]:
    """Return the paths of key, certificate and CA with which the hub talks to servers; None without internal_ssl."""
    names = ("internal_ssl_key", "internal_ssl_cert", "internal_ssl_ca")
    key, certificate, authority = (spawner.user.settings.get(name) for name in names)
    return key, certificate, authority


STOCK_TEMPLATES = Path(DATA_FILES_PATH, "templates").resolve()
"""The folder of JupyterHub's own page templates."""


def stock_template_paths(app: JupyterHub) -> list[str]:
    """Return the hub's own template folders: ``template_paths`` if the admin sets none."""
    paths: list[str] = app._template_paths_default()
    return paths


def template_environments(settings: Mapping[str, Any]) -> list[Environment]:
    """Jinja's environments in these tornado settings; none before JupyterHub has made its own."""
    return [settings[name] for name in ("jinja2_env", "jinja2_env_sync") if name in settings]


def is_admin(parsed_scopes: Mapping[str, object]) -> bool:
    """Whether these scopes are an administrator's: they give access to every server and its state."""
    return parsed_scopes.get("admin:servers") is Scope.ALL


def came_with_token(handler: BaseHandler) -> bool:
    """Whether the request was authenticated by a token, not by a browser's cookie."""
    return bool(getattr(handler, "_token_authenticated", False))


def forget_rights(handler: BaseHandler) -> None:
    """Free the scopes and cookies of a request whose rights have been checked: 15 KiB, while it may last for hours."""
    handler.expanded_scopes, handler.parsed_scopes = set(), {}
    vars(handler.request).pop("_cookies", None)  # tornado parses them again if they are asked for


def first_line(failure: BaseException) -> str:
    """Return the first line of what JupyterHub's pages show of a failed start; empty for exceptions without a text."""
    return str(getattr(failure, "jupyterhub_message", "")).partition("\n")[0]


def spawn_exception(message: str, *, reason: str, status_code: int, html: str, detail: str = "") -> web.HTTPError:
    """Return the exception for a start that is refused or fails; ``detail`` (lines of a log) follows the message.

    Pages show ``jupyterhub_html_message`` of any exception, and progress streams ``jupyterhub_message``. REST does so
    since JupyterHub 6.0; 5.4 answers with the HTTPError's own message, which has the detail as well therefore.
    """
    text = f"{message}\n{detail}".strip()
    if _SpawnException is None:
        failure = web.HTTPError(status_code, "%s", text)
    else:
        # its signature is not HTTPError's
        make: Any = _SpawnException
        failure = make(message, reason=reason, message_html=html, status_code=status_code)
    vars(failure).update(jupyterhub_message=text, jupyterhub_html_message=html)
    return failure


def listening_sockets(app: JupyterHub) -> list[socket]:
    """The sockets on which a hub that has started accepts connections; tornado has no public name for them."""
    sockets: dict[int, socket] = app.http_server._sockets if app.http_server is not None else {}
    return [open_socket for open_socket in sockets.values() if open_socket.fileno() >= 0]


def this_hub() -> JupyterHub | None:
    """Return the hub of this process; None in other programs, and in a hub that is still being constructed."""
    app = sys.modules.get("jupyterhub.app")  # not imported for this: it takes half a second
    return app.JupyterHub.instance() if app is not None and app.JupyterHub.initialized() else None
