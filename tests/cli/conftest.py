"""Fixtures for calling the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

import jupyterhub_gpuspawner
from jupyterhub_gpuspawner.cli.main import main
from tests.cli.runner import cli_runner

if TYPE_CHECKING:
    from click.testing import Result

TEXTS = Path(__file__).parents[1] / "data" / "topo-m"
MACHINES = Path(jupyterhub_gpuspawner.__file__).parent / "demo" / "machines"


class Call(Protocol):
    """Run ``gpuspawner`` with these arguments."""

    def __call__(self, *arguments: object, stdin: str = "") -> Result: ...


@pytest.fixture
def gpuspawner() -> Call:
    """The program, called within this process."""

    def call(*arguments: object, stdin: str = "") -> Result:
        return cli_runner().invoke(main, [str(argument) for argument in arguments], input=stdin)

    return call
