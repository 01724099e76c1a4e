"""What the hub's loop does where it has no file left.

The kernel reports a connection that waits as long as it waits, and tornado's handler raises what ``accept`` does where
there is no file for it (accept(2): EMFILE, ENFILE). asyncio would log that with a traceback, thousands of times a
second; here the hub pauses, and says so in one line.
"""

from __future__ import annotations

import asyncio
import errno
import resource
import time
from collections.abc import Mapping
from typing import Any

from jupyterhub.app import JupyterHub
from tornado.ioloop import IOLoop
from traitlets.log import get_logger

from jupyterhub_gpuspawner.hub.extension import HubExtension
from jupyterhub_gpuspawner.hub.jupyterhub_compat import listening_sockets

PAUSE_SECONDS = 1.0
"""Seconds for which no connection is accepted then; those that are open go on."""
LINE_SECONDS = 60.0
"""Seconds between two lines about it."""


class OpenFiles:
    """What the hub's loop does where a callback fails for want of a file."""

    def __init__(self, app: JupyterHub) -> None:
        self._app = app
        self._logged_at: float | None = None

    def handle(self, loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        """For ``loop.set_exception_handler``: what is none of this is logged as ever."""
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
            loop.default_exception_handler(dict(context))
            return
        self._pause()
        now = time.monotonic()
        if self._logged_at is None or now - self._logged_at >= LINE_SECONDS:
            self._logged_at = now
            get_logger().error(
                "The hub accepts no connections at the moment: %s (at most %d files). Its unit can allow more "
                "(LimitNOFILE=), or its shell (ulimit -n).",
                error.strerror,
                resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            )

    def _pause(self) -> None:
        sockets, loop = listening_sockets(self._app), IOLoop.current()
        for listening in sockets:
            loop.remove_handler(listening)
        loop.call_later(PAUSE_SECONDS, self._go_on)

    def _go_on(self) -> None:
        if self._app.http_server is not None:
            self._app.http_server.add_sockets(listening_sockets(self._app))


def begin_open_files(app: JupyterHub) -> None:
    """Have the hub's loop report what its want of files keeps it from."""
    asyncio.get_running_loop().set_exception_handler(OpenFiles(app).handle)


HUB = HubExtension(begin=(begin_open_files,))
