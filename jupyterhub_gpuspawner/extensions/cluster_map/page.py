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
from jupyterhub.scopes import needs_scope
from markupsafe import Markup
from tornado import web

from jupyterhub_gpuspawner.extensions.cluster_map.jobs import Rights
from jupyterhub_gpuspawner.extensions.cluster_map.rows import Glance, at_a_glance, in_line, sections, summary
from jupyterhub_gpuspawner.extensions.cluster_map.survey import Allocations, ClusterMap, ServedJob, survey
from jupyterhub_gpuspawner.hub.extensions import extensions_of
from jupyterhub_gpuspawner.hub.site.connection import Cluster, SharedView
from jupyterhub_gpuspawner.hub.spawners.server import Server, servers_with_jobs
from jupyterhub_gpuspawner.hub.web.clusters import (
    check_scopes,
    clusters_of,
    may_see_cluster,
    requested_cluster,
    snapshot_of,
)
from jupyterhub_gpuspawner.wire.documents import PlacementDocument

WORDS_AT_MOST = 200
"""Characters at most of each part of a filter."""


@dataclass(frozen=True)
class ClusterMapView:
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


def filters_of(handler: BaseHandler) -> dict[str, str]:
    """The filter from the query."""
    return {name: handler.get_argument(name, "")[:WORDS_AT_MOST] for name in ("text", "partition", "use")}


async def sight_of(handler: BaseHandler, cluster: Cluster) -> ClusterMapView:
    """The current or last known map of a cluster, filtered."""
    snapshot = await snapshot_of(cluster)
    if snapshot is None:
        return ClusterMapView(cluster.name, None, silent=cluster.silent)
    # not older than the snapshot
    allocations = await cluster.of(_allocations).recent(max(0.0, time.time() - snapshot.taken_at))
    servers = servers_with_jobs(handler.settings["users"].values())
    hub_servers = [server for server in servers if server.cluster == cluster.name]
    filters, jobs = filters_of(handler), list(served_jobs(hub_servers))
    # takes some hundredths of a second for a thousand nodes: not in the event loop
    cluster_map = await asyncio.to_thread(lambda: survey(snapshot, allocations or {}, jobs).only(**filters))
    return ClusterMapView(
        cluster.name,
        cluster_map,
        silent=cluster.silent,
        has_holders=allocations is not None,
        partitions=tuple(partition.name for partition in snapshot.partitions),
        use={(server.user, server.name): line for server in hub_servers if (line := server.brief)},
    )


def _allocations(cluster: Cluster) -> SharedView[Allocations]:
    """What each job was allocated on its nodes, which all readers of the map share."""
    return SharedView(cluster.client.allocations, log=cluster.watcher.log)


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
    async def get(self) -> None:
        """A section for each cluster, or the one that ``cluster`` names; a few words for who may not see it, with 403.

        Filtered by ``text``, ``partition`` and ``use``; below it what extensions say, unless ``part`` is ``map``.
        """
        if not may_see_cluster(self.parsed_scopes):
            self.set_status(403)
            self.finish(await self.render_template("cluster_closed.html"))
            return
        filters, clusters = filters_of(self), clusters_of(self)
        named = self.get_argument("cluster", "")
        shown = [requested_cluster(self)] if named else list(clusters.values())
        sights = await asyncio.gather(*(sight_of(self, cluster) for cluster in shown))
        maps = [await self._of_sight(sight, filters, several=len(clusters) > 1) for sight in sights]
        below: list[Markup] = []
        if self.get_argument("part", "") != "map":  # the page's script fetches the map alone
            extensions = extensions_of(self.settings)
            for cluster in shown:
                below += await extensions.below_map(self, cluster, cluster.name if len(clusters) > 1 else "")
        self.finish(
            await self.render_template(
                "cluster.html",
                maps=maps,
                clusters=tuple(clusters),
                partitions=tuple(dict.fromkeys(name for sight in sights for name in sight.partitions)),
                filters={**filters, "cluster": named},
                below=below,
            )
        )

    async def _of_sight(self, sight: ClusterMapView, filters: Mapping[str, str], *, several: bool) -> dict[str, Any]:
        """One cluster's section of the map, for the page's template; with its name where there are several."""
        name = sight.cluster if several else ""
        cluster_map, namespace = sight.cluster_map, self.template_namespace
        extensions = extensions_of(self.settings)
        waits, marks = extensions.waits(sight.cluster, queued=True), extensions.marks_of(sight.cluster)
        if cluster_map is None:
            return {"name": name, "sight": sight}
        rights = Rights(log=self._servers_in("access:servers"), stop=self._servers_in("delete:servers"), use=sight.use)
        template = self.get_template("cluster_rows.html", sync=True)

        def rows() -> tuple[Markup, Glance]:
            now, filtered = time.time(), any(filters.values())
            parts = sections(cluster_map, now=now, rights=rights, marks=marks, filtered=filtered)
            line = in_line(cluster_map, now=now, rights=rights, waits=waits)
            html = template.render(
                name=name,
                sections=parts,
                line=line,
                more_in_line=len(cluster_map.waiting_ids) - len(line),
                filters=filters,
                **namespace,
            )
            return Markup(html), at_a_glance(cluster_map, parts)  # noqa: S704 - the template has escaped its texts

        moment = datetime.fromtimestamp(cluster_map.taken_at).astimezone()
        html, glance = await asyncio.to_thread(rows)
        in_words = {"rows": html, "glance": glance, "summary": summary(cluster_map), "taken": moment}
        return {"name": name, "sight": sight, **in_words}

    def _servers_in(self, scope: str) -> frozenset[tuple[str, str]]:
        """The active servers for which the reader has this scope; looks up rows only where the scope has a filter."""
        allowed = self.get_scope_filter(scope)
        users = self.settings["users"].values()
        active = [(user, spawner) for user in users for spawner in list(user.spawners.values()) if spawner.active]
        return frozenset(
            (user.name, running.name) for user, running in active if allowed(running.orm_spawner, "server")
        )


class ClusterHandler(APIHandler):
    """Partitions and nodes of the cluster: each GPU free, in use and by whom, or out of service and why; for admins."""

    @needs_scope("admin-ui")
    async def get(self) -> None:
        """The map, version 1, of `cluster` or the first, by `text`, `partition` and `use`; 503 until Slurm answers."""
        check_scopes(self)
        sight = await sight_of(self, requested_cluster(self))
        cluster_map = sight.cluster_map
        if cluster_map is None:
            raise web.HTTPError(503, "Slurm has not responded to this hub yet.")
        document = {
            **({"cluster": sight.cluster, "clusters": list(clusters_of(self))} if sight.cluster else {}),
            "age_s": round(max(0.0, time.time() - cluster_map.taken_at), 1),
            "silent": sight.silent,
            "holders_known": sight.has_holders,
            **{mark.name: list(mark.document) for mark in extensions_of(self.settings).marks_of(sight.cluster)},
        }
        # of a thousand nodes it takes some hundredths of a second: not in the event loop
        self.write(
            await asyncio.to_thread(lambda: json.dumps({**cluster_map.to_json(), **document}, separators=(",", ":")))
        )
