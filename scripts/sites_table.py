#!/usr/bin/env python3
"""Keep what scripts/sites found, and write it as a table into the documentation.

Usage:
    scripts/sites_table.py names                        print the names of the sites
    scripts/sites_table.py record NAME COMMIT VERSIONS JUNIT    keep the result of one site, and write the table
    scripts/sites_table.py write                        write the table again

COMMIT and VERSIONS (a file) are what ``scripts/versions_table.py commit`` and ``here`` printed, JUNIT what pytest's
``--junitxml`` wrote. The results are in docs/explanation/sites.json; a new result replaces that of the same site.
"""

from __future__ import annotations

import ast
import fcntl
import json
import sys
import xml.etree.ElementTree as ET
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SITES = ROOT / "tests" / "nightly" / "sites"
RESULTS = ROOT / "docs" / "explanation" / "sites.json"
TABLE = RESULTS.with_name("sites-table.md")
STEPS = ("choose", "wait", "start", "placed", "restart", "stop", "log", "time_limit", "check")
"""The steps of the main job, as the tests of ``main_job.py`` are named."""
HEAD = """\
# Sites unlike the demo's, as tested

Written by `scripts/sites` after each of its runs; nothing here is typed. Each site is brought up with what makes it
different, and the main job is run on it: choose a profile, wait in line, start, compare the placement with Slurm's
allocation, restart the hub, stop the server, read its log, be ended by the time limit, and have `gpuspawner check` find
nothing but what is to be known of the site. *Beside it* counts what else was tried, in `tests/nightly/sites`; what did
not pass is named.

"""
Row = dict[str, Any]


def module_of(name: str) -> Path:
    """The module of a site."""
    return SITES / f"test_{name.replace('-', '_')}.py"


def names() -> list[str]:
    """The names of all sites; the one to compare the others with comes first."""
    sites = [path.stem.removeprefix("test_").replace("_", "-") for path in SITES.glob("test_*.py")]
    return sorted(sites, key=lambda name: (name != "plain", name))


def title(name: str) -> str:
    """The first line of the module's docstring."""
    docstring = ast.get_docstring(ast.parse(module_of(name).read_text("utf-8"))) or name
    return docstring.splitlines()[0].rstrip(".").replace("``", "`")


def outcome(case: ET.Element) -> str:
    """How a test ended: ``passed``, ``failed``, or why it was skipped."""
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    skipped = case.find("skipped")
    return "passed" if skipped is None else f"not tried: {skipped.get('message', '')}"


def outcomes(junit: Path) -> dict[str, str]:
    """How each test ended, by its name; a test with an error in its set-up and its end has failed once."""
    results: dict[str, str] = {}
    for case in ET.parse(junit).getroot().iter("testcase"):  # noqa: S314 - pytest wrote it
        name, result = str(case.get("name")).removeprefix("test_"), outcome(case)
        results[name] = "failed" if results.get(name) == "failed" else result
    return results


def table(rows: list[Row]) -> str:
    """The page: what each site is, how each step of the main job ended there, and what else did not pass."""
    steps = [step.replace("_", " ") for step in STEPS]
    about, lines = [], []
    for row in rows:
        cells = [row["tests"].get(step, "does not apply") for step in STEPS]
        own = {name: result for name, result in row["tests"].items() if name not in STEPS}
        passed = sum(result == "passed" for result in own.values())
        cells += [f"{passed} of {len(own)} passed" if own else "nothing", row["slurm"], row["commit"], row["date"]]
        lines.append(f"| {row['name']} | {' | '.join(cells)} |\n")
        others = [f"{name.replace('_', ' ')}: {result}" for name, result in own.items() if result != "passed"]
        about.append(f"- **{row['name']}**: {'; '.join([title(row['name']), *others])}.\n")
    lines = [
        f"| site | {' | '.join(steps)} | beside it | Slurm | commit | run on |\n",
        f"| --- | {' | '.join('---' for _ in steps)} | --- | --- | --- | --- |\n",
        *lines,
    ]
    waiting = [name for name in names() if name not in {row["name"] for row in rows}]
    text = f"{HEAD}{''.join(about)}\n{''.join(lines)}"
    return text + (f"\nNot run yet: {', '.join(waiting)}.\n" if waiting else "")


def read() -> list[Row]:
    """The results so far, of the sites that are still there."""
    rows: list[Row] = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else []
    return [row for row in rows if module_of(row["name"]).exists()]


def write(rows: list[Row]) -> None:
    """Write the results and the table, in the order of :func:`names`."""
    order = names()
    rows = sorted(rows, key=lambda row: order.index(row["name"]))
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
    TABLE.write_text(table(rows), "utf-8")


def main(words: list[str]) -> None:
    """Do what the first word says."""
    match words:
        case ["names"]:
            sys.stdout.write("".join(f"{name}\n" for name in names()))
        case ["record", name, commit, versions, junit]:
            today = datetime.now(timezone.utc).date().isoformat()
            row = {
                "name": name,
                "date": today,
                "commit": commit,
                "slurm": json.loads(Path(versions).read_text("utf-8"))["slurm"],
                "tests": outcomes(Path(junit)),
            }
            with RESULTS.with_suffix(".lock").open("w") as lock:  # sites may be run beside each other
                fcntl.flock(lock, fcntl.LOCK_EX)
                write([*(old for old in read() if old["name"] != name), row])
        case ["write"]:
            write(read())
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
