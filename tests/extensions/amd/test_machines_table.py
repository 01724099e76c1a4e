"""What a server gets on machines with AMD's GPUs, as the documentation shows it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_table_of_machines_is_the_scripts_own() -> None:
    """GPUs in the order of their XGMI ring, with cores and memory beside them."""
    printed = subprocess.run(
        [sys.executable, "-m", "benchmarks.extensions.amd.machines_table"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    page = (ROOT / "docs" / "explanation" / "machines-table.md").read_text("utf-8")

    assert printed.stdout in page
