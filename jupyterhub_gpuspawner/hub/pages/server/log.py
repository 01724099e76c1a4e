"""``/hub/gpuspawner/log/...``: the end of a server's log, for everyone with access to the server."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from jupyterhub.handlers.base import BaseHandler
from jupyterhub.scopes import needs_scope
from tornado import web

from jupyterhub_gpuspawner.hub.ending.joblog import OF_DOWNLOAD, OF_PAGE
from jupyterhub_gpuspawner.hub.spawners.server import ended_log, running_log, server_of
from jupyterhub_gpuspawner.hub.spawners.stop_record import server_title

if TYPE_CHECKING:
    from jupyterhub.spawner import Spawner

    from jupyterhub_gpuspawner.hub.ending.joblog import Extent

SCOPE = "access:servers"
"""The scope to read what a server has written."""


class LogPage(BaseHandler):
    """The path and the last lines of a server's log, read with the rights of its owner."""

    @web.authenticated
    @needs_scope(SCOPE)
    async def get(self, user_name: str, server_name: str = "") -> None:
        """The page, or with ``?download`` the log as a file; 404 for a server without a log."""
        user = self.find_user(user_name)
        if user is None or server_name not in user.orm_spawners:
            raise web.HTTPError(404, "There is no such server.")
        spawner = user.spawners[server_name]
        if "download" in self.request.query_arguments:
            self._send(*await server_log(spawner, OF_DOWNLOAD))
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

    def _send(self, path: str, text: str) -> None:
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.set_header("Content-Disposition", f'attachment; filename="{file_name(path)}"')
        self.set_header("X-Content-Type-Options", "nosniff")
        self.finish(f"{text}\n" if text else "")


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
