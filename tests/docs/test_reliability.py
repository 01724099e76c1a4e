"""The page on reliability names existing tests."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "reliability.md"


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def test_every_test_that_the_page_names_is_there() -> None:
    """A fault whose test was renamed or removed is found here."""
    root = PAGE.parents[2]
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE.read_text())
    missing = [
        f"{file}::{name}"
        for file, name in named
        if not (root / file).is_file()
        or not re.search(rf"^ *(?:async )?def {name}\(", _text(root / file), re.MULTILINE)
    ]

    assert len(named) > 40
    assert missing == []


def test_every_row_of_the_page_names_its_test() -> None:
    """Every row names a test."""
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and "---" not in line]
    heads = {row for row in rows if row.rstrip(" |").endswith("shown by")}

    assert [row for row in rows if row not in heads and "::test_" not in row] == []
