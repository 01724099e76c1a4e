"""Two tables in the hub's database: what is known of each node, and the grants that Slurm made there.

Everything here blocks for as long as the database takes, so the hub calls it in a thread, with a connection of its own.
A database in memory has only one connection, which is the hub's: there it is called in the hub's loop.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Column, Connection, Row, String, Table, Text, delete, insert, inspect, select
from sqlalchemy.engine import Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session
from traitlets.log import get_logger

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.fleet.health import Grant
from jupyterhub_gpuspawner.fleet.node_record import NodeRecord, View, forgotten, merged, record_from
from jupyterhub_gpuspawner.hub.site.database import SECONDS, fault
from jupyterhub_gpuspawner.hub.site.database_file import open_database
from jupyterhub_gpuspawner.hub.site.schema import TABLES

T = TypeVar("T")

GRANTS_AT_MOST = 20_000
"""Grants that are kept, the latest ones."""
DAY = 86400.0
NO_KWARGS: Mapping[str, Any] = MappingProxyType({})
_NODES = Table(
    "gpuspawner_fleet_nodes",
    TABLES,
    Column("node", String(255), primary_key=True),
    Column("seen_at", SECONDS, nullable=False),
    Column("record", Text, nullable=False),
)
_GRANTS = Table(
    "gpuspawner_fleet_grants",
    TABLES,
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
    """The tables of one database."""

    def __init__(self, bind: Engine | Connection) -> None:
        self._engine = bind.engine

    async def call(self, work: Callable[[], T]) -> T:
        """Call one of the methods below without blocking the hub's loop; raises what it raises."""
        url = self._engine.url
        if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
            return work()
        return await asyncio.to_thread(work)

    def granted(self, job_id: str) -> bool:
        """Whether the job's grant is recorded; raises SQLAlchemyError."""
        with Session(self._engine) as session, session.begin():
            return session.execute(select(_GRANTS.c.job_id).filter_by(job_id=job_id)).first() is not None

    def add(self, view: View, judge: Callable[[NodeRecord], Grant | None], *, late: bool = False) -> None:
        """Merge a view into its node's record, and add the grant that ``judge`` makes of it.

        A ``late`` view is not merged into the record of a node that is known. Raises SQLAlchemyError.
        """
        with Session(self._engine) as session, session.begin():
            old = next(_records(session.execute(select(_NODES).filter_by(node=view.node))), None)
            new = merged(old, view) if view.topology.gpus and not (late and old is not None) else None
            record = new or old
            if new is not None:
                session.execute(delete(_NODES).filter_by(node=view.node))
                session.execute(insert(_NODES).values(**_row(new)))
            grant = judge(record) if record is not None else None
            if grant is not None:
                session.execute(delete(_GRANTS).filter_by(job_id=grant.job_id))
                facts = json.dumps(asdict(grant))
                session.execute(insert(_GRANTS).values(job_id=grant.job_id, node=grant.node, at=grant.at, facts=facts))

    def read(self) -> StoredFleet:
        """Everything, the nodes by name and the grants by time; raises SQLAlchemyError."""
        with Session(self._engine) as session, session.begin():
            return _read(session)

    def forget_old(self, before: float) -> None:
        """Delete what was last seen before this time, and grants beyond :data:`GRANTS_AT_MOST`.

        All is read before anything is written: with SQLite the hub cannot write from the first change to the commit.
        Raises SQLAlchemyError.
        """
        with Session(self._engine) as session, session.begin():
            records = list(_records(session.execute(select(_NODES).where(_NODES.c.seen_at >= before))))
            shorter = [left for record in records if (left := forgotten(record, before)) != record]
            session.execute(delete(_NODES).where(_NODES.c.seen_at < before))
            for left in shorter:
                session.execute(_NODES.update().filter_by(node=left.node, seen_at=left.seen_at).values(**_row(left)))
            first = select(_GRANTS.c.at).order_by(_GRANTS.c.at.desc()).offset(GRANTS_AT_MOST).limit(1)
            oldest = session.execute(first).scalar()
            session.execute(delete(_GRANTS).where(_GRANTS.c.at < before))
            if oldest is not None:
                session.execute(delete(_GRANTS).where(_GRANTS.c.at <= oldest))

    def forget(self, node: str) -> bool:
        """Delete what is known of a node; return whether anything was. Raises SQLAlchemyError."""
        with Session(self._engine) as session, session.begin():
            existed = session.execute(select(_NODES.c.node).filter_by(node=node)).first() is not None
            session.execute(delete(_NODES).filter_by(node=node))
            session.execute(delete(_GRANTS).filter_by(node=node))
        return existed


def read_database(db_url: str, db_kwargs: Mapping[str, Any] = NO_KWARGS) -> StoredFleet:
    """Everything that a hub's database holds, without a running hub and without changing it. Raises ConfigError."""
    engine = open_database(db_url, db_kwargs)
    try:
        with closing(engine.connect()) as connection:
            if not inspect(connection).has_table(_NODES.name):
                return StoredFleet()
            return _read(Session(connection))
    except SQLAlchemyError as error:
        raise ConfigError(f"the hub's database cannot be read: {fault(error)}", where="c.JupyterHub.db_url") from error
    finally:
        engine.dispose()


def forget_in_database(db_url: str, node: str, db_kwargs: Mapping[str, Any] = NO_KWARGS) -> bool:
    """Delete what is known of a node; return whether anything was. Raises ConfigError."""
    engine = open_database(db_url, db_kwargs)
    try:
        return inspect(engine).has_table(_NODES.name) and FleetStore(engine).forget(node)
    except SQLAlchemyError as error:
        raise ConfigError(
            f"the hub's database cannot be changed: {fault(error)}", where="c.JupyterHub.db_url"
        ) from error
    finally:
        engine.dispose()


def _read(session: Session) -> StoredFleet:
    records = _records(session.execute(select(_NODES).order_by(_NODES.c.node)))
    return StoredFleet(tuple(records), tuple(_grants(session.execute(select(_GRANTS).order_by(_GRANTS.c.at)))))


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
