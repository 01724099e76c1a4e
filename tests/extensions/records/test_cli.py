"""``gpuspawner sessions``: list, export, report and forget."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import Result
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from jupyterhub_gpuspawner.cli.main import main
from jupyterhub_gpuspawner.extensions.records.store import SessionStore
from jupyterhub_gpuspawner.hub.start.submission import RecordedStart, StartRecords
from tests.cli.runner import cli_runner
from tests.extensions.records.events import LIFE
from tests.fixtures.databases import with_tables


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A hub's configuration, and beside its database the records of six people."""
    path = tmp_path / "jupyterhub_config.py"
    path.write_text('c.JupyterHub.spawner_class = "gpu-profiles"\n')
    with closing(SessionStore(tmp_path / "sessions.sqlite")) as store:
        for user in ("ada", "ben", "cid", "dot", "eve", "fay"):
            for event in LIFE:
                store.take(replace(event, session=f"of {user}", username=user))
    return path


def run(config: Path, *words: str) -> Result:
    return cli_runner().invoke(main, ["sessions", *words, "--config", str(config)])


def test_sessions_are_listed(config: Path) -> None:
    """As a line for people, or as JSON."""
    line = run(config, "list", "--user", "ada").stdout
    record = json.loads(run(config, "list", "--user", "ada", "--json").stdout)

    assert "ada/second  two-k80  g3  2 x Tesla K80  waited 45 s  ran 10 min  time limit" in line
    held = (record["cause"], record["wait_seconds"], record["gpu_seconds_held"])
    assert (record["version"], *held) == (1, {"kind": "time limit"}, 45.0, 1228.0)
    assert run(config, "list", "--since", "1h").stdout == ""


def test_an_export_says_that_it_has_made_the_key(config: Path) -> None:
    """Only the first one does; the second has the same pseudonyms."""
    folders = [config.parent / "one", config.parent / "two"]
    first, second = (run(config, "export", "--output", str(folder)) for folder in folders)

    key = config.parent / "sessions.key"
    assert first.stderr == f"Made the key of the pseudonyms, {key}: whoever has it can recognise names.\n"
    assert second.stderr == ""
    assert first.stdout == f"6 sessions in {folders[0]}: 0 of them coarser, and 0 left out.\n"
    assert len({(folder / "sessions.csv").read_text() for folder in folders}) == 1


def test_a_report_is_for_all_or_for_a_course(config: Path) -> None:
    """Written to the file that is named."""
    pages = [config.parent / name for name in ("all.html", "course.html", "none.html")]
    outputs = [
        run(config, "report", "--output", str(page), *course).stdout
        for page, course in zip(pages, ((), ("--course", "dl"), ("--course", "other")), strict=True)
    ]

    assert outputs == [
        f"{pages[0]}: 6 sessions of 6 people.\n",
        f"{pages[1]}: 6 sessions of 6 people.\n",
        f"{pages[2]}: 0 sessions of 0 people.\n",
    ]
    assert "Sessions of course dl" in pages[1].read_text()


def test_a_user_is_forgotten(config: Path) -> None:
    """With the starts in the hub's database; the command says what it cannot reach."""
    engine = with_tables(create_engine(f"sqlite:///{config.parent / 'jupyterhub.sqlite'}"))
    with Session(engine) as session:
        for start, user in (("0a-1", "ada"), ("0a-2", "ada"), ("0a-3", "ben")):
            asyncio.run(StartRecords(session).add(start, RecordedStart(user, "")))
    config.write_text(f"{config.read_text()}c.JupyterHub.db_url = '{config.parent / 'jupyterhub.sqlite'}'\n")
    done = run(config, "forget", "ada")

    assert (done.exit_code, [line for line in done.stdout.splitlines() if not line.startswith("0 ")]) == (
        0,
        [
            "1 session of ada deleted.",
            "2 starts of ada deleted.",
            "Exported files, event logs and backups are out of reach.",
        ],
    )
    left = run(config, "list", "--user", "ada")
    assert (left.stdout, left.stderr) == ("", "There are no such sessions.\n")
    with Session(engine) as session:
        assert StartRecords(session).find(["0a-1", "0a-2", "0a-3"]) == {"0a-3": RecordedStart("ben", "")}
    engine.dispose()


def test_a_database_that_is_not_there_is_an_error(config: Path) -> None:
    """The sessions are deleted all the same."""
    config.write_text(f"{config.read_text()}c.JupyterHub.db_url = '{config.parent / 'none.sqlite'}'\n")
    done = run(config, "forget", "ada")

    assert (done.exit_code, done.stdout) == (1, "1 session of ada deleted.\n")
    assert "there is no database" in done.stderr


def test_a_hub_without_records(config: Path) -> None:
    """The message names the file, and where the hub makes it."""
    (config.parent / "sessions.sqlite").unlink()
    answer = run(config, "list")

    assert answer.exit_code == 1
    assert "there is no file" in answer.stderr
    assert "beside its database" in answer.stderr


def test_a_hub_that_does_not_run_in_the_folder_of_its_configuration(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records are in its working directory, where the command is run."""
    elsewhere = tmp_path / "etc" / "jupyterhub_config.py"
    elsewhere.parent.mkdir()
    elsewhere.write_text(config.read_text())
    monkeypatch.chdir(tmp_path)

    assert run(elsewhere, "list", "--user", "ada").stdout.count("ada/second") == 1
