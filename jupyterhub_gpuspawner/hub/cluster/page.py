"""The administrators' map of the cluster: ``/hub/gpuspawner/cluster``, and the same as JSON."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from jupyterhub.apihandlers import APIHandler
from jupyterhub.handlers.base import BaseHandler
from jupyterhub.scopes import Scope, needs_scope
from markupsafe import Markup
from sqlalchemy.orm import Session
from tornado import web

from jupyterhub_gpuspawner.cluster.cluster_map import ClusterMap, ServedJob, survey
from jupyterhub_gpuspawner.fleet.health import FleetHealth
from jupyterhub_gpuspawner.hub.cluster.fleet import FleetStore
from jupyterhub_gpuspawner.hub.cluster.health import read_health, section
from jupyterhub_gpuspawner.hub.cluster.rows import Rights, sections, summary
from jupyterhub_gpuspawner.hub.server.facts import in_a_line
from jupyterhub_gpuspawner.hub.site.connection import Connection
from jupyterhub_gpuspawner.hub.spawners.server import Server, servers_with_jobs, starts_slurm_jobs
from jupyterhub_gpuspawner.wire.documents import PlacementDocument

SCOPES = ("admin-ui", "list:users", "read:servers")
"""Scopes needed for all users to see the map: it names everybody's jobs and servers."""
AGE = 15.0
"""Seconds for which one answer of Slurm is used for all readers."""
WORDS_AT_MOST = 200
"""Characters at most of each part of a filter."""


def may_see_cluster(parsed_scopes: Mapping[str, object]) -> bool:
    """Whether these scopes include all of :data:`SCOPES`, each without a filter."""
    return all(parsed_scopes.get(scope) is Scope.ALL for scope in SCOPES)


@dataclass(frozen=True)
class Sight:
    """What is known about the cluster for one request."""

    cluster_map: ClusterMap | None
    """None where Slurm has not responded yet."""
    silent: bool = False
    has_holders: bool = True
    partitions: tuple[str, ...] = ()
    """The names of all partitions, whatever the filter."""
    use: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """How much servers, as pairs of user and name, use their GPUs, in words."""


class ClusterSight:
    """A mixin for the handlers of page and API: checks the scopes and looks up the map."""

    if TYPE_CHECKING:  # what a handler has
        db: Session
        parsed_scopes: Mapping[str, object]
        settings: Mapping[str, Any]

        def get_argument(self, name: str, default: str) -> str: ...  # noqa: D102

    def check_scopes(self) -> None:
        """Raise 403 unless the reader has all of :data:`SCOPES`, unfiltered."""
        if not may_see_cluster(self.parsed_scopes):
            raise web.HTTPError(403, f"The map of the cluster needs the scopes {', '.join(SCOPES)} for all users.")

    def filters(self) -> dict[str, str]:
        """The filter from the query."""
        return {name: self.get_argument(name, "")[:WORDS_AT_MOST] for name in ("text", "partition", "use")}

    async def sight(self) -> Sight:
        """The current or last known map, filtered; raises 404 in a hub that starts no Slurm jobs."""
        connection = self._connection()
        snapshot = await connection.cluster.recent(AGE)
        if snapshot is None:
            return Sight(None, silent=connection.silent)
        # not older than the snapshot
        allocations = await connection.allocations.recent(max(0.0, time.time() - snapshot.taken_at))
        hub_servers = list(servers_with_jobs(self.settings["users"].values()))
        filters, servers = self.filters(), list(served_jobs(hub_servers))
        # takes some hundredths of a second for a thousand nodes: not in the event loop
        cluster_map = await asyncio.to_thread(lambda: survey(snapshot, allocations or {}, servers).only(**filters))
        return Sight(
            cluster_map,
            silent=connection.silent,
            has_holders=allocations is not None,
            partitions=tuple(partition.name for partition in snapshot.partitions),
            use={(server.user, server.name): line for server in hub_servers if (line := in_a_line(server.usage))},
        )

    async def health(self) -> FleetHealth:
        """The health of all nodes; raises 404 in a hub that starts no Slurm jobs."""
        return await read_health(self._connection(), FleetStore(self.db.get_bind()), AGE)

    def _connection(self) -> Connection:
        spawner_class = self.settings["spawner_class"]
        if not starts_slurm_jobs(spawner_class):
            raise web.HTTPError(404, "This hub does not start Slurm jobs.")
        site = spawner_class(config=self.settings["config"], hub=self.settings["hub"])
        connection: Connection = site.connection()
        return connection


