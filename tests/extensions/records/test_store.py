"""The file of session records."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.extensions.records.store import STEPS, SessionStore, StoreError
from jupyterhub_gpuspawner.hub.job.cause import UNKNOWN
from jupyterhub_gpuspawner.hub.job.session import Submitted
from tests.extensions.records.a_record import RECORD
from tests.extensions.records.events import ENDED, LIFE, PROMISES
from tests.standins.session_events import NOON, SUBMITTED


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.sqlite"


def filled(path: Path, *users: str) -> SessionStore:
    store = SessionStore(path)
    for user in users:
        for event in LIFE:
            store.take(replace(event, session=f"session of {user}", username=user))
    return store


def test_a_session_is_written_and_read(path: Path) -> None:
    """Every field comes back as it was; others of the machine cannot read the file."""
    with closing(SessionStore(path)) as store:
        for event in LIFE:
            store.take(event)
        sessions = list(store.sessions())

    assert sessions == [RECORD]
    assert path.stat().st_mode & 0o077 == 0


def test_sessions_are_found_by_what_is_known_of_them(path: Path) -> None:
    """By time, course, profile and user."""
    with closing(filled(path, "ada", "ben")) as store:
        queries = [{"username": "ben"}, {"course": "dl"}, {"profile": "none"}, {"since": NOON + 1}]
        assert [[session.username for session in store.sessions(**query)] for query in queries] == [  # type: ignore[arg-type]
            ["ben"],
            ["ada", "ben"],
            [],
            [],
        ]


def test_a_hub_that_was_killed_leaves_sessions_that_the_next_one_completes(path: Path) -> None:
    """One that still runs goes on; the other has ended while nobody looked."""
    with closing(SessionStore(path)) as store:
        for user in ("runs", "gone"):
            for event in LIFE[:-1]:
                store.take(replace(event, session=user, username=user))
    with closing(SessionStore(path)) as store:
        assert store.close_lost({"gone"}) == 1
        store.take(replace(ENDED, session="runs", username="runs"))
        store.take(replace(ENDED, session="gone", username="gone"))
        causes = {session.username: session.cause for session in store.sessions()}

        assert causes == {"runs": ENDED.cause, "gone": UNKNOWN}
        assert store.open_sessions() == []


def test_old_sessions_expire_and_those_under_way_do_not(path: Path) -> None:
    """By their end."""
    with closing(filled(path, "ada")) as store:
        store.take(replace(SUBMITTED, session="open", username="ben"))

        assert [store.expire(NOON), store.expire(NOON + 10_000)] == [0, 1]
        assert [session.username for session in store.sessions()] == ["ben"]


def test_the_database_of_another_program_is_left_alone(path: Path) -> None:
    """Such as the hub's own, if somebody names that: no table is added, and its journal stays as it is."""
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE users (name TEXT)")
    before = path.read_bytes()

    with pytest.raises(StoreError, match="is another database, not a file of session records"):
        SessionStore(path, create=False)

    assert path.read_bytes() == before


def test_nothing_of_a_forgotten_user_is_left_in_the_files(path: Path) -> None:
    """Not in free pages, and not in the log beside it, while the hub has the file open as well."""
    user = "ada-the-forgotten"
    with closing(filled(path, user, "ben")) as hub, closing(SessionStore(path, create=False)) as store:
        bytes_before = b"".join(file.read_bytes() for file in path.parent.iterdir())
        assert store.forget(user) == 1
        bytes_after = b"".join(file.read_bytes() for file in path.parent.iterdir())
        hub.take(replace(ENDED, session="new", username="ben", job_id=""))

        assert (user.encode() in bytes_before, user.encode() in bytes_after) == (True, False)
        assert [session.username for session in hub.sessions()] == ["ben", "ben"]


def test_a_file_of_a_later_version_is_refused(path: Path) -> None:
    """It is left as it is."""
    SessionStore(path).close()
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 99")

    with pytest.raises(StoreError, match="has version 99 of the format"):
        SessionStore(path)


def test_a_step_that_fails_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file can be used by the version before, and the next try succeeds."""
    filled(path, "ada").close()
    steps, add = "jupyterhub_gpuspawner.extensions.records.store.STEPS", "ALTER TABLE sessions ADD COLUMN more TEXT"
    monkeypatch.setattr(steps, (*STEPS, add, "SELECT fault_of_a_step"))
    with pytest.raises(StoreError):
        SessionStore(path)
    monkeypatch.setattr(steps, (*STEPS, add))
    with closing(SessionStore(path)) as store:
        assert [session.username for session in store.sessions()] == ["ada"]
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (len(STEPS) + 2,)


@pytest.mark.parametrize(
    ("version", "missing"), [(1, ("promises", "subject", "cluster")), (2, ("subject", "cluster")), (3, ("cluster",))]
)
def test_a_file_of_an_earlier_version_is_brought_up_to_date(path: Path, version: int, missing: tuple[str, ...]) -> None:
    """What it did not know is empty in its sessions, and kept of new ones."""
    filled(path, "ada").close()
    with closing(sqlite3.connect(path)) as database:
        for column in ("promises", "subject", "cluster")[version - 1 :]:
            database.execute(f"ALTER TABLE sessions DROP COLUMN {column}")
        database.execute(f"PRAGMA user_version = {version}")
        database.commit()

    with closing(filled(path, "ben")) as store:
        store.take(replace(ENDED, session="new", username="cyd", job_id="", subject="CUDA/99", cluster="cedar"))
        assert {
            session.username: (session.promises, session.subject, session.cluster) for session in store.sessions()
        } == {
            "ada": (() if version == 1 else PROMISES, "", ""),
            "ben": (PROMISES, "", ""),
            "cyd": (PROMISES, "CUDA/99", "cedar"),
        }


def test_the_latest_promises_are_found(path: Path) -> None:
    """Those of which something has come, oldest first."""
    with closing(filled(path, "ada")) as store:
        for at, user in enumerate(("ben", "cyd"), 1):
            for event in LIFE[:2]:
                later = replace(event, begun_at=NOON + at) if isinstance(event, Submitted) else event
                store.take(replace(later, session=user, username=user))
        store.take(replace(SUBMITTED, session="open", username="eve", begun_at=NOON + 9))

        assert [session.username for session in store.promised(2)] == ["ben", "cyd"]


@pytest.mark.parametrize("fault", ["missing", "no folder", "another file"])
def test_a_file_that_cannot_be_used(path: Path, fault: str) -> None:
    """Each is told."""
    if fault == "another file":
        path.write_text("not a database, but a text that is long enough to look like one" * 50)
    expected = StoreError if fault == "another file" else ConfigError
    with pytest.raises(expected):
        SessionStore(path.parent / "no" / "folder" if fault == "no folder" else path, create=fault != "missing")
