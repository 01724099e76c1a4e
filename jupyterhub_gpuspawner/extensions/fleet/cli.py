"""``gpuspawner fleet``: which nodes differ from their siblings, and how well Slurm places jobs on them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import click

from jupyterhub_gpuspawner.cli.options import CONFIG, JSON
from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError
from jupyterhub_gpuspawner.extensions.fleet.gres_conf import GresConf
from jupyterhub_gpuspawner.extensions.fleet.gres_conf import gres_conf as gres_conf_of
from jupyterhub_gpuspawner.extensions.fleet.health import PARTIAL, FleetHealth, health
from jupyterhub_gpuspawner.extensions.fleet.replay import replay as replay_of
from jupyterhub_gpuspawner.extensions.fleet.store import StoredFleet, forget_in_database, read_database
from jupyterhub_gpuspawner.extensions.records.cli import file_of
from jupyterhub_gpuspawner.extensions.records.record import on_clusters
from jupyterhub_gpuspawner.extensions.records.store import SessionStore
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.site.configuration import load_site
from jupyterhub_gpuspawner.site.database import DEFAULT
from jupyterhub_gpuspawner.units import Gres
from jupyterhub_gpuspawner.words import counted

MONTH = 30 * 86400.0


@click.command()
@CONFIG
@JSON
@click.option("--gres-conf", metavar="NODE", help="Print lines for gres.conf from what is known of this node.")
@click.option(
    "--numa-node-as-socket", is_flag=True, help="With --gres-conf: for slurmd with the parameter of that name."
)
@click.option("--forget", metavar="NODE", help="Forget what is known of this node, for example after a repair.")
@click.option(
    "--cluster", metavar="NAME", help="Only this cluster, if the hub has several; with --json the first one by default."
)
def fleet(
    *,
    config: Path,
    as_json: bool,
    gres_conf: str | None,
    numa_node_as_socket: bool,
    forget: str | None,
    cluster: str | None,
) -> None:
    """Show which nodes differ from their siblings, and how well Slurm places jobs on them.

    The hub keeps what its servers report of their nodes. This reads its database, without a running hub, and asks Slurm
    for the configured GPUs; where Slurm does not answer, those of the last reports count. Nodes are compared with those
    of their own cluster.
    """
    if numa_node_as_socket and gres_conf is None:
        raise click.UsageError("--numa-node-as-socket belongs to --gres-conf.")
    if sum((as_json, gres_conf is not None, forget is not None)) > 1:
        raise click.UsageError("Use only one of --json, --gres-conf and --forget.")
    site = load_site(config)
    hub = site.config.JupyterHub
    db_url, db_kwargs = str(hub.get("db_url", DEFAULT)), hub.get("db_kwargs", {})
    spawner = site.spawner("nobody")
    if cluster is not None:
        spawner.use_cluster(cluster)
    several = cluster is None and len(spawner.clusters) > 1
    if several and (forget is not None or gres_conf is not None):
        raise click.UsageError(
            f"Nodes of two clusters may have one name: add --cluster {' or '.join(spawner.clusters)}."
        )
    if forget is not None:
        if not forget_in_database(db_url, forget, db_kwargs, cluster=spawner.cluster):
            raise ConfigError(f"nothing is known of node {forget!r}.")
        click.echo(f"{forget}: forgotten.")
        return
    if several and not as_json:
        for name in spawner.clusters:
            spawner.use_cluster(name)
            stored = read_database(db_url, db_kwargs, cluster=name)
            report = health(stored.records, stored.grants, asyncio.run(_configured(spawner)))
            click.echo("\n".join((f"{name}:", *listing(report))))
        return
    stored = read_database(db_url, db_kwargs, cluster=spawner.cluster)
    if gres_conf is not None:
        lines = _lines(stored, gres_conf, numa_node_as_socket=numa_node_as_socket)
        gain = asyncio.run(_gain(spawner, config, gres_conf, lines))
        click.echo(replace(lines, notes=(*gain, *lines.notes)).text(gres_conf), nl=False)
        return
    report = health(stored.records, stored.grants, asyncio.run(_configured(spawner)))
    click.echo(json.dumps(report.to_json(), indent=2) if as_json else "\n".join(listing(report)))


def _lines(stored: StoredFleet, node: str, *, numa_node_as_socket: bool) -> GresConf:
    """The lines for a node; raises ConfigError if not all of its GPUs have been seen together."""
    record = next((record for record in stored.records if record.node == node), None)
    if record is None:
        raise ConfigError(f"nothing is known of node {node!r}: no server has reported from it.")
    notes = [f"From what {counted(record.agreeing, 'job')} reported; reports are made by their users' processes."]
    if not record.complete:
        notes.append(f"{PARTIAL} Run gpuspawner topology --gres-conf on the node.")
    if gone := [record.topology.gpus[position].pci for position in record.gone]:
        notes.append(f"These GPUs are missing at the moment: {', '.join(gone)}.")
    lines = gres_conf_of(record.topology, numa_node_as_socket=numa_node_as_socket)
    return replace(lines, notes=(*notes, *lines.notes))


async def _gain(spawner: GPUSlurmSpawner, config: Path, node: str, lines: GresConf) -> list[str]:
    """What the lines would have been worth in the last month; nothing where that is not known, or cannot be asked."""
    try:
        with closing(SessionStore(file_of(config, None), create=False)) as store:
            sessions = on_clusters(store.sessions(since=time.time() - MONTH), spawner.first_cluster)
        records = [record for record in sessions if record.cluster == spawner.cluster]
        result = await replay_of(
            spawner.connection().client.installation, records, node, lines.text(), spawner.gpus_option
        )
    except GPUSpawnerError:
        return []
    return [str(result)] if result is not None else []


async def _configured(spawner: GPUSlurmSpawner) -> Mapping[str, Sequence[Gres]] | None:
    """The generic resources of each node as Slurm has them now; None if it does not answer."""
    try:
        snapshot = await spawner.connection().client.snapshot()
    except GPUSpawnerError as error:
        on = f" of {spawner.cluster}" if len(spawner.clusters) > 1 else ""
        click.echo(f"gpuspawner: Slurm's configuration{on} is that of the last reports: {error}", err=True)
        return None
    return {node.name: node.gres for node in snapshot.nodes}


def listing(health: FleetHealth) -> list[str]:
    """The health in lines: each node with its findings, and the grants of all."""
    if not health.nodes:
        return ["No server has reported from a node with GPUs yet."]
    lines = []
    for node in health.nodes:
        shape = str(node.shape) or "GPUs"
        siblings = f"{node.siblings} sibling{'s' * (node.siblings != 1)}"
        state = "DIFFERS" if node.ill else "perhaps" if node.perhaps_ill else "ok     "
        simulated = ", simulated" if node.simulated else ""
        lines.append(f"{state} {node.node}: {shape}, {siblings}, {node.seen}{simulated}")
        texts = [*map(str, (*node.differences, *node.contradictions)), *node.doubts, f"grants: {node.grants}"]
        texts += [node.gains] if node.gains else []
        lines += [f"        {line}" for line in texts]
    return [*lines, f"All grants: {health.grants}"]
