"""The table in the documentation is what the script prints today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_table_of_losses_is_the_scripts_own() -> None:
    """All figures in it come from the benchmark."""
    printed = subprocess.run(
        [sys.executable, "benchmarks/placement_table.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    page = (ROOT / "docs" / "explanation" / "placement-table.md").read_text("utf-8")

    assert page.endswith(printed.stdout)
