"""The pages on reliability and on accessibility name existing tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = {ROOT / "docs" / "explanation" / "reliability.md": 40, ROOT / "docs" / "explanation" / "accessibility.md": 12}
"""The pages, with the number of tests that each names at least."""


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8")


@pytest.mark.parametrize(("page", "least"), PAGES.items(), ids=lambda value: getattr(value, "stem", ""))
def test_every_test_that_the_page_names_is_there(page: Path, least: int) -> None:
    """A fault whose test was renamed or removed is found here."""
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", _text(page))
    missing = [
        f"{file}::{name}"
        for file, name in named
        if not (ROOT / file).is_file()
        or not re.search(rf"^ *(?:async )?def {name}\(", _text(ROOT / file), re.MULTILINE)
    ]

    assert len(named) > least
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_row_of_the_page_names_its_test(page: Path) -> None:
    """Every row names a test."""
    rows = [line for line in _text(page).splitlines() if line.startswith("| ") and "---" not in line]
    heads = {row for row in rows if row.rstrip(" |").endswith("shown by")}

    assert [row for row in rows if row not in heads and "::test_" not in row] == []
