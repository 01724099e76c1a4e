"""The tables of gpuspawner in the hub's database are brought up to date when the hub starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.operations import Operations
from jupyterhub.app import JupyterHub
from sqlalchemy import Column, Integer, MetaData, create_engine, inspect, text
from sqlalchemy.orm import Session

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.extensions.courses.page import latest_actions
from jupyterhub_gpuspawner.extensions.courses.participants import CourseStart, CourseStarts, Stage
from jupyterhub_gpuspawner.extensions.fleet.health import Grant
from jupyterhub_gpuspawner.extensions.fleet.store import FleetStore
from jupyterhub_gpuspawner.extensions.idle.times import IdleTime, IdleTimes
from jupyterhub_gpuspawner.extensions.messages.store import Audience, Kind, Message, Messages
from jupyterhub_gpuspawner.hub import registration  # noqa: F401 - with it all stores are imported
from jupyterhub_gpuspawner.hub.site.database import STEPS, TABLES, bring_up_to_date, upgrade
from jupyterhub_gpuspawner.hub.start.submission import RecordedStart, StartRecords
from jupyterhub_gpuspawner.hub.upkeep import keep_slugs, read_slugs
from tests.extensions.fleet.nodes import DAY
from tests.fixtures.databases import disposed
from tests.fixtures.extensions import ALL
from tests.fixtures.postgres import PrivatePostgres

BEFORE_VERSIONS = Path(__file__).parents[2] / "data" / "databases" / "before-versions.sql"
"""A row in each table, as 0.1.0 wrote them before its tables had a version."""
NOW = 1_772_442_000.0


@pytest.fixture(params=["sqlite", "postgres"])
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Session]:
    """An empty database, of SQLite and of Postgres."""
    if request.param == "postgres":
        server: PrivatePostgres = request.getfixturevalue("postgres")
        url = server.new_database()
    else:
        url = f"sqlite:///{tmp_path / 'hub.sqlite'}"
    with disposed(create_engine(url)) as engine, Session(engine) as session:
        yield session


def run_dump(session: Session) -> None:
    connection = session.connection()
    for statement in BEFORE_VERSIONS.read_text("utf-8").split(";\n"):
        if statement.strip() not in ("", "BEGIN TRANSACTION", "COMMIT"):
            connection.exec_driver_sql(statement)
    session.commit()


def differences(session: Session) -> list[Any]:
    """What Alembic would change, so that the database has the tables as the stores declare them."""

    def ours(name: str | None, kind: str, _parents: Any) -> bool:
        return kind != "table" or ((name or "").startswith("gpuspawner_") and name != "gpuspawner_schema")

    context = MigrationContext.configure(session.connection(), opts={"include_name": ours, "compare_type": True})
    every = MetaData()
    for table in (*TABLES.tables.values(), *ALL.tables):
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
    upgrade(session, tables=ALL.tables)
    upgrade(session, tables=ALL.tables)

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
    for table, step in STEPS:
        if inspect(session.connection()).has_table(table):
            step(op)
    session.commit()
    upgrade(session, tables=ALL.tables)

    assert differences(session) == []
    assert contents(session)[-1] == (["g1"], (Grant("7", "g1", DAY, 2, aligned=True, across=False, loss=0.0),))


def test_an_empty_database_gets_the_tables_that_the_stores_declare(session: Session) -> None:
    """Whoever changes a table in a store has to add a step."""
    upgrade(session, tables=ALL.tables)

    assert differences(session) == []
    assert contents(session) == [{}, {}, (), (), {}, [], ([], ())]


def test_a_table_that_was_never_used_is_made_beside_the_others(session: Session) -> None:
    """Before there were versions, a hub without courses had no tables of them."""
    run_dump(session)
    session.execute(text("DROP TABLE gpuspawner_course_starts"))
    session.commit()
    upgrade(session, tables=ALL.tables)

    assert differences(session) == []


def add_column(op: Operations) -> None:
    op.add_column("gpuspawner_slugs", Column("times", Integer, nullable=False, server_default="3"))


ADD = ("gpuspawner_slugs", add_column)


def fail(op: Operations) -> None:
    op.drop_table("gpuspawner_slugs")
    raise sqlalchemy.exc.OperationalError("DROP", {}, Exception("disk full"))


def test_a_later_version_adds_a_column_to_the_rows_that_are_there(session: Session) -> None:
    """Only the steps that are missing are taken."""
    upgrade(session, tables=ALL.tables)
    keep_slugs(session, {"p": "old.yaml"})
    upgrade(session, (*STEPS, ADD))
    upgrade(session, (*STEPS, ADD))

    assert session.execute(text("SELECT slug, file, times FROM gpuspawner_slugs")).all() == [("p", "old.yaml", 3)]


def test_of_steps_one_of_which_fails_none_is_taken(session: Session) -> None:
    """The hub can be started again with the version from before."""
    upgrade(session, tables=ALL.tables)
    keep_slugs(session, {"p": "old.yaml"})
    with pytest.raises(sqlalchemy.exc.OperationalError):
        upgrade(session, (*STEPS, ADD, ("gpuspawner_slugs", fail)))

    upgrade(session, tables=ALL.tables)
    assert read_slugs(session) == {"p": "old.yaml"}
    assert [column["name"] for column in inspect(session.connection()).get_columns("gpuspawner_slugs")] == [
        "slug",
        "file",
    ]


def test_a_database_of_a_later_version_is_left_alone(session: Session) -> None:
    """An older package must not write to tables that it does not know."""
    upgrade(session, (*STEPS, ADD))

    with pytest.raises(ConfigError) as refused:
        upgrade(session, tables=ALL.tables)
    assert str(refused.value) == (
        f"c.JupyterHub.db_url: the tables of gpuspawner in the hub's database have version {len(STEPS) + 2}, and this "
        f"version of jupyterhub-gpuspawner knows them up to {len(STEPS) + 1}. Install the version that the hub ran "
        "with before, or restore the backup of before that upgrade."
    )


def test_a_hub_over_a_database_of_a_later_version_ends_with_one_sentence(
    session: Session, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Before it starts anything."""
    upgrade(session, (*STEPS, ADD))
    app = JupyterHub()
    app.db = session
    app.log.propagate = True
    with pytest.raises(SystemExit) as ended:
        bring_up_to_date(app)

    assert ended.value.code == 1
    critical = [record.getMessage() for record in caplog.records if record.levelname == "CRITICAL"]
    assert [message.partition(":")[0] for message in critical] == ["c.JupyterHub.db_url"]
