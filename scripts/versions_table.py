#!/usr/bin/env python3
"""Keep what scripts/matrix found, and write it as a table into the documentation.

Usage:
    scripts/versions_table.py here                           print the versions in this environment as JSON
    scripts/versions_table.py commit                         print the commit that is tested
    scripts/versions_table.py record NAME PART COMMIT VERSIONS JUNIT OUTPUT    keep the result of one run of pytest
    scripts/versions_table.py absent NAME REASON             keep that a version could not be had
    scripts/versions_table.py write                          write the table again

COMMIT is what ``commit`` printed before the run, VERSIONS a file with what ``here`` printed, JUNIT what pytest's
``--junitxml`` wrote, OUTPUT what it printed. The results are in docs/explanation/versions.json; a new result replaces
the one with the same name and part, and all of that name of other commits. A result has the commit that was tested and
pytest's last line, from which the table's counts are read; JUnit's number of tests stands beside it, so that a result
that was edited by hand contradicts itself.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

MATRIX = Path(__file__).resolve().parent / "matrix"
FOLDER = MATRIX.parents[1] / "docs" / "explanation"
RESULTS = FOLDER / "versions.json"
TABLE = FOLDER / "versions-table.md"
POSTGRES = "GPUSPAWNER_TEST_POSTGRES"
HEAD = """\
# Versions, as tested

Written by `scripts/matrix` after each of its runs; nothing here is typed. [Versions](versions.md) says what the
environments are, and what is supported.

| environment | tests | Python | JupyterHub | Slurm | database | passed | failed | skipped | commit | run on |
| --- | --- | --- | --- | --- | --- | ---: | ---: | ---: | --- | --- |
"""
Row = dict[str, Any]


def here() -> dict[str, str]:
    """The versions of the Python that runs this, and of what it would test with."""
    slurm = shutil.which("slurmctld", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    output = subprocess.run([slurm, "-V"], capture_output=True, text=True, check=False).stdout if slurm else ""
    return {
        "python": platform.python_version(),
        "jupyterhub": importlib.metadata.version("jupyterhub"),
        "slurm": output.split()[-1] if output else "",
        "database": "Postgres" if os.environ.get(POSTGRES) else "sqlite",
    }


def commit() -> str:
    """The last commit of other files than the results, with ``-dirty`` where one of these differs from it.

    So the matrix can be interrupted, and its results so far be committed.
    """

    def git(*words: str) -> str:
        command = ["git", *words]
        return subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=True).stdout.strip()

    written = [f":!{name}" for name in (RESULTS.name, TABLE.name, "sites.json", "sites-table.md", "load-table.md")]
    others = (":/", *written)
    changed = git("status", "--porcelain", "--untracked-files=no", "--", *others)
    return git("log", "-1", "--format=%h", "--abbrev=12", "--", *others) + ("-dirty" if changed else "")


def counts(summary: str) -> tuple[int, int, int]:
    """Passed, failed (errors included) and skipped tests of pytest's last line."""
    number = {word.removesuffix("s"): int(digits) for digits, word in re.findall(r"(\d+) ([a-z]+)", summary)}
    return number.get("passed", 0), number.get("failed", 0) + number.get("error", 0), number.get("skipped", 0)


def contradiction(row: Row) -> str:
    """What two of the figures of a result say against each other; empty where they agree."""
    passed, failed, skipped = counts(row["summary"])
    if passed + failed + skipped != row["tests"]:
        return f"{row['name']}, {row['part']}: pytest printed '{row['summary']}', and JUnit has {row['tests']} tests"
    if failed != len(row["failures"]):
        return f"{row['name']}, {row['part']}: pytest printed '{row['summary']}', and names {len(row['failures'])}"
    return ""


def outcome(junit: Path, output: str) -> Row:
    """What one run of pytest printed last, how many tests JUnit has, and the names of those that failed."""
    cases = list(ET.parse(junit).getroot().iter("testcase"))  # noqa: S314 - pytest wrote it
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    row: Row = {
        "summary": output.strip().splitlines()[-1].strip("= "),
        "tests": len(cases),
        "failures": sorted(f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}" for case in failed),
    }
    nodes = {
        started[1]
        for case in cases
        if (started := re.search(r"_placed_reported_and_started\[([\d.]+)\]", str(case.get("name"))))
    }
    if nodes:
        row["launcher"] = sorted(nodes, key=lambda version: [int(part) for part in version.split(".")])
    return row


def merged(rows: list[Row], new: Row) -> list[Row]:
    """The rows with a new one, in the order of the names; all rows of an environment are of one commit."""

    def key(row: Row) -> tuple[str, list[int], str]:
        name, _, version = row["name"].partition("-")
        return name, [int(part) for part in re.findall(r"\d+", version)], row.get("part", "")

    replaced = [
        row
        for row in rows
        if row["name"] == new["name"] and (row.get("commit") != new.get("commit") or row.get("part") == new.get("part"))
    ]
    return sorted([*(row for row in rows if row not in replaced), new], key=key)


def names() -> list[str]:
    """The names of all environments of scripts/matrix."""
    return MATRIX.read_text("utf-8").partition("ALL=(")[2].partition(")")[0].split()


def line(row: Row) -> str:
    """A result as a line of the table."""
    cells = [row["name"], row["part"], row["python"], row["jupyterhub"], row["slurm"] or "-", row["database"]]
    return f"| {' | '.join([*cells, *map(str, counts(row['summary'])), row['commit'], row['date']])} |\n"


def table(rows: list[Row]) -> str:
    """The page."""
    lines = [line(row) for row in rows if "absent" not in row]
    text = HEAD + "".join(lines)
    launchers = [row for row in rows if row.get("launcher")]
    if launchers:
        versions = {version for row in launchers for version in row["launcher"]}
        ordered = sorted(versions, key=lambda version: [int(part) for part in version.split(".")])
        text += f"\nThe launcher, which runs on compute nodes, was started by Python {', '.join(ordered)}.\n"
    failures = [(row["name"], row["part"], name) for row in rows for name in row.get("failures", [])]
    if failures:
        text += "\n## What failed\n\n" + "".join(f"- {name}, {part}: `{test}`\n" for name, part, test in failures)
    absent = [row for row in rows if "absent" in row]
    if absent:
        text += "\n## What could not be had\n\n"
        text += "".join(f"- {row['name']} ({row['date']}): {row['absent']}\n" for row in absent)
    waiting = [name for name in names() if name not in {row["name"] for row in rows}]
    if waiting:
        text += f"\nNot run yet: {', '.join(waiting)}.\n"
    return text


def read() -> list[Row]:
    """The results so far."""
    rows: list[Row] = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else []
    return rows


def write(rows: list[Row]) -> None:
    """Write the results and the table."""
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
    TABLE.write_text(table(rows), "utf-8")


def main(words: list[str]) -> None:
    """Do what the first word says."""
    today = datetime.now(timezone.utc).date().isoformat()
    match words:
        case ["here"]:
            sys.stdout.write(f"{json.dumps(here())}\n")
        case ["commit"]:
            sys.stdout.write(f"{commit()}\n")
        case ["record", name, part, tested, versions, junit, output]:
            row = {"name": name, "part": part, "date": today, "commit": tested}
            row |= json.loads(Path(versions).read_text("utf-8"))
            row |= outcome(Path(junit), Path(output).read_text("utf-8"))
            if problem := contradiction(row):
                sys.exit(f"{problem}. Nothing was kept; run it again.")
            write(merged(read(), row))
        case ["absent", name, reason]:
            write(merged(read(), {"name": name, "date": today, "absent": reason}))
        case ["write"]:
            write(read())
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
