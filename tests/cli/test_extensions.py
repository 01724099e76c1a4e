"""``gpuspawner extensions``."""

from __future__ import annotations

import json

import pytest

from jupyterhub_gpuspawner.cli import extensions as command
from jupyterhub_gpuspawner.cli.main import main
from jupyterhub_gpuspawner.extension import Extension, Extensions, Fault, installed
from tests.cli.runner import cli_runner


def test_each_extension_is_listed_with_what_it_adds() -> None:
    """One document for each; everything that they refer to can be loaded."""
    result = cli_runner().invoke(main, ["extensions", "--json"])
    documents = [json.loads(line) for line in result.stdout.splitlines()]

    assert (result.exit_code, result.stderr) == (0, "")
    assert [document["name"] for document in documents] == list(installed().names)
    assert [document["name"] for document in documents if not document["adds"]] == []


def test_one_that_cannot_be_used_is_named_and_the_others_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The status says so to scripts."""
    extensions = Extensions(
        (
            Extension("lost", "Refers to what is not there.", hub=".hub:HUB", package="lost"),
            Extension("bare", "Adds nothing.", needs=("lost",)),
        ),
        (Fault("faulty", "It cannot be imported."),),
    )
    monkeypatch.setattr(command, "installed", lambda: extensions)
    result = cli_runner().invoke(main, ["extensions"])

    assert result.stdout == "bare (needs lost): Adds nothing.\n\n"
    assert result.stderr.splitlines() == [
        "The extension faulty is left out: It cannot be imported.",
        "The extension lost cannot be loaded: ModuleNotFoundError: No module named 'lost'",
    ]
    assert result.exit_code == 1
