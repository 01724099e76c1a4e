"""Idle times in the hub's database: what a restarted hub goes on with, and what the command lists."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from jupyterhub_gpuspawner.cli.main import main
from jupyterhub_gpuspawner.extensions.idle.times import RETENTION_SECONDS, IdleTime, IdleTimes, due_since
from tests.fixtures.databases import disposed, new_database, session_of

NOW = 1_772_442_000.0
SHORT = IdleTime("ada", "", "k80", "12", 2, NOW - 1500, NOW - 300, most=1.0, held_mib=400, keeps=1, kept=1800.0)
LONG = IdleTime("ben", "two", "a100", "13", 4, NOW - 9000, NOW - 1800, 2.0, 9000, NOW - 5400, over=True, stopped=True)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return new_database(tmp_path)


@pytest.fixture
def session(url: str) -> Iterator[Session]:
    with session_of(url) as session:
        yield session


def test_a_restarted_hub_goes_on_with_what_is_not_over(session: Session) -> None:
    """And knows how often each server was kept."""
    short, _ = IdleTimes(session).write([SHORT, LONG])

    times = IdleTimes(session)
    assert times.to_take_up() == [short]
    assert times.keeps() == {("ada", "", "12"): 1}


def test_a_row_is_brought_up_to_date(session: Session) -> None:
    """It stays one row while the time without use goes on."""
    times = IdleTimes(session)
    (row,) = times.write([SHORT])
    later = replace(row, seen=NOW, due_at=NOW - 60)
    times.write([later])

    assert due_since(session.connection(), NOW - 86400) == [later]


def test_rows_are_kept_for_400_days(session: Session) -> None:
    """They name people."""
    now = time.time()
    IdleTimes(session).write(
        [
            replace(SHORT, seen=now - RETENTION_SECONDS - 60),
            replace(SHORT, user="ben", seen=now - RETENTION_SECONDS + 60),
        ]
    )
    IdleTimes(session).forget_old()

    assert IdleTimes(session).keeps() == {("ben", "", "12"): 1}


def test_a_database_of_a_hub_that_never_looked_has_nothing(url: str) -> None:
    """The command makes no table."""
    with disposed(create_engine(url)) as engine, engine.connect() as connection:
        assert due_since(connection, 0.0) == ()


def run_idle(folder: Path, url: str, *words: str) -> tuple[int, str]:
    config = folder / "jupyterhub_config.py"
    config.write_text(f"c.JupyterHub.db_url = {url!r}\n")
    result = CliRunner().invoke(main, ["idle", "-f", str(config), *words])
    return result.exit_code, result.output


def test_the_command_lists_whom_the_policy_would_have_stopped(session: Session, url: str, tmp_path: Path) -> None:
    """Four GPUs for two hours, of which one was after the server was due; what was never due is not listed."""
    IdleTimes(session).write([SHORT, LONG])

    code, text = run_idle(tmp_path, url, "--since", "3650d")
    head, row, total = text.splitlines()
    assert (code, head.split()[:5], row.split()[:5]) == (
        0,
        ["user", "server", "profile", "job", "GPUs"],
        ["ben", "two", "a100", "13", "4"],
    )
    assert row.split()[-3:] == ["stopped", "8.0", "4.0"]
    assert total == "1 time, 8.0 GPU-hours unused, 4.0 of them after the server was due."

    document = json.loads(run_idle(tmp_path, url, "--since", "3650d", "--json")[1])
    assert (document["gpu_hours"], document["gpu_hours_after_due"]) == (8.0, 4.0)
    assert [(server["user"], server["due_at"]) for server in document["servers"]] == [
        ("ben", "2026-03-02T07:30:00+00:00")
    ]


def test_a_database_that_is_not_there_is_named(tmp_path: Path) -> None:
    """It is not made by the command."""
    database = tmp_path / "jupyterhub.sqlite"
    code, text = run_idle(tmp_path, f"sqlite:///{database}")

    assert (code, database.exists()) == (1, False)
    assert f"c.JupyterHub.db_url: there is no database {database}." in text
