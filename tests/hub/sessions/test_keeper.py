"""The thread that writes records, and what it does with those that a hub has left."""

from __future__ import annotations

import asyncio
import logging
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from jupyterhub import orm
from sqlalchemy.orm import Session

from jupyterhub_gpuspawner.hub.sessions.keeper import Recorder, keep, stored_sessions
from jupyterhub_gpuspawner.sessions.store import SessionStore
from tests.fixtures.databases import hub_session
from tests.sessions.a_session import ENDED, LIFE, SUBMITTED


class App:
    """A hub with a database in which one server runs."""

    def __init__(self, db: Session) -> None:
        self.db = db
        session = {"id": "runs", "username": "ada", "servername": "", "begun_at": 1.0}
        self.db.add(orm.Spawner(name="", server=orm.Server(), state={"child": {"session": session}}))
        self.db.add(orm.Spawner(name="stopped", state={"session": {**session, "id": "gone"}}))
        self.db.commit()


async def test_events_are_written_in_their_order(tmp_path: Path) -> None:
    """Closing waits for all that were taken."""
    recorder = Recorder(tmp_path / "sessions.sqlite")
    for event in LIFE:
        recorder.take(event)
    await asyncio.to_thread(recorder.close)

    with closing(SessionStore(tmp_path / "sessions.sqlite")) as store:
        assert [each.cause for each in store.sessions()] == [ENDED.cause]


@pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning")  # of JupyterHub's own type of column
async def test_a_hub_completes_what_the_one_before_it_has_left(tmp_path: Path) -> None:
    """Of two sessions under way one is that of a server that runs; the other expires at once, since it is old."""
    path = tmp_path / "sessions.sqlite"
    with closing(SessionStore(path)) as store:
        for session in ("runs", "gone"):
            store.take(replace(SUBMITTED, session=session, at=1.0))
    recorder = Recorder(path)
    with hub_session() as db:
        app = App(db)
        assert stored_sessions(app) == {"runs"}

        task = asyncio.ensure_future(keep(app, recorder, 400))
        while len(await recorder.under_way()) != 1:  # noqa: ASYNC110 - a thread has no event
            await asyncio.sleep(0.01)
        with closing(SessionStore(path)) as store:
            while len(list(store.sessions())) > 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert [each.session for each in store.sessions()] == ["runs"]
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    await asyncio.to_thread(recorder.close)


async def test_a_file_that_cannot_be_written_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Servers start and end as before, and it is used again as soon as it can be."""
    folder = tmp_path / "away"
    recorder = Recorder(folder / "sessions.sqlite")
    caplog.set_level(logging.ERROR)
    for event in LIFE:
        recorder.take(event)
    assert await recorder.under_way() == frozenset()
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["Sessions are not recorded"]

    folder.mkdir()
    recorder.take(SUBMITTED)
    assert await recorder.under_way() == {SUBMITTED.session}
    await asyncio.to_thread(recorder.close)
