"""What servers have reported of their nodes, kept in the hub's database: what is known of each node, and its grants.

The store blocks for as long as the database takes, so the hub calls it in a thread, with a connection of its own.
A database in memory has only one connection, which is the hub's: there it is called in the hub's loop.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from jupyterhub.app import JupyterHub
from sqlalchemy import (
    Column,
    Connection,
    Delete,
    Row,
    Select,
    String,
    Table,
    Text,
    delete,
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session
from traitlets.log import get_logger

from jupyterhub_gpuspawner.cpulist import format_cpulist
from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.fleet.health import Grant, judge_grant
from jupyterhub_gpuspawner.fleet.node_record import (
    NodeRecord,
    View,
    forgotten,
    gpu_count,
    merged,
    record_from,
    without_name,
)
from jupyterhub_gpuspawner.fleet.reported import plausible
from jupyterhub_gpuspawner.hub.site.background import every
from jupyterhub_gpuspawner.hub.site.database import SECONDS, TABLES, connected, in_batches, is_in_memory
from jupyterhub_gpuspawner.hub.site.slurm_settings import NODE_RETENTION_DAYS
from jupyterhub_gpuspawner.hub.spawners.server import Server, servers_with_jobs, starts_slurm_jobs
from jupyterhub_gpuspawner.placement.topology import from_document
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot, NodeState
from jupyterhub_gpuspawner.wire.documents import PlacedGpu

T = TypeVar("T")
Statement = TypeVar("Statement", Select[Any], Delete)

GRANTS_AT_MOST = 20_000
"""Grants that are kept, the latest ones."""
DAY = 86400.0
NO_KWARGS: Mapping[str, Any] = MappingProxyType({})
_NODES = Table(
    "gpuspawner_fleet_nodes",
    TABLES,
    Column("cluster", String(255), primary_key=True),
    Column("node", String(255), primary_key=True),
    Column("seen_at", SECONDS, nullable=False),
    Column("record", Text, nullable=False),
)
_GRANTS = Table(
    "gpuspawner_fleet_grants",
    TABLES,
    Column("cluster", String(255), primary_key=True),
    Column("job_id", String(64), primary_key=True),
    Column("node", String(255), nullable=False),
    Column("at", SECONDS, nullable=False, index=True),
    Column("facts", Text, nullable=False),
)


class StoredFleet(NamedTuple):
    """What the database holds."""

    records: tuple[NodeRecord, ...] = ()
    grants: tuple[Grant, ...] = ()


class FleetStore:
    """What the tables of one database hold of one cluster, whose name is empty in a hub that names none."""

    def __init__(self, bind: Engine | Connection, cluster: str = "") -> None:
        self._engine = bind.engine
        self._cluster = cluster

    async def call(self, work: Callable[[], T]) -> T:
        """Call one of the methods below without blocking the hub's loop; raises what it raises."""
        if is_in_memory(self._engine.url):
            return work()
        return await asyncio.to_thread(work)

    def granted(self, job_id: str, since: float = 0.0) -> bool:
        """Whether the job's grant is recorded; raises SQLAlchemyError.

        ``since`` is when the job started: a cluster whose slurmctld has lost its state gives out the same ids again.
        """
        wanted = self._of(select(_GRANTS.c.job_id), job_id=job_id).where(_GRANTS.c.at >= since)
        with Session(self._engine) as session, session.begin():
            return session.execute(wanted).first() is not None

    def add(self, view: View, judge: Callable[[NodeRecord], Grant | None], *, late: bool = False) -> None:
        """Merge a view into its node's record, and add the grant that ``judge`` makes of it.

        A ``late`` view is not merged into the record of a node that is known. Raises SQLAlchemyError.
        """
        with Session(self._engine) as session, session.begin():
            old = next(_records(session.execute(self._of(select(_NODES), node=view.node))), None)
            new = merged(old, view) if view.topology.gpus and not (late and old is not None) else None
            record = new or old
            if new is not None:
                session.execute(self._of(delete(_NODES), node=view.node))
                session.execute(insert(_NODES).values(cluster=self._cluster, **_row(new)))
            grant = judge(record) if record is not None else None
            if grant is not None:
                session.execute(self._of(delete(_GRANTS), job_id=grant.job_id))
                row = {"job_id": grant.job_id, "node": grant.node, "at": grant.at, "facts": json.dumps(asdict(grant))}
                session.execute(insert(_GRANTS).values(cluster=self._cluster, **row))

    def read(self) -> StoredFleet:
        """Everything, the nodes by name and the grants by time; raises SQLAlchemyError."""
        with Session(self._engine) as session, session.begin():
            return _read(session, self._cluster)

    def forget_old(self, before: float) -> None:
        """Delete what was last seen before this time, and grants beyond :data:`GRANTS_AT_MOST`, of all clusters.

        All is read before anything is written: with SQLite the hub cannot write from the first change to the commit.
        Raises SQLAlchemyError.
        """
        with Session(self._engine) as session, session.begin():
            rows = session.execute(select(_NODES).where(_NODES.c.seen_at >= before)).all()
            records = [(row.cluster, record) for row in rows for record in _records([row])]
            shorter = [(name, left) for name, record in records if (left := forgotten(record, before)) != record]
            session.execute(delete(_NODES).where(_NODES.c.seen_at < before))
            for name, left in shorter:
                same = {"cluster": name, "node": left.node, "seen_at": left.seen_at}
                session.execute(update(_NODES).filter_by(**same).values(**_row(left)))
            first = select(_GRANTS.c.at).order_by(_GRANTS.c.at.desc()).offset(GRANTS_AT_MOST).limit(1)
            oldest = session.execute(first).scalar()
            session.execute(delete(_GRANTS).where(_GRANTS.c.at < before))
            if oldest is not None:
                session.execute(delete(_GRANTS).where(_GRANTS.c.at <= oldest))

    def forget(self, node: str) -> bool:
        """Delete what is known of a node; return whether anything was. Raises SQLAlchemyError."""
        with Session(self._engine) as session, session.begin():
            existed = session.execute(self._of(select(_NODES.c.node), node=node)).first() is not None
            session.execute(self._of(delete(_NODES), node=node))
            session.execute(self._of(delete(_GRANTS), node=node))
        return existed

    def take_over(self) -> None:
        """Have what was kept while the hub named no clusters belong to this one; raises SQLAlchemyError."""
        with Session(self._engine) as session, session.begin():
            for table, key in ((_NODES, _NODES.c.node), (_GRANTS, _GRANTS.c.job_id)):
                unnamed = set(session.execute(select(key).where(table.c.cluster == "")).scalars())
                own = set(session.execute(self._of(select(key))).scalars()) if unnamed else set()
                for keys in in_batches(unnamed - own):
                    rows = update(table).where(table.c.cluster == "", key.in_(keys))
                    session.execute(rows.values(cluster=self._cluster))

    def _of(self, statement: Statement, **key: str) -> Statement:
        """The statement about this cluster's rows, and about one of them."""
        return statement.filter_by(cluster=self._cluster, **key)


