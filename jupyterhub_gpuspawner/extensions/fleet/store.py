"""What servers have reported of their nodes, kept in the hub's database: what is known of each node, and its grants.

The store blocks for as long as the database takes, so the hub calls it in a thread, with a connection of its own.
A database in memory has only one connection, which is the hub's: there it is called in the hub's loop.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from alembic.operations import Operations
from sqlalchemy import (
    Column,
    Connection,
    Delete,
    MetaData,
    Row,
    Select,
    String,
    Table,
    Text,
    delete,
    insert,
    inspect,
    literal,
    select,
    update,
)
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session
from traitlets.log import get_logger

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.extensions.fleet.health import Grant
from jupyterhub_gpuspawner.extensions.fleet.node_record import (
    NodeRecord,
    View,
    forgotten,
    merged,
    record_from,
    without_name,
)
from jupyterhub_gpuspawner.hub.site.database import is_in_memory
from jupyterhub_gpuspawner.hub.site.tables import SECONDS, in_batches
from jupyterhub_gpuspawner.site.database import connected

T = TypeVar("T")
Statement = TypeVar("Statement", Select[Any], Delete)

GRANTS_AT_MOST = 20_000
"""Grants that are kept, the latest ones."""
NO_KWARGS: Mapping[str, Any] = MappingProxyType({})
NODES = Table(
    "gpuspawner_fleet_nodes",
    MetaData(),
    Column("cluster", String(255), primary_key=True),
    Column("node", String(255), primary_key=True),
    Column("seen_at", SECONDS, nullable=False),
    Column("record", Text, nullable=False),
)
GRANTS = Table(
    "gpuspawner_fleet_grants",
    MetaData(),
    Column("cluster", String(255), primary_key=True),
    Column("job_id", String(64), primary_key=True),
    Column("node", String(255), nullable=False),
    Column("at", SECONDS, nullable=False, index=True),
    Column("facts", Text, nullable=False),
)


def _by_cluster(name: str) -> Callable[[Operations], None]:
    """A step: a column for the cluster in the table's primary key, empty for the rows that are there.

    The table is made anew: not every database can change a primary key.
    """

    def step(op: Operations) -> None:
        connection = op.get_bind()
        old = Table(name, MetaData(), autoload_with=connection)
        if "cluster" in old.c:  # the step is repeated
            return
        columns = [
            Column(column.name, column.type, primary_key=column.primary_key, nullable=column.nullable)
            for column in old.c
        ]
        new = Table(f"{name}_new", MetaData(), Column("cluster", String(255), primary_key=True), *columns)
        new.drop(connection, checkfirst=True)
        new.create(connection)
        connection.execute(insert(new).from_select(new.c.keys(), select(literal(""), *old.c)))
        old.drop(connection)  # with its indexes, whose names are free then
        for index in old.indexes:
            op.create_index(index.name, new.name, [column.name for column in index.columns])
        op.rename_table(new.name, name)

    return step


STEPS = tuple((table.name, _by_cluster(table.name)) for table in (NODES, GRANTS))


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
        wanted = self._of(select(GRANTS.c.job_id), job_id=job_id).where(GRANTS.c.at >= since)
        with Session(self._engine) as session, session.begin():
            return session.execute(wanted).first() is not None

    def add(self, view: View, judge: Callable[[NodeRecord], Grant | None], *, late: bool = False) -> None:
        """Merge a view into its node's record, and add the grant that ``judge`` makes of it.

        A ``late`` view is not merged into the record of a node that is known. Raises SQLAlchemyError.
        """
        with Session(self._engine) as session, session.begin():
            old = next(_records(session.execute(self._of(select(NODES), node=view.node))), None)
            new = merged(old, view) if view.topology.gpus and not (late and old is not None) else None
            record = new or old
            if new is not None:
                session.execute(self._of(delete(NODES), node=view.node))
                session.execute(insert(NODES).values(cluster=self._cluster, **_row(new)))
            grant = judge(record) if record is not None else None
            if grant is not None:
                session.execute(self._of(delete(GRANTS), job_id=grant.job_id))
                row = {"job_id": grant.job_id, "node": grant.node, "at": grant.at, "facts": json.dumps(asdict(grant))}
                session.execute(insert(GRANTS).values(cluster=self._cluster, **row))

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
            rows = session.execute(select(NODES).where(NODES.c.seen_at >= before)).all()
            records = [(row.cluster, record) for row in rows for record in _records([row])]
            shorter = [(name, left) for name, record in records if (left := forgotten(record, before)) != record]
            session.execute(delete(NODES).where(NODES.c.seen_at < before))
            for name, left in shorter:
                same = {"cluster": name, "node": left.node, "seen_at": left.seen_at}
                session.execute(update(NODES).filter_by(**same).values(**_row(left)))
            first = select(GRANTS.c.at).order_by(GRANTS.c.at.desc()).offset(GRANTS_AT_MOST).limit(1)
            oldest = session.execute(first).scalar()
            session.execute(delete(GRANTS).where(GRANTS.c.at < before))
            if oldest is not None:
                session.execute(delete(GRANTS).where(GRANTS.c.at <= oldest))

    def forget(self, node: str) -> bool:
        """Delete what is known of a node; return whether anything was. Raises SQLAlchemyError."""
        with Session(self._engine) as session, session.begin():
            existed = session.execute(self._of(select(NODES.c.node), node=node)).first() is not None
            session.execute(self._of(delete(NODES), node=node))
            session.execute(self._of(delete(GRANTS), node=node))
        return existed

    def take_over(self) -> None:
        """Have what was kept while the hub named no clusters belong to this one; raises SQLAlchemyError."""
        with Session(self._engine) as session, session.begin():
            for table, key in ((NODES, NODES.c.node), (GRANTS, GRANTS.c.job_id)):
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


def forget_reporter(connection: Connection, user: str) -> Mapping[str, int]:
    """Forget whose reports of nodes were this user's; what is known of nodes stays, so that nothing is deleted.

    Raises ConfigError and SQLAlchemyError.
    """
    if not _is_there(connection):
        return {}
    for row in connection.execute(select(NODES)).all():
        for record in _records([row]):
            left = without_name(record, user)
            if left != record:
                one = update(NODES).filter_by(cluster=row.cluster, node=row.node)
                connection.execute(one.values(record=json.dumps(left.to_json())))
    return {}


def _is_there(connection: Connection) -> bool:
    """Whether a hub has kept reports here; raises ConfigError for tables of before they had clusters."""
    tables = inspect(connection)
    if not tables.has_table(NODES.name):
        return False
    if "cluster" not in {column["name"] for column in tables.get_columns(NODES.name)}:
        raise ConfigError(
            "the tables of nodes are those of an earlier version of jupyterhub-gpuspawner.",
            where="c.JupyterHub.db_url",
            hint="Start the hub with this version: it brings them up to date.",
        )
    return True


def _read(session: Session, cluster: str) -> StoredFleet:
    records = _records(session.execute(select(NODES).filter_by(cluster=cluster).order_by(NODES.c.node)))
    grants = _grants(session.execute(select(GRANTS).filter_by(cluster=cluster).order_by(GRANTS.c.at)))
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
