"""The records of starts in the hub's database."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from jupyterhub import orm
from sqlalchemy import text
from sqlalchemy.orm import Session

from jupyterhub_gpuspawner.hub.start.records import KEPT, RecordedStart, RecordFailed, StartRecords
from tests.fixtures.databases import hub_session, new_database, session_of


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    """A hub's database."""
    with hub_session(new_database(tmp_path)) as session:
        yield session


def test_a_start_is_found_by_its_id_and_no_other_is(session: Session) -> None:
    """By the next hub process, too."""
    StartRecords(session).add("0a-1", RecordedStart("ann", "lab"))

    with session_of(session.get_bind().engine.url.render_as_string(hide_password=False)) as again:
        assert StartRecords(again).find({"0a-1", "0a-2"}) == {"0a-1": RecordedStart("ann", "lab")}


def test_hundreds_are_found(session: Session) -> None:
    """More than fit into one query."""
    records = StartRecords(session)
    for number in range(450):
        records.add(f"0a-{number}", RecordedStart("ann", ""))

    assert len(records.find({f"0a-{number}" for number in range(1000)})) == 450


def test_a_record_outlives_its_user_and_goes_with_time(session: Session) -> None:
    """A job of a deleted user is still known as this hub's."""
    records = StartRecords(session)
    for start in ("0a-1", "0a-2"):
        records.add(start, RecordedStart("ann", ""))
    session.execute(
        text("update gpuspawner_starts set made_at = :at where start_id = '0a-1'"), {"at": time.time() - KEPT - 1}
    )
    records.forget_old()

    assert records.find({"0a-1", "0a-2"}) == {"0a-2": RecordedStart("ann", "")}


def test_a_database_that_takes_no_record_is_told_before_anything_is_submitted(session: Session) -> None:
    """503, and the session can be used again."""
    records = StartRecords(session)
    records.add("0a-1", RecordedStart("ann", ""))
    with pytest.raises(RecordFailed, match="so no job was submitted"):
        records.add("0a-1", RecordedStart("ann", ""))

    assert records.find({"0a-1"}) == {"0a-1": RecordedStart("ann", "")}


def test_jupyterhub_starts_over_a_database_that_has_the_table(session: Session) -> None:
    """JupyterHub checks the schema of its own tables only."""
    StartRecords(session).add("0a-1", RecordedStart("ann", ""))

    orm.check_db_revision(session.get_bind())