def read_database(db_url: str, db_kwargs: Mapping[str, Any] = NO_KWARGS, *, cluster: str = "") -> StoredFleet:
    """What a hub's database holds of a cluster, without a running hub and without changing it. Raises ConfigError."""
    with connected(db_url, db_kwargs, "the hub's database cannot be read") as connection:
        return _read(Session(connection), cluster) if _is_there(connection) else StoredFleet()


def forget_in_database(db_url: str, node: str, db_kwargs: Mapping[str, Any] = NO_KWARGS, *, cluster: str = "") -> bool:
    """Delete what is known of a node; return whether anything was. Raises ConfigError."""
    with connected(db_url, db_kwargs, "the hub's database cannot be changed") as connection:
        return _is_there(connection) and FleetStore(connection, cluster).forget(node)


def forget_reporter(connection: Connection, user: str) -> None:
    """Forget whose reports of nodes were this user's; raises ConfigError and SQLAlchemyError."""
    if not _is_there(connection):
        return
    for row in connection.execute(select(_NODES)).all():
        for record in _records([row]):
            left = without_name(record, user)
            if left != record:
                one = update(_NODES).filter_by(cluster=row.cluster, node=row.node)
                connection.execute(one.values(record=json.dumps(left.to_json())))


def _is_there(connection: Connection) -> bool:
    """Whether a hub has kept reports here; raises ConfigError for tables of before they had clusters."""
    tables = inspect(connection)
    if not tables.has_table(_NODES.name):
        return False
    if "cluster" not in {column["name"] for column in tables.get_columns(_NODES.name)}:
        raise ConfigError(
            "the tables of nodes are those of an earlier version of jupyterhub-gpuspawner.",
            where="c.JupyterHub.db_url",
            hint="Start the hub with this version: it brings them up to date.",
        )
    return True


