"""What differs between the versions of JupyterHub that are supported: 5.4 to 6.1.

A difference is found by looking at what JupyterHub has, not by its version number: a site may run a version with a fix
of its own. The rest of the package asks this module and knows nothing of versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jupyterhub.spawner
from jupyterhub.spawner import Spawner
from tornado import web
from traitlets import Dict

from jupyterhub_gpuspawner.errors import RequestError

if TYPE_CHECKING:
    from asyncio import Future

    from jupyterhub.handlers.base import BaseHandler

HAS_DISPLAY_NAMES = hasattr(Spawner, "display_name")
"""Servers have a name to show beside the one in their address (JupyterHub 6.0)."""

SPAWN_PAGE_PARAMETERS = ("next", "display_name") if HAS_DISPLAY_NAMES else ("next",)
"""Query parameters of ``/hub/spawn/...`` that JupyterHub keeps for itself; it takes any other one for a user option."""

_SpawnException: type[web.HTTPError] | None = getattr(jupyterhub.spawner, "SpawnException", None)
"""JupyterHub 6.0: an HTTPError whose ``reason`` becomes a label of a metric; it is logged without a traceback."""

LOGS_REFUSALS_AS_UNHANDLED = _SpawnException is None
"""JupyterHub 5 logs each exception of a start as unhandled, with a traceback, whatever it is."""


class UserOptions(Dict):
    """``Spawner.user_options``: what is no table is one with a single entry, which is refused as an option.

    JupyterHub 6 refuses a REST body that is none. 5.4 stores it before it looks, and from then on could not build the
    spawner at all: not for a page of its user's, and not when the hub starts.
    """

    def validate(self, obj: Any, value: Any) -> dict[str, Any] | None:
        """A table, whatever was set."""
        return super().validate(obj, value if isinstance(value, dict) else {"user_options": value})


def checked_server_name(name: str) -> str:
    """The name of a server that can stand in an environment; raises RequestError. JupyterHub 6 refuses more of them."""
    if not name.isprintable():
        raise RequestError("The name of a server must be printable text.", field="server", hint="Choose another one.")
    return name


def display_name(spawner: Any) -> str:
    """The name to show of a server; its name in the address where it has no other, empty for the default server."""
    return str(getattr(spawner, "display_name", "") or spawner.name)


def last_start(spawner: Any) -> Future[Any] | None:
    """The task of a server's start, under way or done; None where the hub has started none since it runs itself."""
    return getattr(spawner, "_spawn_future", None)


def set_last_start(spawner: Any, start: Future[Any] | None) -> None:
    """Have JupyterHub's pages show ``start`` as the server's last one; None: nothing."""
    spawner._spawn_future = start  # noqa: SLF001 - there is no public name


def is_polled(spawner: Any) -> bool:
    """Whether somebody wants to hear when the server ends: JupyterHub, for every server that it has brought up."""
    return bool(spawner._callbacks)  # noqa: SLF001


def log_name(spawner: Any) -> str:
    """How JupyterHub's log names the server: the user's name, and the server's where it has one."""
    return str(spawner._log_name)  # noqa: SLF001


def came_with_token(handler: BaseHandler) -> bool:
    """Whether the request was made with a token, not with a browser's cookie."""
    return bool(getattr(handler, "_token_authenticated", False))


def first_line(failure: BaseException) -> str:
    """What JupyterHub's pages say first of a start that failed; empty for an exception that has no words for users."""
    return str(getattr(failure, "jupyterhub_message", "")).partition("\n")[0]


def spawn_exception(message: str, *, reason: str, status_code: int, html: str, detail: str = "") -> web.HTTPError:
    """The exception with which a start is refused or fails; ``detail`` (lines of a log) follows the message.

    Pages show ``jupyterhub_html_message``, and a progress stream ``jupyterhub_message``, of any exception. REST does so
    since JupyterHub 6.0; 5.4 answers with the message of the HTTPError itself, so there that one has the detail too.
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
