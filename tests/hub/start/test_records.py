"""The records of starts in the hub's database."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from jupyterhub import orm
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from jupyterhub_gpuspawner.hub.start.submission import RETENTION_SECONDS, RecordedStart, StartRecords
from tests.fixtures.databases import hub_session, new_database, session_of


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    """A hub's database."""
    with hub_session(new_database(tmp_path)) as session:
        yield session


async def test_a_start_is_found_by_its_id_and_no_other_is(session: Session) -> None:
    """By the next hub process, too."""
    await StartRecords(session).add("0a-1", RecordedStart("ann", "lab"))

    with session_of(session.get_bind().engine.url.render_as_string(hide_password=False)) as again:
        assert StartRecords(again).find({"0a-1", "0a-2"}) == {"0a-1": RecordedStart("ann", "lab")}


async def test_hundreds_are_found(session: Session) -> None:
    """More than fit into one query."""
    records = StartRecords(session)
    for number in range(450):
        await records.add(f"0a-{number}", RecordedStart("ann", ""))

    assert len(records.find({f"0a-{number}" for number in range(1000)})) == 450


async def test_a_record_outlives_its_user_and_goes_with_time(session: Session) -> None:
    """A job of a deleted user is still known as this hub's."""
    records = StartRecords(session)
    for start in ("0a-1", "0a-2"):
        await records.add(start, RecordedStart("ann", ""))
    session.execute(
        text("update gpuspawner_starts set made_at = :at where start_id = '0a-1'"),
        {"at": time.time() - RETENTION_SECONDS - 1},
    )
    records.forget_old()

    assert records.find({"0a-1", "0a-2"}) == {"0a-2": RecordedStart("ann", "")}


@pytest.mark.parametrize(("patience", "recorded"), [(30.0, True), (0.0, False)])
async def test_a_database_that_is_away_for_a_moment_costs_no_start(
    session: Session, monkeypatch: pytest.MonkeyPatch, patience: float, recorded: bool
) -> None:
    """It is waited for before anything is submitted; the session can be used again in any case."""
    records, commit = StartRecords(session), session.commit
    faults = [OperationalError("INSERT", {}, Exception("the database system is shutting down")) for _ in range(2)]

    def away() -> None:
        if faults:
            raise faults.pop()
        commit()

    monkeypatch.setattr("jupyterhub_gpuspawner.hub.site.database.PAUSES", (0.01,))
    monkeypatch.setattr(session, "commit", away)
    answer = await records.add("0a-1", RecordedStart("ann", ""), patience=patience)
    faults.clear()

    assert answer is recorded
    assert records.find({"0a-1"}) == ({"0a-1": RecordedStart("ann", "")} if recorded else {})


async def test_a_record_whose_commit_was_not_answered_is_written_again(session: Session) -> None:
    """The connection was lost between the two."""
    records = StartRecords(session)
    for _ in range(2):
        assert await records.add("0a-1", RecordedStart("ann", ""), patience=0.0)

    assert records.find({"0a-1"}) == {"0a-1": RecordedStart("ann", "")}


async def test_jupyterhub_starts_over_a_database_that_has_the_table(session: Session) -> None:
    """JupyterHub checks the schema of its own tables only."""
    await StartRecords(session).add("0a-1", RecordedStart("ann", ""))

    orm.check_db_revision(session.get_bind())
