"""The list of commands, which is printed without importing what they need."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest

from jupyterhub_gpuspawner.cli.main import commands, main
from jupyterhub_gpuspawner.cli.options import since
from tests.cli.runner import cli_runner


def test_the_list_of_commands_has_the_first_sentence_of_the_help_of_each() -> None:
    """So that the list need not import them."""
    context = click.Context(main)
    helps = {name: (command.help or "") if (command := main.get_command(context, name)) else "" for name in commands()}

    assert {name: " ".join(text.split("\n\n")[0].split()) for name, text in helps.items()} == {
        name: command.sentence for name, (_, command) in commands().items()
    }


def test_help_and_place_import_neither_jupyterhub_nor_pydantic() -> None:
    """They are called in jobs and by shells, and must start fast."""
    program = (
        "import sys; from jupyterhub_gpuspawner.cli.main import main; main(sys.argv[1:], standalone_mode=False); "
        "print(*sorted({'jupyterhub', 'pydantic', 'sqlalchemy', 'tornado'} & {*sys.modules}))"
    )
    for words in (["--help"], ["place", "--help"]):
        done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == ""


@pytest.mark.parametrize("time", ["yesterday", "7", "4y"])
def test_a_time_that_is_none_is_refused(time: str) -> None:
    """With examples of times."""
    with pytest.raises(click.BadParameter) as refused:
        since(click.Context(main), click.Option(["--since"]), time)

    assert refused.value.message == f"{time!r} is not a time: use for example 90min, 12h, 30d, 4w or 2026-03-02."


# Commands of an account that may not enter the hub's folder, as where an admin has forgotten sudo.

AS_THE_HUB = "cannot be read by this account. Run the command as the hub's account."
CONFIGURATION = """
c.JupyterHub.spawner_class = "gpu-profiles"
c.JupyterHub.cleanup_servers = False
c.Authenticator.allow_all = True
c.GPUSlurmSpawner.slurm_bin_dir = "/no/such/folder"
c.GPUProfilesSpawner.profiles = [{"display_name": "CPU", "slurm": {"cpus": 1}}]
"""


@pytest.fixture
def closed(public_folder: Path) -> Iterator[Path]:
    """A hub's folder, with its configuration; beside it is a configuration that everybody may read."""
    folder = public_folder / "closed"
    folder.mkdir()
    lines = f"{CONFIGURATION}c.JupyterHub.db_url = 'sqlite:///{folder}/jupyterhub.sqlite'\n"
    for path in (folder, public_folder):
        (path / "jupyterhub_config.py").write_text(lines)
    (public_folder / "jupyterhub_config.py").chmod(0o644)
    yield folder
    shutil.rmtree(folder)
    (public_folder / "jupyterhub_config.py").unlink()


@contextmanager
def another_account(closed: Path) -> Iterator[None]:
    """Be an account that may not enter this folder."""
    own = os.geteuid()
    closed.chmod(0)
    if own == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(own)
        closed.chmod(0o755)


FILES = {
    "check --config closed/jupyterhub_config.py": ["jupyterhub_config.py"],
    "idle --config closed/jupyterhub_config.py": ["jupyterhub_config.py"],
    "migrate closed/jupyterhub_config.py": ["jupyterhub_config.py"],
    "sessions list --database closed/sessions.sqlite": ["sessions.sqlite"],
    "sessions list": ["sessions.sqlite"],
    "sessions forget ada": ["sessions.sqlite", "jupyterhub.sqlite"],
    "failures": ["sessions.sqlite"],
    "why ada": ["sessions.sqlite"],
    "idle": ["jupyterhub.sqlite"],
    "fleet --gres-conf g1": ["jupyterhub.sqlite"],
}
"""The commands that read files of the hub, those of extensions where they are installed."""


@pytest.mark.parametrize(
    ("words", "files"), [(words, files) for words, files in FILES.items() if words.split()[0] in commands()]
)
def test_a_command_names_the_files_in_a_folder_that_its_account_may_not_enter(
    closed: Path, monkeypatch: pytest.MonkeyPatch, words: str, files: list[str]
) -> None:
    """With what to do, and without saying that they are not there."""
    monkeypatch.chdir(closed.parent)
    cli_runner().invoke(main, [words.split()[0], "--help"])  # this account imports what the command needs
    with another_account(closed):
        done = cli_runner().invoke(main, words.split())

    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [f"gpuspawner: {closed / file} {AS_THE_HUB}" for file in files]


def test_a_check_goes_on_without_a_database_that_its_account_may_not_read(
    closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One finding says so; no check is called defective."""
    monkeypatch.chdir(closed.parent)
    cli_runner().invoke(main, ["check", "--help"])
    with another_account(closed):
        checked = cli_runner().invoke(main, ["check", "--json"])

    findings = json.loads(checked.stdout)["findings"]
    assert [finding["code"] for finding in findings] == ["profile", "slurm-silent", "database-unread"]
    unread = findings[-1]
    told = (unread["severity"], unread["where"], f"{unread['text']} {unread['fix']}")
    assert told == ("warning", "database", f"{closed / 'jupyterhub.sqlite'} {AS_THE_HUB}")
