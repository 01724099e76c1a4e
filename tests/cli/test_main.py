"""The list of commands, which is printed without importing what they need."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from jupyterhub_gpuspawner.cli.main import COMMANDS, main
from tests.cli.runner import cli_runner


def test_the_list_of_commands_has_the_first_sentence_of_the_help_of_each() -> None:
    """So that the list need not import them."""
    context = click.Context(main)
    helps = {name: (command.help or "") if (command := main.get_command(context, name)) else "" for name in COMMANDS}

    assert {name: " ".join(text.split("\n\n")[0].split()) for name, text in helps.items()} == {
        name: sentence for name, (_, sentence) in COMMANDS.items()
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


@pytest.mark.parametrize("words", [("sessions", "list"), ("idle",)], ids=" ".join)
@pytest.mark.parametrize("time", ["yesterday", "7", "4y"])
def test_a_time_that_is_none_is_refused(words: tuple[str, ...], time: str) -> None:
    """With examples of times."""
    done = cli_runner().invoke(main, [*words, "--since", time])

    assert done.exit_code == 2
    assert f"{time!r} is not a time: use for example 90min, 12h, 30d, 4w or 2026-03-02." in done.stderr
