"""The administrators' map of the cluster: ``/hub/gpuspawner/cluster``, and the same as JSON."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from jupyterhub.apihandlers import APIHandler
from jupyterhub.handlers.base import BaseHandler
from jupyterhub.scopes import Scope, needs_scope
from markupsafe import Markup
from tornado import web

from jupyterhub_gpuspawner.cluster.cluster_map import ClusterMap, ServedJob, survey
from jupyterhub_gpuspawner.fleet.health import FleetHealth, health
from jupyterhub_gpuspawner.hub.cluster.fleet import FleetStore
from jupyterhub_gpuspawner.hub.cluster.rows import Rights, health_section, sections, summary
from jupyterhub_gpuspawner.hub.extensions import extensions_of
from jupyterhub_gpuspawner.hub.records.keeper import FAILING_NODES
from jupyterhub_gpuspawner.hub.server.card import in_a_line
from jupyterhub_gpuspawner.hub.site.connection import Cluster
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
    """What is known about a cluster for one request."""

    cluster: str
    """Its name; empty in a hub that names none."""
    cluster_map: ClusterMap | None
    """None where Slurm has not responded yet."""
    silent: bool = False
    has_holders: bool = True
    partitions: tuple[str, ...] = ()
    """The names of all partitions, whatever the filter."""
    use: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """How much servers, as pairs of user and name, use their GPUs, in words."""


def check_scopes(handler: BaseHandler) -> None:
    """Raise 403 unless the reader has all of :data:`SCOPES`, unfiltered."""
    if not may_see_cluster(handler.parsed_scopes):
        raise web.HTTPError(403, f"The map of the cluster needs the scopes {', '.join(SCOPES)} for all users.")


def filters_of(handler: BaseHandler) -> dict[str, str]:
    """The filter from the query."""
    return {name: handler.get_argument(name, "")[:WORDS_AT_MOST] for name in ("text", "partition", "use")}


def connections_of(handler: BaseHandler) -> dict[str, Cluster]:
    """The hub's connection to each cluster by its name, which is empty in a hub that names none.

    Raises 404 in a hub without Slurm jobs.
    """
    spawner_class = handler.settings["spawner_class"]
    if not starts_slurm_jobs(spawner_class):
        raise web.HTTPError(404, "This hub does not start Slurm jobs.")
    site = spawner_class(config=handler.settings["config"], hub=handler.settings["hub"])
    connections: dict[str, Cluster] = site.connections()
    return connections


def requested_connection(handler: BaseHandler) -> Cluster:
    """The connection to the cluster that the query names, or to the first one; raises 404."""
    connections = connections_of(handler)
    name = handler.get_argument("cluster", "") or next(iter(connections))
    if name not in connections:
        names = ", ".join(filter(None, connections)) or "none"
        raise web.HTTPError(404, f"There is no such cluster. The clusters with a name are: {names}.")
    return connections[name]


async def sight_of(handler: BaseHandler, connection: Cluster) -> Sight:
    """The current or last known map of a cluster, filtered."""
    snapshot = await connection.cluster.recent(AGE)
    if snapshot is None:
        return Sight(connection.name, None, silent=connection.silent)
    # not older than the snapshot
    allocations = await connection.allocations.recent(max(0.0, time.time() - snapshot.taken_at))
    servers = servers_with_jobs(handler.settings["users"].values())
    hub_servers = [server for server in servers if server.cluster == connection.name]
    filters, jobs = filters_of(handler), list(served_jobs(hub_servers))
    # takes some hundredths of a second for a thousand nodes: not in the event loop
    cluster_map = await asyncio.to_thread(lambda: survey(snapshot, allocations or {}, jobs).only(**filters))
    return Sight(
        connection.name,
        cluster_map,
        silent=connection.silent,
        has_holders=allocations is not None,
        partitions=tuple(partition.name for partition in snapshot.partitions),
        use={(server.user, server.name): line for server in hub_servers if (line := in_a_line(server.usage))},
    )


async def health_of(handler: BaseHandler, connection: Cluster) -> FleetHealth:
    """The health of a cluster's nodes, by their reports and Slurm's configuration; raises SQLAlchemyError."""
    store = FleetStore(handler.db.get_bind(), connection.name)
    snapshot = await connection.cluster.recent(AGE)
    nodes = snapshot.nodes if snapshot is not None and not connection.silent else None
    gres = {node.name: node.gres for node in nodes} if nodes is not None else None

    def read() -> FleetHealth:
        stored = store.read()
        return health(stored.records, stored.grants, gres)

    return await store.call(read)


def served_jobs(servers: Iterable[Server]) -> Iterator[ServedJob]:
    """The Slurm jobs of these servers, with the node and GPUs that each has got."""
    for server in servers:
        if server.job_id:
            placement = server.placement or PlacementDocument()
            gpus = tuple(gpu.index for gpu in placement.gpus)
            yield ServedJob(server.job_id, server.user, server.name, placement.node, gpus)


class ClusterPage(BaseHandler):
    """The map as an HTML page."""

    @web.authenticated
    @needs_scope("admin-ui")
    async def get(self) -> None:
        """A section for each cluster, or the one that ``cluster`` names.

        Filtered by ``text``, ``partition`` and ``use``; with the nodes' health below, unless ``part`` is ``map``.
        """
        check_scopes(self)
        filters, clusters = filters_of(self), connections_of(self)
        cluster = self.get_argument("cluster", "")
        connections = [requested_connection(self)] if cluster else list(clusters.values())
        sights = await asyncio.gather(*(sight_of(self, connection) for connection in connections))
        maps = [await self._of_sight(sight, filters, several=len(clusters) > 1) for sight in sights]
        healths = {}
        if self.get_argument("part", "") != "map":  # the page's script fetches the map alone
            of_clusters = await asyncio.gather(*(health_of(self, connection) for connection in connections))
            for connection, of_nodes in zip(connections, of_clusters, strict=True):
                healths[connection.name if len(clusters) > 1 else ""] = health_section(of_nodes, time.time())
        self.finish(
            await self.render_template(
                "cluster.html",
                maps=maps,
                clusters=tuple(clusters),
                partitions=tuple(dict.fromkeys(name for sight in sights for name in sight.partitions)),
                filters={**filters, "cluster": cluster},
                healths=healths,
            )
        )

    async def _of_sight(self, sight: Sight, filters: Mapping[str, str], *, several: bool) -> dict[str, Any]:
        """One cluster's section of the map, for the page's template; with its name where there are several."""
        name = sight.cluster if several else ""
        cluster_map, namespace = sight.cluster_map, self.template_namespace
        waits = extensions_of(self.settings).waits(sight.cluster, queued=True)
        failing = FAILING_NODES[sight.cluster]
        if cluster_map is None:
            return {"name": name, "sight": sight}
        rights = Rights(log=self._servers_in("access:servers"), stop=self._servers_in("delete:servers"), use=sight.use)
        template = self.get_template("cluster_rows.html", sync=True)

        def rows() -> Markup:
            parts = sections(
                cluster_map,
                now=time.time(),
                rights=rights,
                waits=waits,
                failing=failing,
                filtered=any(filters.values()),
            )
            return Markup(template.render(name=name, sections=parts, filters=filters, **namespace))  # noqa: S704 - the template has escaped its texts

        moment = datetime.fromtimestamp(cluster_map.taken_at).astimezone()
        in_words = {"rows": await asyncio.to_thread(rows), "summary": summary(cluster_map), "taken": moment}
        return {"name": name, "sight": sight, **in_words}

    def _servers_in(self, scope: str) -> frozenset[tuple[str, str]]:
        """The active servers for which the reader has this scope; looks up rows only where the scope has a filter."""
        allowed = self.get_scope_filter(scope)
        users = self.settings["users"].values()
        active = [(user, spawner) for user in users for spawner in list(user.spawners.values()) if spawner.active]
        return frozenset(
            (user.name, running.name) for user, running in active if allowed(running.orm_spawner, "server")
        )


class FleetHandler(APIHandler):
    """Nodes that differ from their siblings or contradict Slurm's configuration, and how well Slurm placed jobs there.

    For admins.
    """

    @needs_scope("admin-ui")
    async def get(self) -> None:
        """The fleet document, version 1, of the first cluster or of the one that `cluster` names."""
        check_scopes(self)
        self.write((await health_of(self, requested_connection(self))).to_json())


class ClusterHandler(APIHandler):
    """Partitions and nodes of the cluster: each GPU free, in use and by whom, or out of service and why; for admins."""

    @needs_scope("admin-ui")
    async def get(self) -> None:
        """The map, version 1, of `cluster` or the first, by `text`, `partition` and `use`; 503 until Slurm answers."""
        check_scopes(self)
        sight = await sight_of(self, requested_connection(self))
        cluster_map = sight.cluster_map
        if cluster_map is None:
            raise web.HTTPError(503, "Slurm has not responded to this hub yet.")
        document = {
            **({"cluster": sight.cluster, "clusters": list(connections_of(self))} if sight.cluster else {}),
            "age_s": round(max(0.0, time.time() - cluster_map.taken_at), 1),
            "silent": sight.silent,
            "holders_known": sight.has_holders,
            "failing_nodes": [node.to_json() for node in FAILING_NODES[sight.cluster].values()],
        }
        # of a thousand nodes it takes some hundredths of a second: not in the event loop
        self.write(
            await asyncio.to_thread(lambda: json.dumps({**cluster_map.to_json(), **document}, separators=(",", ":")))
        )
