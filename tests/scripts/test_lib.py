"""The scripts: how runs of pytest are summed up, and what is left out of them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import quarantined

ROOT = Path(__file__).parents[2]


def bash(script: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run ``script`` after scripts/lib.sh."""
    argv = ["bash", "-c", f"set -euo pipefail; . scripts/lib.sh; {script}", "lib", *map(str, arguments)]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)


PARTS = {
    "all pass": ({"units": "12 passed in 3.00s", "real": "4 passed, 1 skipped in 9.00s"}, "16 passed, 1 skipped"),
    "one fails": ({"units": "1 failed, 2 passed in 3.00s", "vm": "3 deselected in 1.00s"}, "1 failed, 2 passed"),
    "a fixture fails": (
        {"units": "1 error in 3.00s", "real": "2 errors in 1.00s"},
        "1 error, 2 errors",
    ),
}


@pytest.mark.parametrize(("parts", "summary"), PARTS.values(), ids=PARTS.keys())
def test_the_parts_of_a_run_have_one_summary(parts: dict[str, str], summary: str, tmp_path: Path) -> None:
    """Each part's last line is counted."""
    for name, line in parts.items():
        (tmp_path / name).write_text(f"...... [100%]\n{line}\n")

    assert bash("total 7 $1", tmp_path).stdout == f"===== {summary} in 7.00s =====\n"


def test_a_test_in_quarantine_exists_and_has_a_reason() -> None:
    """A line of tests/quarantine.txt whose test is gone, or that does not say why, is taken out."""
    for test, reason in quarantined().items():
        path, _, name = test.partition("::")
        assert re.search(rf"def {name.rpartition('::')[2]}\b", (ROOT / path).read_text()), test
        assert reason, test
