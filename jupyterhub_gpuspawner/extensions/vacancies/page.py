"""``/hub/gpuspawner/free-gpus`` and the same as JSON, for everybody, where the hub is set to; nobody need sign in."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

from jupyterhub.apihandlers import APIHandler
from jupyterhub.handlers.base import BaseHandler
from tornado import web
from traitlets import Bool
from traitlets.config import Configurable

from jupyterhub_gpuspawner.extensions.vacancies.counts import FreeGPUsDocument, GPUCount, count_gpus
from jupyterhub_gpuspawner.hub.site.connection import Cluster, SharedView
from jupyterhub_gpuspawner.hub.web.clusters import clusters_of, snapshot_of

AGE = 60
"""Seconds for which one count is used for all readers, and for which a web site may keep it."""


class FreeGPUs(Configurable):
    """Whether everybody sees how many GPUs of each kind are free."""

    enabled = Bool(
        False,
        config=True,
        help="""Show how many GPUs of each kind are free, in use and out of service at `/hub/gpuspawner/free-gpus`, and
        as JSON at `/hub/api/gpuspawner/free-gpus`, to everybody who reaches the hub, signed in or not. No people, nodes
        or reasons are named. A cluster whose slurm.conf has `PrivateData` (other than `cloud`) is left out.""",
    )


def _counts(cluster: Cluster) -> SharedView[tuple[GPUCount, ...] | None]:
    """The GPUs of a cluster, which all readers share."""

    async def count() -> tuple[GPUCount, ...] | None:
        snapshot = await snapshot_of(cluster)
        return None if snapshot is None else await asyncio.to_thread(count_gpus, cluster.name, snapshot)

    return SharedView(count, log=cluster.watcher.log)


async def document_of(handler: BaseHandler) -> FreeGPUsDocument:
    """What everybody may see; raises 404 where that is nothing."""
    if not FreeGPUs(config=handler.config).enabled:
        raise web.HTTPError(404)
    clusters = clusters_of(handler).values()
    counts = await asyncio.gather(*(cluster.of(_counts).recent(AGE) for cluster in clusters))
    handler.set_header("Cache-Control", f"public, max-age={AGE}")
    return FreeGPUsDocument(tuple(kind for kinds in counts if kinds for kind in kinds))


class FreeGPUsPage(BaseHandler):
    """What is free, as a page."""

    async def get(self) -> None:
        """A table, or a sentence where nothing may be shown; 404 where the hub is not set to."""
        gpus = (await document_of(self)).gpus
        several = len({kind.cluster for kind in gpus}) > 1
        as_of = min((kind.as_of for kind in gpus), default="")
        self.finish(await self.render_template("vacancies.html", gpus=gpus, several=several, as_of=as_of))


class FreeGPUsHandler(APIHandler):
    """How many GPUs of each kind are free, for a web site: for everybody, where the hub is set to."""

    async def get(self) -> None:
        """The document of free GPUs, version 1; 404 where the hub is not set to show it."""
        document = await document_of(self)
        self.set_header("Access-Control-Allow-Origin", "*")  # it names nobody, and no sign-in is sent with it
        self.write(asdict(document))
