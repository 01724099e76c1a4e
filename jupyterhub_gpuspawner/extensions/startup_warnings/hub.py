"""Writes the warnings when the hub starts."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Collection
from typing import Any

from jupyterhub import orm
from jupyterhub.app import JupyterHub
from sqlalchemy.orm import Session

from jupyterhub_gpuspawner.hub.extension import HubExtension
from jupyterhub_gpuspawner.hub.extensions import HubExtensions
from jupyterhub_gpuspawner.hub.lost_jobs import parts_of_state
from jupyterhub_gpuspawner.hub.site.background import every
from jupyterhub_gpuspawner.hub.site.database import NOT_CACHED
from jupyterhub_gpuspawner.hub.site.state import state_of
from jupyterhub_gpuspawner.hub.spawners.server import site_of
from jupyterhub_gpuspawner.site.configured import (
    CLEANUP,
    KEEP_SERVERS,
    ends_servers,
    exposed_database,
    foreign_encoding,
    refused_names,
)
from jupyterhub_gpuspawner.site.page_templates import lost_parts
from jupyterhub_gpuspawner.words import counted, some


def log_warnings(app: JupyterHub) -> None:
    """One line for each."""
    encoding = foreign_encoding(sys.getfilesystemencoding())
    lost = lost_parts(app.template_paths, state_of(app.tornado_settings).of(HubExtensions).templates)
    for text in filter(None, (encoding, exposed_database(app.db_url), *refused_names(app.config), *lost)):
        app.log.warning("gpuspawner: %s", text)
    if ends := ends_servers(app.config):
        app.log.warning("gpuspawner: %s: %s %s", CLEANUP, ends, KEEP_SERVERS)


def servers_on_removed(db: Session, clusters: Collection[str]) -> dict[str, list[str]]:
    """Whose servers run or start on each cluster that is none of these, a name for each; raises SQLAlchemyError."""
    query = db.query(orm.User.name, orm.Spawner.state).join(orm.User, orm.User.id == orm.Spawner.user_id)
    on_removed: dict[str, list[str]] = defaultdict(list)
    for user, state in query.execution_options(**NOT_CACHED).filter(orm.Spawner.server_id.isnot(None)):
        cluster = _cluster_in(state)
        if cluster and cluster not in clusters:
            on_removed[cluster].append(user)
    return dict(on_removed)


def _cluster_in(state: Any) -> str:
    """The name of the cluster in a spawner's stored state; empty where there is none."""
    clusters = (part["cluster"] for part in parts_of_state(state) if isinstance(part.get("cluster"), dict))
    return next((str(cluster.get("name") or "") for cluster in clusters), "")


def begin_removed(app: JupyterHub) -> None:
    """Name each cluster that the configuration has no longer, and on which servers still run."""
    site = site_of(app.tornado_settings)
    if site is None:
        return
    clusters = site.clusters

    def look() -> None:
        for name, people in servers_on_removed(app.db, clusters).items():
            app.log.warning(
                "The cluster %s is no longer in c.GPUSlurmSpawner.clusters. What runs there (%s: %s) is kept, and "
                "watched and stopped by the settings with which it was started, until it ends or somebody stops it.",
                *(name, counted(len(people), "server"), some(sorted(set(people)))),
            )

    every(app, 0, look, "The search for servers on clusters that were removed")


HUB = HubExtension(begin=(log_warnings, begin_removed))
