"""scripts/lib.sh finds and reports what is missing, and changes nothing else."""

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


@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="not Debian")
def test_only_what_is_absent_is_missing(tmp_path: Path) -> None:
    """A package is missing if its command is, or if it has no command and is not installed."""
    listed = tmp_path / "apt.txt"
    listed.write_text("# comment\n\nbash bash\nanything bash\nbase-files\nno-such-package\nother no-such-command\n")
    assert bash("missing_packages $1", listed).stdout.split() == ["no-such-package", "other"]


@pytest.mark.parametrize(
    ("without", "said"),
    [
        (
            "have() { [ $1 != apt-get ]; }",
            "not installed here: other (names of Debian packages). Continuing without them.",
        ),
        (
            "have() { [ $1 != other-command ]; }; can_be_root() { false; }",
            "not installed here: other. Continuing without them. To install them: sudo apt-get install other",
        ),
    ],
    ids=["no-apt", "no-root"],
)
def test_what_cannot_be_installed_is_told_and_no_end(tmp_path: Path, without: str, said: str) -> None:
    """Without apt, or without root and sudo, the scripts continue and report what is missing."""
    listed = tmp_path / "apt.txt"
    listed.write_text("other other-command\n")
    done = bash(f"missing_packages() {{ echo other; }}; {without}; system_packages $1; echo on", listed)
    assert (done.returncode, done.stdout, done.stderr) == (0, "on\n", f"warning: {said}\n")


def test_a_folder_is_open_to_all_only_if_its_parents_are(tmp_path: Path) -> None:
    """One private parent folder is enough to keep other users out."""
    inner = tmp_path / "closed" / "inner"
    inner.mkdir(parents=True)
    inner.parent.chmod(0o700)
    assert bash("open_to_all /usr/bin && echo open").stdout == "open\n"
    assert bash("open_to_all $1 || echo closed", inner).stdout == "closed\n"


def test_a_command_that_works_is_quiet_and_one_that_fails_is_not() -> None:
    """Output is shown only for a command that fails, with its exit status."""
    assert bash("quietly echo hello").stdout == ""
    failed = bash("quietly sh -c 'echo because; exit 3'")
    assert (failed.returncode, failed.stdout, failed.stderr) == (3, "", "because\n")


def test_runs_of_pytest_are_counted_together(tmp_path: Path) -> None:
    """By the last line of each, with and without ornament, in one line of pytest's form."""
    (tmp_path / "a").write_text("F 9 failed\n=== 1 failed, 10 passed, 2 skipped in 3.00s ===\n")
    (tmp_path / "b").write_text("5 passed, 1 error in 1.00s\n")
    done = bash("total 7 $1", tmp_path)

    assert done.stdout == "===== 1 error, 1 failed, 15 passed, 2 skipped in 7.00s =====\n"


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


def test_a_python_is_found_by_its_version(tmp_path: Path) -> None:
    """One that has that name and is none is passed over; one that is nowhere is no end."""
    here = "{}.{}".format(*sys.version_info)
    (tmp_path / f"python{here}").symlink_to(sys.executable)
    found = bash(f"PATH=$1:$PATH; python_of {here}", tmp_path).stdout.strip()
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout

    assert version.startswith(f"Python {here}.")
    assert bash("python_of 3.99 || echo none").stdout == "none\n"
    assert bash("command() { echo /bin/false; }; python_of 3.10 || echo none").stdout == "none\n"


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_finds_nothing() -> None:
    """Every shell script passes shellcheck."""
    shell = [str(path.relative_to(ROOT)) for path in SCRIPTS if b"sh" in path.read_bytes().splitlines()[0]]
    done = subprocess.run(["shellcheck", "-x", *shell], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == ""
