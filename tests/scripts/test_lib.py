"""The scripts: a test that fails twice fails the run, and shellcheck finds nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = [path for path in (*(ROOT / "scripts").iterdir(), ROOT / ".ci" / "run") if path.suffix in {"", ".sh"}]


def bash(script: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run ``script`` after scripts/lib.sh."""
    argv = ["bash", "-c", f"set -euo pipefail; . scripts/lib.sh; {script}", "lib", *map(str, arguments)]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)


TRIES = {
    "all pass": ("assert True", "assert True", 0, "2 passed", ""),
    "one passes when it is run again": ("assert True", "assert again()", 0, "2 passed", "the 1 that failed"),
    "one fails twice": ("assert True", "assert False", 1, "1 failed, 1 passed", "the 1 that failed"),
    "too many fail": ("assert True", "assert number > 4", 1, "4 failed, 3 passed", ""),
}


@pytest.mark.parametrize(("one", "other", "status", "counted", "said"), TRIES.values(), ids=TRIES.keys())
def test_what_fails_by_chance_is_run_again(
    one: str, other: str, status: int, counted: str, said: str, tmp_path: Path
) -> None:
    """Up to three tests, once; a test that was run again counts with its last result."""
    results = tmp_path / "results"
    results.mkdir()
    numbers = range(1, 7) if "number" in other else range(1)
    (tmp_path / "test_it.py").write_text(
        f"""import pytest
from pathlib import Path

def again():
    seen = Path("seen")
    found = seen.exists()
    seen.touch()
    return found

def test_one():
    {one}

@pytest.mark.parametrize("number", {list(numbers)})
def test_other(number):
    {other}
"""
    )
    run = "cd $1; mkdir -p .venv; ln -sfn $2 .venv/bin; live $1/results whole $3 -m pytest -q -p no:randomly test_it.py"
    done = bash(f"{run} || echo status $?; total 7 $1/results", tmp_path, Path(sys.executable).parent, sys.executable)

    lines = done.stdout.splitlines()
    assert (lines[-1], lines[-2] == "status 1") == (f"===== {counted} in 7.00s =====", bool(status)), done.stdout
    assert [line for line in lines if line.startswith("==> Run")] == (
        [f"==> Run again, one after the other: {said}"] if said else []
    )


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_finds_nothing() -> None:
    """Every shell script passes shellcheck."""
    shell = [str(path.relative_to(ROOT)) for path in SCRIPTS if b"sh" in path.read_bytes().splitlines()[0]]
    done = subprocess.run(["shellcheck", "-x", *shell], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == ""
