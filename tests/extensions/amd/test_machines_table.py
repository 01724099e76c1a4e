"""What a server gets on machines with AMD's GPUs, as the documentation shows it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("table", ["machines", "placement"])
def test_the_tables_of_machines_are_the_scripts_own(table: str) -> None:
    """What a server gets on them, with cores and memory beside its GPUs, and what that is worth."""
    printed = subprocess.run(
        [sys.executable, "-m", f"benchmarks.extensions.amd.{table}_table"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    page = (ROOT / "docs" / "explanation" / f"{table}-table.md").read_text("utf-8")

    assert printed.stdout in page
