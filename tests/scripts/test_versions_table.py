"""The table of versions is what the matrix wrote, and where other versions come from is read from Debian's lists."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
JUNIT = """<testsuites><testsuite>
<testcase classname="tests.node.test_launch" name="test_a_job_is_placed_reported_and_started[3.9]"/>
<testcase classname="tests.node.test_launch" name="test_a_job_is_placed_reported_and_started[3.14]"/>
<testcase classname="tests.slurm.test_client" name="test_a"><failure/></testcase>
<testcase classname="tests.slurm.test_client" name="test_b"><error/><skipped/></testcase>
<testcase classname="tests.slurm.test_client" name="test_c"><skipped/></testcase>
</testsuite></testsuites>"""
LISTING = """\
Package: slurm-client
Version: 1.0
Depends: slurmctld

Package: slurmctld
Source: slurm-wlm
Description: daemon
 of several
 lines
Version: 24.11.5-4
Filename: pool/s.deb

Package: slurmd
Version: 2.0
"""


def script(name: str) -> ModuleType:
    """A script as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


versions_table = script("versions_table")
debian_suites = script("debian_suites")


def test_the_table_in_the_documentation_is_that_of_the_results() -> None:
    """Nobody typed a number into it: scripts/versions_table.py writes it."""
    assert versions_table.TABLE.read_text("utf-8") == versions_table.table(versions_table.read())


def test_no_result_in_the_documentation_contradicts_itself() -> None:
    """The counts that pytest printed, JUnit's number of tests and the names of the failures are of the same run."""
    results = [row for row in versions_table.read() if "absent" not in row]

    assert [problem for row in results if (problem := versions_table.contradiction(row))] == []
    assert [row["name"] for row in results if not re.fullmatch("[0-9a-f]{12}", row["commit"])] == []


@pytest.mark.parametrize(
    ("edited", "problem"),
    [
        ({}, ""),
        (
            {"summary": "1 failed, 22 passed, 3 skipped in 8s", "failures": ["test_a"]},
            "slurm-26.05, hub: pytest printed '1 failed, 22 passed, 3 skipped in 8s', and JUnit has 38 tests",
        ),
        (
            {"failures": ["test_a"]},
            "slurm-26.05, hub: pytest printed '12 failed, 22 passed, 3 skipped, 1 error in 8s', and names 1",
        ),
    ],
)
def test_a_result_that_was_edited_by_hand_contradicts_itself(edited: dict[str, object], problem: str) -> None:
    """Whoever takes failures out of a result has three figures that must agree."""
    summary = "12 failed, 22 passed, 3 skipped, 1 error in 8s"
    result = row("slurm-26.05", "hub", summary=summary, tests=38, failures=[f"test_{n}" for n in range(13)])

    assert versions_table.contradiction(result | edited) == problem


def test_every_environment_of_the_matrix_is_in_the_table() -> None:
    """With its results, with the reason why it could not be had, or as one that was not run; and no others are."""
    page = versions_table.TABLE.read_text("utf-8")

    assert [name for name in versions_table.names() if name not in page] == []
    assert {row["name"] for row in versions_table.read()} <= set(versions_table.names())


def test_a_run_of_pytest_is_read(tmp_path: Path) -> None:
    """Errors are failures; the Pythons that started the launcher are those of the test's parameters."""
    junit = tmp_path / "junit.xml"
    junit.write_text(JUNIT)

    assert versions_table.outcome(junit, "...\n== 1 failed, 2 passed, 1 skipped, 1 error in 9.01s ==\n") == {
        "summary": "1 failed, 2 passed, 1 skipped, 1 error in 9.01s",
        "tests": 5,
        "failures": ["test_client.test_a", "test_client.test_b"],
        "launcher": ["3.9", "3.14"],
    }


def row(name: str, part: str = "", **values: object) -> dict[str, object]:
    """A row of the results."""
    return {"name": name, "part": part, **values} if part else {"name": name, **values}


def test_a_new_result_replaces_the_one_before_it() -> None:
    """A result of the same part is replaced, a note that there was none too; rows are in the order of versions."""
    before = [row("python-3.9", "units", n=1), row("python-3.14", absent="no"), row("slurm-22.05", "hub")]
    found = versions_table.kept(before, row("python-3.14", "units", n=2))
    again = versions_table.kept(found, row("python-3.14", "units", n=3))

    assert again == [row("python-3.9", "units", n=1), row("python-3.14", "units", n=3), row("slurm-22.05", "hub")]
    assert versions_table.kept(again, row("slurm-22.05", absent="gone"))[-1] == row("slurm-22.05", absent="gone")


@pytest.mark.parametrize(
    ("package", "version"), [("slurmctld", "24.11.5-4"), ("slurm-client", "1.0"), ("slurm", None), ("slurmd", "2.0")]
)
def test_a_version_is_that_of_the_package_itself(package: str, version: str | None) -> None:
    """Not of the one before or after it in the list."""
    assert debian_suites.version(package, LISTING) == version


@pytest.mark.parametrize(
    ("file", "text", "mirror"),
    [
        (
            "sources.list",
            "deb [signed-by=/k] http://mirror.example/debian bookworm main\n",
            "http://mirror.example/debian",
        ),
        ("sources.list.d/debian.sources", "Types: deb\nURIs: http://m.example/debian/\n", "http://m.example/debian"),
        ("sources.list.d/other.list", "deb https://other.example/node nodistro main\n", debian_suites.DEFAULT),
    ],
)
def test_the_mirror_is_that_of_this_machine(tmp_path: Path, file: str, text: str, mirror: str) -> None:
    """In both formats of apt's lists, and not one of another distributor."""
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / file).write_text(text)

    assert debian_suites.mirror(tmp_path) == mirror


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("24.11", (0, "trixie\n")),
        ("26.05", (0, "forky\n")),
        ("2.1", (1, "trixie 1:24.11.5-4 forky 26.05.5-1 sid 26.05.5-1\n")),
    ],
)
def test_the_first_suite_with_a_version_is_taken(tmp_path: Path, wanted: str, said: tuple[int, str]) -> None:
    """If there is none, what the suites have is printed, for the table."""
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nprintf 'trixie 1:24.11.5-4\\nforky 26.05.5-1\\nsid 26.05.5-1\\n'\n")
    python.chmod(0o755)
    line = f". {ROOT}/scripts/lib.sh; suite_with slurmctld {wanted}"
    done = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, env=os.environ, check=False
    )

    assert (done.returncode, done.stdout) == said