def served_jobs(servers: Iterable[Server]) -> Iterator[ServedJob]:
    """The Slurm jobs of these servers, with the node and GPUs that each has got."""
    for server in servers:
        if server.job_id:
            placement = server.placement or PlacementDocument()
            gpus = tuple(gpu.index for gpu in placement.gpus)
            yield ServedJob(server.job_id, server.user, server.name, placement.node, gpus)


class ClusterPage(ClusterSight, BaseHandler):
    """The map as an HTML page."""

    @web.authenticated
    @needs_scope("admin-ui")
    async def get(self) -> None:
        """Filtered by ``text``, ``partition`` and ``use``; with the nodes' health below, unless ``part`` is ``map``."""
        self.check_scopes()
        sight, filters = await self.sight(), self.filters()
        spaces: dict[str, Any] = {}
        if sight.cluster_map is not None:
            taken_at = datetime.fromtimestamp(sight.cluster_map.taken_at).astimezone()
            rights = Rights(
                log=self._servers_in("access:servers"), stop=self._servers_in("delete:servers"), use=sight.use
            )
            rows = await asyncio.to_thread(self._rows, sight.cluster_map, filters, rights, self.template_namespace)
            spaces = {"rows": rows, "summary": summary(sight.cluster_map), "taken": taken_at}
        if self.get_argument("part", "") != "map":  # the page's script fetches the map alone
            spaces["health"] = section(await self.health(), time.time())
        self.finish(await self.render_template("cluster.html", sight=sight, filters=filters, **spaces))

    def _servers_in(self, scope: str) -> frozenset[tuple[str, str]]:
        """The active servers for which the reader has this scope; looks up rows only where the scope has a filter."""
        allowed = self.get_scope_filter(scope)
        users = self.settings["users"].values()
        active = [(user, spawner) for user in users for spawner in list(user.spawners.values()) if spawner.active]
        return frozenset(
            (user.name, running.name) for user, running in active if allowed(running.orm_spawner, "server")
        )

    def _rows(
        self, cluster_map: ClusterMap, filters: Mapping[str, str], rights: Rights, namespace: Mapping[str, Any]
    ) -> Markup:
        template = self.get_template("cluster_rows.html", sync=True)
        parts = sections(cluster_map, now=time.time(), rights=rights, filtered=any(filters.values()))
        return Markup(template.render(sections=parts, filters=filters, **namespace))  # noqa: S704 - the template has escaped its texts


class FleetHandler(ClusterSight, APIHandler):
    """Nodes that differ from their siblings or contradict Slurm's configuration, and how well Slurm placed jobs there.

    For admins.
    """

    @needs_scope("admin-ui")
    async def get(self) -> None:
        """The fleet document, version 1."""
        self.check_scopes()
        self.write((await self.health()).to_json())


class ClusterHandler(ClusterSight, APIHandler):
    """Partitions and nodes of the cluster: each GPU free, in use and by whom, or out of service and why; for admins."""

    @needs_scope("admin-ui")
    async def get(self) -> None:
        """The map, version 1, filtered by `text`, `partition` and `use` if given; 503 before Slurm has responded."""
        self.check_scopes()
        sight = await self.sight()
        cluster_map = sight.cluster_map
        if cluster_map is None:
            raise web.HTTPError(503, "Slurm has not responded to this hub yet.")
        document = {
            "age_s": round(max(0.0, time.time() - cluster_map.taken_at), 1),
            "silent": sight.silent,
            "holders_known": sight.has_holders,
        }
        self.write(await asyncio.to_thread(_dumps, cluster_map, document))


def _dumps(cluster_map: ClusterMap, more: Mapping[str, Any]) -> str:
    return json.dumps({**cluster_map.to_json(), **more}, separators=(",", ":"))
