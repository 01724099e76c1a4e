"""The tables of gpuspawner in the hub's database are brought up to date when the hub starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy
from alembic.operations import Operations
from jupyterhub.app import JupyterHub
from sqlalchemy import Column, Integer, MetaData, Table, create_engine, inspect, text
from sqlalchemy.orm import Session

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub import registration  # noqa: F401 - with it all stores are imported
from jupyterhub_gpuspawner.hub.site.tables import FIRST, STEPS, ExtensionTables, bring_up_to_date, upgrade
from jupyterhub_gpuspawner.hub.spawners.shared_folder import keep_slugs, read_slugs
from tests.fixtures.databases import disposed
from tests.fixtures.extensions import ALL
from tests.fixtures.postgres import PrivatePostgres


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


def add_column(op: Operations) -> None:
    op.add_column("gpuspawner_slugs", Column("times", Integer, nullable=False, server_default="3"))


ADD = ("gpuspawner_slugs", add_column)


def fail(op: Operations) -> None:
    op.drop_table("gpuspawner_slugs")
    raise sqlalchemy.exc.OperationalError("DROP", {}, Exception("disk full"))


def test_a_later_version_adds_a_column_to_the_rows_that_are_there(session: Session) -> None:
    """Only the steps that are missing are taken."""
    upgrade(session, ALL.tables)
    keep_slugs(session, {"p": "old.yaml"})
    upgrade(session, steps=(*STEPS, ADD))
    upgrade(session, steps=(*STEPS, ADD))

    assert session.execute(text("SELECT slug, file, times FROM gpuspawner_slugs")).all() == [("p", "old.yaml", 3)]


def test_of_steps_one_of_which_fails_none_is_taken(session: Session) -> None:
    """The hub can be started again with the version from before."""
    upgrade(session, ALL.tables)
    keep_slugs(session, {"p": "old.yaml"})
    with pytest.raises(sqlalchemy.exc.OperationalError):
        upgrade(session, steps=(*STEPS, ADD, ("gpuspawner_slugs", fail)))

    upgrade(session, ALL.tables)
    assert read_slugs(session) == {"p": "old.yaml"}
    assert [column["name"] for column in inspect(session.connection()).get_columns("gpuspawner_slugs")] == [
        "slug",
        "file",
    ]


def counted(*columns: str) -> ExtensionTables:
    """The tables of an extension that has added a column in each version after its first."""
    table = Table("gpuspawner_counts", MetaData(), Column("id", Integer, primary_key=True))
    for name in columns:
        table.append_column(Column(name, Integer, server_default="3"))

    def step(name: str) -> Callable[[Operations], None]:
        return lambda op: op.add_column(table.name, Column(name, Integer, server_default="3"))

    return ExtensionTables("counters", (table,), tuple((table.name, step(name)) for name in columns))


def test_the_tables_of_an_extension_have_a_version_of_their_own(session: Session) -> None:
    """Also while a hub leaves it out; and the core's steps count for themselves."""
    upgrade(session, (counted(),))
    session.execute(text("INSERT INTO gpuspawner_counts (id) VALUES (1)"))
    session.commit()
    upgrade(session, steps=(*STEPS, ADD))
    upgrade(session, (counted("times", "users"),), steps=(*STEPS, ADD))
    upgrade(session, (counted("times", "users"),), steps=(*STEPS, ADD))

    assert session.execute(text("SELECT id, times, users FROM gpuspawner_counts")).all() == [(1, 3, 3)]
    with pytest.raises(ConfigError) as refused:
        upgrade(session, (counted("times"),), steps=(*STEPS, ADD))
    assert str(refused.value) == (
        "c.JupyterHub.db_url: the tables of the extension counters in the hub's database have version 3, and the "
        "version that is installed knows them up to 2. Install the version that the hub ran with before, or restore "
        "the backup of before that upgrade."
    )


def test_a_database_of_a_later_version_is_left_alone(session: Session) -> None:
    """An older package must not write to tables that it does not know."""
    upgrade(session, steps=(*STEPS, ADD))

    with pytest.raises(ConfigError) as refused:
        upgrade(session, ALL.tables)
    assert str(refused.value) == (
        f"c.JupyterHub.db_url: the tables of gpuspawner in the hub's database have version {FIRST + len(STEPS) + 1}, "
        f"and the version that is installed knows them up to {FIRST + len(STEPS)}. Install the version that the hub "
        "ran with before, or restore the backup of before that upgrade."
    )


def test_a_hub_over_a_database_of_a_later_version_ends_with_one_sentence(
    session: Session, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Before it starts anything."""
    upgrade(session, steps=(*STEPS, ADD))
    app = JupyterHub()
    app.db = session
    app.log.propagate = True
    with pytest.raises(SystemExit) as ended:
        bring_up_to_date(app)

    assert ended.value.code == 1
    critical = [record.getMessage() for record in caplog.records if record.levelname == "CRITICAL"]
    assert [message.partition(":")[0] for message in critical] == ["c.JupyterHub.db_url"]


def raises(_op: Operations) -> None:
    """A step with a defect."""
    raise LookupError("no such column")


def test_a_hub_with_an_extension_whose_step_raises_ends_with_one_sentence(
    session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is changed: left out of the hub, the extension keeps it from starting no more."""
    upgrade(session, (counted(),))
    app = JupyterHub()
    app.db = session
    app.log.propagate = True
    with pytest.raises(SystemExit):
        bring_up_to_date(app, (replace(counted("times"), steps=(("gpuspawner_counts", raises),)),))

    critical = [record.getMessage() for record in caplog.records if record.levelname == "CRITICAL"]
    assert [message.partition(": ")[2] for message in critical] == ["LookupError: no such column"]
    bring_up_to_date(app)
    bring_up_to_date(app, (counted("times"),))
