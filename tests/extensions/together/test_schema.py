"""The tables of the core and of all extensions are brought up to date when the hub starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import MetaData, inspect, text
from sqlalchemy.orm import Session

from jupyterhub_gpuspawner.extensions.courses.page import latest_actions
from jupyterhub_gpuspawner.extensions.courses.participants import CourseStart, CourseStarts, Stage
from jupyterhub_gpuspawner.extensions.fleet.health import Grant
from jupyterhub_gpuspawner.extensions.fleet.store import FleetStore
from jupyterhub_gpuspawner.extensions.idle.times import IdleTime, IdleTimes
from jupyterhub_gpuspawner.extensions.messages.store import Audience, Kind, Message, Messages
from jupyterhub_gpuspawner.hub import registration  # noqa: F401 - with it all stores are imported
from jupyterhub_gpuspawner.hub.site.tables import TABLES, upgrade
from jupyterhub_gpuspawner.hub.spawners.shared_folder import read_slugs
from jupyterhub_gpuspawner.hub.start.submission import RecordedStart, StartRecords
from tests.extensions.fleet.nodes import DAY
from tests.fixtures.extensions import ALL
from tests.hub.site.test_schema import session

__all__ = ["session"]  # the fixture

BEFORE_VERSIONS = Path(__file__).parents[2] / "data" / "databases" / "before-versions.sql"
"""A row in each table, as 0.1.0 wrote them before its tables had a version."""
NOW = 1_772_442_000.0
VERSIONS = ("gpuspawner_schema", "gpuspawner_extension_versions")


def run_dump(session: Session) -> None:
    connection = session.connection()
    for statement in BEFORE_VERSIONS.read_text("utf-8").split(";\n"):
        if statement.strip() not in ("", "BEGIN TRANSACTION", "COMMIT"):
            connection.exec_driver_sql(statement)
    session.commit()


def differences(session: Session) -> list[Any]:
    """What Alembic would change, so that the database has the tables as the stores declare them."""

    def ours(name: str | None, kind: str, _parents: Any) -> bool:
        return kind != "table" or ((name or "").startswith("gpuspawner_") and name not in VERSIONS)

    context = MigrationContext.configure(session.connection(), opts={"include_name": ours, "compare_type": True})
    every = MetaData()
    for table in (*TABLES.tables.values(), *(table for each in ALL.tables for table in each.tables)):
        table.to_metadata(every)
    return list(compare_metadata(context, every))


def contents(session: Session) -> list[object]:
    """What each store reads."""
    fleet = FleetStore(session.get_bind()).read()
    return [
        StartRecords(session).find(["0a1b2c3d-11111111"]),
        CourseStarts(session).find("deep", "2026-03-02"),
        latest_actions(session, "deep"),
        Messages(session).shown(now=NOW),
        read_slugs(session),
        IdleTimes(session).to_take_up(),
        ([record.node for record in fleet.records], fleet.grants),
    ]


def test_a_database_of_before_the_versions_is_brought_up_to_date_and_keeps_its_rows(session: Session) -> None:
    """Every store reads what was written, and the next start changes nothing."""
    run_dump(session)
    upgrade(session, ALL.tables)
    upgrade(session, ALL.tables)

    assert contents(session) == [
        {"0a1b2c3d-11111111": RecordedStart("ann", "lab")},
        {"ann": CourseStart("ann", Stage.STARTED, 1, NOW - 600, NOW - 500)},
        (("Stopped 2 servers.", NOW),),
        (Message(Audience(Kind.COURSE, "deep"), "ida", "Lunch at noon.", NOW, NOW + 3600),),
        {"p": "old.yaml"},
        [IdleTime("ann", "", "k80", "12", 2, NOW - 1500, NOW - 300, 1.0, 400, keeps=1, kept=1800.0, id=1)],
        (["g1"], (Grant("7", "g1", DAY, 2, aligned=True, across=False, loss=0.0),)),
    ]
    assert differences(session) == []


def test_a_step_that_was_taken_is_repeated_without_harm(session: Session) -> None:
    """MySQL keeps what was done before another step failed."""
    run_dump(session)
    op = Operations(MigrationContext.configure(session.connection()))
    for table, step in (step for each in ALL.tables for step in each.steps):
        if inspect(session.connection()).has_table(table):
            step(op)
    session.commit()
    upgrade(session, ALL.tables)

    assert differences(session) == []
    assert contents(session)[-1] == (["g1"], (Grant("7", "g1", DAY, 2, aligned=True, across=False, loss=0.0),))


def test_an_empty_database_gets_the_tables_that_the_stores_declare(session: Session) -> None:
    """Whoever changes a table in a store has to add a step."""
    upgrade(session, ALL.tables)

    assert differences(session) == []
    assert contents(session) == [{}, {}, (), (), {}, [], ([], ())]


def test_a_table_that_was_never_used_is_made_beside_the_others(session: Session) -> None:
    """Before there were versions, a hub without courses had no tables of them."""
    run_dump(session)
    session.execute(text("DROP TABLE gpuspawner_course_starts"))
    session.commit()
    upgrade(session, ALL.tables)

    assert differences(session) == []
