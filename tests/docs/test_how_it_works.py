"""How it works, for whoever opens the code: the modules that it names are there, and all that is replaced is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.hub import routes

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "jupyterhub_gpuspawner"
PAGE = (ROOT / "docs" / "explanation" / "how-it-works.md").read_text("utf-8")
FOLDERS = "|".join(sorted(folder.name for folder in PACKAGE.iterdir() if folder.is_dir()))
MODULES = sorted(set(re.findall(rf"`((?:{FOLDERS})/[\w/]*\w)(?:\.py)?`", PAGE)))
HANDLERS = dict(re.findall(r"(?m)^\| `(\w+Handler)` \| `([\w/]+)` \|", PAGE))


@pytest.mark.parametrize("module", MODULES)
def test_a_module_that_it_names_is_there(module: str) -> None:
    """As a file, or as a folder."""
    assert (PACKAGE / f"{module}.py").is_file() or (PACKAGE / module).is_dir()


def test_it_names_each_handler_of_jupyterhub_that_is_replaced_with_the_module_of_ours() -> None:
    """And no other."""
    modules = {theirs.__name__: ours.__module__ for theirs, ours in routes.REPLACED.items()}
    assert {name: f"jupyterhub_gpuspawner.{module}".replace("/", ".") for name, module in HANDLERS.items()} == modules