def _read(session: Session, cluster: str) -> StoredFleet:
    records = _records(session.execute(select(_NODES).filter_by(cluster=cluster).order_by(_NODES.c.node)))
    grants = _grants(session.execute(select(_GRANTS).filter_by(cluster=cluster).order_by(_GRANTS.c.at)))
    return StoredFleet(tuple(records), tuple(grants))


def _row(record: NodeRecord) -> dict[str, object]:
    return {"node": record.node, "seen_at": record.seen_at, "record": json.dumps(record.to_json())}


def _records(rows: Iterable[Row[tuple[object, ...]]]) -> Iterator[NodeRecord]:
    for row in rows:
        try:
            yield record_from(json.loads(row.record))
        except (ValueError, KeyError, TypeError) as error:  # written by another version
            get_logger().warning("What is known of node %s cannot be read and is not shown: %s", row.node, error)


def _grants(rows: Iterable[Row[tuple[object, ...]]]) -> Iterator[Grant]:
    for row in rows:
        try:
            yield Grant(**json.loads(row.facts))
        except (ValueError, TypeError):
            continue


# What the hub takes up. A server's placement is compared with Slurm's own record before it is shown; only then is it
# taken up here. The GPUs that were free when the job started are those that Slurm reports as free shortly afterwards,
# and the job's own. A job that started in between counts as if it had been there before, so a grant is judged rather
# too well than too badly.

POLL_SECONDS = 10.0
"""Seconds between two looks for new placements."""
AGE = 5.0
"""Seconds that Slurm's answer about the nodes may be old."""
LATE = 900.0
"""Seconds after its job's start from which a report is late: the hub was down, or has just learned to keep reports."""
SWEEP = 3600.0
"""Seconds between two deletions of what is too old."""


@dataclass(frozen=True)
class Report:
    """A server's report of its node, with what Slurm says of that node."""

    view: View
    job_id: str
    gpus: tuple[PlacedGpu, ...]
    aligned: bool | None
    busy: frozenset[int] | None
    """Slurm's indices of the GPUs in use when the job started, its own among them; None if they are not known."""
    late: bool = False
    """The job started long ago, so other reports of its node may be newer."""

    def judge(self, record: NodeRecord) -> Grant | None:
        """The grant, compared with what was free as far as that is known; None for a job without GPUs."""
        if not self.gpus:
            return None
        grant = Grant(self.job_id, self.view.node, self.view.at, len(self.gpus), self.aligned)
        topology = record.topology
        keys = {gpu.uuid or gpu.pci: position for position, gpu in enumerate(topology.gpus)}
        own = [keys.get(gpu.uuid or gpu.pci) for gpu in self.gpus]
        granted = [position for position in own if position is not None]
        whole = all(gpu.mig is None for gpu in topology.gpus) and not record.gone
        if self.busy is None or not record.complete or not whole or len(granted) != len(self.gpus):
            return grant
        # Slurm numbers GPUs in the order of gres.conf, which should be that of PCI bus ids, as in the record
        free = {position for position in range(len(topology.gpus)) if position not in self.busy}
        if not set(granted) <= self.busy:  # the answer is older than the job, or gres.conf has another order
            return grant
        return judge_grant(topology, granted, free, aligned=self.aligned, grant=grant)


