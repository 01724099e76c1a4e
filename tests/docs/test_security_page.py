"""The page on security names tests; each of them is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "security.md").read_text("utf-8")


def test_every_test_that_the_page_names_is_there() -> None:
    """Every named test exists, and every boundary names one."""
    named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", PAGE)
    there = {
        (path.name, node.name)
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    boundaries = PAGE.partition("## How the boundaries are enforced")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (?!boundary|---)(.*) \|$", boundaries, re.MULTILINE)

    assert len(named) > 30
    assert [pair for pair in named if pair not in there] == []
    assert [row for row in rows if "::test_" not in row] == []
