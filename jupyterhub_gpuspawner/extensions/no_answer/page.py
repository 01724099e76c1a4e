"""What people read where the proxy gets no answer from a server.

The proxy fetches the page of an error from the hub, without the reader's cookies: so :class:`ProxyErrorPage` says only
that there is no answer, whoever asks, and leads to :class:`NoAnswerPage`, which says what the hub knows of the server
to those who may open it.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from jupyterhub.handlers.base import BaseHandler
from jupyterhub.handlers.pages import ProxyErrorHandler
from jupyterhub.spawner import Spawner
from tornado import web
from tornado.httputil import url_concat

from jupyterhub_gpuspawner.hub.spawners.profiles import job_spawner
from jupyterhub_gpuspawner.hub.spawners.server import refresh_servers, server_of, server_title
from jupyterhub_gpuspawner.hub.web.handlers import pending_url, server_named, title_for
from jupyterhub_gpuspawner.slurm.reason import node_reason
from jupyterhub_gpuspawner.units import expand_nodelist

ADDRESS = "url"
"""Query parameter: the path that was asked for, as the proxy names it to the hub."""
NODES_AGE_SECONDS = 15.0
"""Age of the view of the cluster's nodes from which Slurm is asked anew, for all pages together."""
PATIENCE_SECONDS = 2.0
"""Seconds that the page waits for that."""


def of_a_server(address: str, base_url: str) -> bool:
    """Whether a path is below that of the users' servers, and so leads to no other site."""
    return address.startswith(f"{base_url}user/")


class ProxyErrorPage(ProxyErrorHandler):
    """``/hub/error/...``: JupyterHub's, except for a server that does not answer."""

    async def get(self, status_code_s: str) -> None:
        """The page that the proxy shows in the server's place; its status is the proxy's."""
        address = self.get_query_argument(ADDRESS, "")
        if int(status_code_s) != HTTPStatus.SERVICE_UNAVAILABLE or not of_a_server(address, self.base_url):
            await super().get(status_code_s)
            return
        more = url_concat(f"{self.hub.base_url}gpuspawner/no-answer", {ADDRESS: address})
        html = await self.render_template("no_answer.html", address=address, more=more, title="This server")
        self.finish(html)


class NoAnswerPage(BaseHandler):
    """What the hub knows of a server from which the proxy got no answer."""

    @web.authenticated
    async def get(self) -> None:
        """The page; 404 without access to the server; 303 to the page of a server that is starting or has ended."""
        address = self.get_query_argument(ADDRESS, "")
        user, spawner = self._server(address)
        if spawner.ready:
            await refresh_servers([spawner])
        if not spawner.ready:
            query = {"next": address}
            self.redirect(url_concat(pending_url(self.hub.base_url, user, spawner.name), query), status=303)
            return
        server = server_of(spawner, with_start=False)
        html = await self.render_template(
            "no_answer.html",
            address=address,
            title=title_for(self, user, server_title(server)),
            known=await what_is_known(spawner),
            owner=user,
            server_name=spawner.name,
        )
        self.finish(html)

    def _server(self, address: str) -> tuple[Any, Spawner]:
        """The server at this path, named or the user's default one; raises 404, and makes no spawner for a stranger."""
        if not of_a_server(address, self.base_url):
            raise web.HTTPError(404, "There is no such server.")
        parts = urlsplit(address).path.removeprefix(f"{self.base_url}user/").split("/")
        user_name, *names = map(unquote, parts[:2])
        allowed = [name for name in (*names, "") if self.has_scope(f"access:servers!server={user_name}/{name}")]
        user: Any = self.find_user(user_name) if allowed else None
        name = next((name for name in allowed if user is not None and name in user.orm_spawners), None)
        if name is None:
            raise web.HTTPError(404, "There is no such server.")
        return server_named(self, user_name, name)


class Known(NamedTuple):
    """Why a server that runs may not answer; nothing of it where Slurm has told of nothing that is wrong."""

    silent: bool = False
    """Slurm does not answer either."""
    suspended: bool = False
    """Slurm has suspended its job."""
    out: tuple[tuple[str, str], ...] = ()
    """Its nodes that are out of service by Slurm, each with the reason as its user may read it."""


async def what_is_known(spawner: Spawner) -> Known:
    """What Slurm says of the job and the nodes of a server that runs."""
    ours = job_spawner(spawner)
    if ours is None or not ours.job_id:
        return Known()
    if ours.watch.silent:
        return Known(silent=True)
    job = ours.watch.status
    if job is not None and job.state == "SUSPENDED":
        return Known(suspended=True)
    snapshot = await ours.connection().view.recent(NODES_AGE_SECONDS, PATIENCE_SECONDS)
    by_name = snapshot.node_by_name if snapshot is not None else {}
    nodes = [by_name[name] for name in (expand_nodelist(job.nodes) if job is not None else ()) if name in by_name]
    return Known(out=tuple((node.name, node_reason(node.why_out).clause) for node in nodes if node.states & OUT))


OUT = frozenset({"DOWN", "FAIL", "FAILING", "NOT_RESPONDING", "POWERED_DOWN", "POWERING_DOWN", "REBOOT_ISSUED"})
"""States of a node on which a server does not answer; one that is drained goes on with what runs on it."""
