"""``gpuspawner sessions forget``: idle times of a person are deleted, too, with or without records."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyterhub_gpuspawner.extensions.idle.times import IdleTime, IdleTimes, due_since
from tests.extensions.records.test_cli import config, run
from tests.fixtures.databases import session_of

__all__ = ["config"]  # the fixture


def test_the_idle_times_of_others_stay(config: Path) -> None:
    """The command says what it has deleted."""
    database = config.parent / "jupyterhub.sqlite"
    config.write_text(f"{config.read_text()}c.JupyterHub.db_url = '{database}'\n")
    with session_of(f"sqlite:///{database}") as session:
        IdleTimes(session).write([IdleTime(user, "", "k80", "12", 2, 0.0, 9e9, due_at=1.0) for user in ("ada", "ben")])
        done = run(config, "forget", "ada")

        assert [idle_time.user for idle_time in due_since(session.connection(), 0.0)] == ["ben"]
    assert (done.exit_code, [line for line in done.stdout.splitlines() if not line.startswith("0 ")]) == (
        0,
        [
            "1 session of ada deleted.",
            "1 idle time of ada deleted.",
            "Exported files, event logs and backups are out of reach.",
        ],
    )


@pytest.mark.parametrize(
    ("lines", "code", "message"),
    [("c.GPUSessions.enabled = False\n", 0, "0 sessions of ada deleted."), ("", 1, "there is no file")],
    ids=["records are off", "the records are gone"],
)
def test_idle_times_are_deleted_where_there_are_no_records(config: Path, lines: str, code: int, message: str) -> None:
    """A request to be forgotten holds for both, and neither keeps the other from it."""
    (config.parent / "sessions.sqlite").unlink()
    database = config.parent / "jupyterhub.sqlite"
    config.write_text(f"{config.read_text()}{lines}c.JupyterHub.db_url = '{database}'\n")
    with session_of(f"sqlite:///{database}") as session:
        IdleTimes(session).write([IdleTime("ada", "", "k80", "12", 2, 0.0, 9e9, due_at=1.0)])
        done = run(config, "forget", "ada")

        assert list(due_since(session.connection(), 0.0)) == []
    assert (done.exit_code, "1 idle time of ada deleted." in done.stdout) == (code, True)
    assert message in done.stdout + done.stderr
