"""What people read where the proxy gets no answer from a server.

The proxy fetches the page of an error from the hub, without the reader's cookies: so :class:`ProxyErrorPage` says only
that there is no answer, whoever asks, and leads to :class:`NoAnswerPage`, which says what the hub knows of the server
to those who may open it.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any
from urllib.parse import unquote, urlsplit

from jupyterhub.handlers.base import BaseHandler
from jupyterhub.handlers.pages import ProxyErrorHandler
from jupyterhub.spawner import Spawner
from tornado import web
from tornado.httputil import url_concat

from jupyterhub_gpuspawner.hub import words
from jupyterhub_gpuspawner.hub.spawners.profiles import job_spawner
from jupyterhub_gpuspawner.hub.spawners.server import refresh_servers, server_of, server_title
from jupyterhub_gpuspawner.hub.web.handlers import server_named, title_for
from jupyterhub_gpuspawner.hub.web.links import pending_url
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
        known = url_concat(f"{self.hub.base_url}gpuspawner/no-answer", {ADDRESS: address})
        html = await self.render_template("no_answer.html", address=address, known=known, title="This server")
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
            what=await what_is_known(spawner),
            stop_url=f"{self.hub.base_url}gpuspawner/stop/{user.escaped_name}/{spawner.name}".rstrip("/"),
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


async def what_is_known(spawner: Spawner) -> tuple[str, ...]:
    """Why a server that runs may not answer, in sentences for its user, by what Slurm says of its job and nodes."""
    ours = job_spawner(spawner)
    if ours is None or not ours.job_id:
        return (words.NO_ANSWER_OF_RUNNING,)
    if ours.watch.silent:
        return (words.NO_ANSWER_SLURM_SILENT,)
    job, connection = ours.watch.status, ours.connection()
    if job is not None and job.state == "SUSPENDED":
        return (words.SUSPENDED,)
    snapshot = await connection.cluster.recent(NODES_AGE_SECONDS, PATIENCE_SECONDS)
    names = expand_nodelist(job.nodes) if job is not None else []
    nodes = [snapshot.node_by_name[name] for name in names if snapshot is not None and name in snapshot.node_by_name]
    out = [node for node in nodes if node.states & OUT]
    if not out:
        return (words.NO_ANSWER_OF_RUNNING,)
    reasons = [node_reason(node.reason).for_user for node in out]
    sentences = [
        words.NODE_IS_OUT.format(node=node.name, reason=f" ({reason})" if reason else "")
        for node, reason in zip(out, reasons, strict=True)
    ]
    return (*sentences, words.NODE_IS_OUT_ADVICE)


OUT = frozenset({"DOWN", "FAIL", "FAILING", "NOT_RESPONDING", "POWERED_DOWN", "POWERING_DOWN", "REBOOT_ISSUED"})
"""States of a node on which a server does not answer; one that is drained goes on with what runs on it."""