def report_of(server: Server, snapshot: ClusterSnapshot | None) -> Report | None:
    """The report of a server that has been placed; None if it says nothing of its node."""
    placement = server.placement
    if placement is None or not placement.node or server.topology is None:
        return None
    try:
        topology = plausible(from_document(server.topology))
    except ValueError:
        return None
    state = snapshot.node_by_name.get(placement.node) if snapshot is not None else None
    job = snapshot.job_by_id.get(server.job_id) if snapshot is not None else None
    now = time.time()
    started_at = server.job.starts_at if server.job is not None else None
    late = started_at is not None and now - started_at > LATE
    held = gpu_count(job.gpus) if job is not None and not job.gpus_unknown else 0
    granted = max(held, len(placement.gpus))
    view = View(
        node=placement.node,
        at=now,
        topology=topology,
        granted=granted,
        gres="" if state is None else ",".join(map(_with_sockets, state.gres)),
        user=server.user,
    )
    complete = not late and job is not None and placement.node in job.nodes and held == len(placement.gpus)
    busy = _busy(state) if state is not None and complete else None
    return Report(view, server.job_id, placement.gpus, placement.aligned, busy, late)


def _with_sockets(gres: Any) -> str:
    """As scontrol prints it: ``gpu:a100:8(S:0-1)``."""
    return f"{gres}(S:{format_cpulist(gres.sockets)})" if gres.sockets else str(gres)


def _busy(state: NodeState) -> frozenset[int] | None:
    """Slurm's indices of a node's GPUs in use; None where it counts them, shares them or numbers several types."""
    kinds = [gres for gres in state.gres if gres.name == "gpu"]
    used = [gres for gres in state.gres_used if gres.name in ("gpu", "shard", "mps") and gres.count]
    if len(kinds) != 1 or any(gres.name != "gpu" or len(gres.indices) != gres.count for gres in used):
        return None
    return frozenset(index for gres in used for index in gres.indices)


class FleetUpkeep:
    """Takes up new placements, and deletes what is too old."""

    def __init__(self, app: JupyterHub) -> None:
        self._app = app
        self._done: set[tuple[str, str]] = set()
        """The jobs, by cluster and id, whose reports are kept."""

    async def run_once(self) -> None:
        """Keep the reports of servers that have been placed since the last look; raises SQLAlchemyError."""
        servers = [server for server in servers_with_jobs(self._app.users.values()) if server.placement is not None]
        self._done &= {(server.cluster, server.job_id) for server in servers}
        site = self._app.spawner_class(config=self._app.config, hub=self._app.hub)
        for name, connection in site.connections().items():
            new = [server for server in servers if server.cluster == name and (name, server.job_id) not in self._done]
            store = FleetStore(self._app.db.get_bind(), name)
            snapshot = await connection.cluster.recent(AGE) if new else None
            for server in new:
                await self._keep_report(store, server, snapshot)

    async def take_over(self) -> None:
        """In a hub that names clusters since its last start, what is known of nodes is of the first of them."""
        first = self._app.spawner_class(config=self._app.config, hub=self._app.hub).first_cluster
        if first:
            store = FleetStore(self._app.db.get_bind(), first)
            await store.call(store.take_over)

    async def forget_old(self) -> None:
        """Delete what is too old; raises SQLAlchemyError."""
        store = FleetStore(self._app.db.get_bind())
        await store.call(partial(store.forget_old, time.time() - NODE_RETENTION_DAYS * DAY))

    async def _keep_report(self, store: FleetStore, server: Server, snapshot: ClusterSnapshot | None) -> None:
        since = (server.job.starts_at if server.job is not None else None) or 0.0
        if not await store.call(partial(store.granted, server.job_id, since)):  # it is after a restart of the hub
            report = await asyncio.to_thread(report_of, server, snapshot)
            if report is not None:
                await store.call(partial(store.add, report.view, report.judge, late=report.late))
        self._done.add((server.cluster, server.job_id))


def begin_fleet(app: JupyterHub) -> None:
    """Begin to keep reports."""
    if starts_slurm_jobs(app.spawner_class):
        upkeep = FleetUpkeep(app)
        every(app, 0, upkeep.take_over, "Taking over the reports of nodes of a hub without names of clusters")
        every(app, POLL_SECONDS, upkeep.run_once, "Keeping the reports of nodes")
        every(app, SWEEP, upkeep.forget_old, "The deletion of old reports of nodes")
