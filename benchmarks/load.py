"""What a hub costs Slurm, and how long people wait for it: this package beside three others, in one run.

Each system gets the same real Slurm (private, on this host), a fresh JupyterHub and its own public configuration
(``side_by_side/configs/``), one after the other:

- *start*: N people sign in, see the form, and click at once. Printed: seconds until the hub says ready, commands run,
  RPCs by kind (sdiag), processor time and memory of the hub, and how long the spawner's code held the event loop.
- *rest*: their servers run and nobody does anything.
- *waiting*: all GPUs are taken; N people click, and wait.
- ``--held N``: N servers at rest that a hub finds in its database (``side_by_side/held.py`` says how).

The single-user server is a stand-in (``side_by_side/single_user.py``), the same for all. Plain ``sbatch`` of the very
scripts that our hub submitted is the floor. ``scripts/bench`` makes the virtual environment that this needs.

    scripts/bench [--users 30] [--waiting 20 200] [--rest 30] [--held 1000] [--only ours ...] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from side_by_side import phases
from side_by_side.cluster import cancel_all, cluster_for, step_aside
from side_by_side.floor import plain_sbatch
from side_by_side.hubs import Place
from side_by_side.phases import Measured
from side_by_side.report import Results, aims, bars, plot, table
from side_by_side.systems import OURS, SYSTEMS, System

from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm

STAND_IN = Path(__file__).parent / "side_by_side" / "single_user.py"
TITLE = "# What a hub costs, in figures\n\nMade by `make bench`, one run; [what it measures](load.md).\n"
TIMEOUT = 180.0
"""Seconds until a server that is not ready is given up."""


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=30, help="who click at once")
    parser.add_argument(
        "--waiting", type=int, nargs="*", default=[20, 200], help="how many wait; all but the first for ours alone"
    )
    parser.add_argument("--rest", type=float, default=30.0, help="seconds of rest after the start; 0: none")
    parser.add_argument("--held", type=int, default=1000, help="servers at rest in a hub of ours; 0: none")
    parser.add_argument("--only", nargs="*", choices=[system.key for system in SYSTEMS], help="these systems alone")
    parser.add_argument("--json", type=Path, help="write all figures there")
    parser.add_argument("--table", type=Path, help="write the tables there, as a page of the docs")
    parser.add_argument("--plot", type=Path, help="write the plot (SVG) there")
    parser.add_argument("--database", type=Path, help="a folder for the hubs' databases; default: in memory")
    parser.add_argument("--keep", type=Path, help="copy the hubs' and the servers' logs there")
    return parser.parse_args()


def say(text: str) -> None:
    """Tell the person in front of the screen; standard output is for the table."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def environment(folder: Path) -> Path:
    """The stand-in under the name of jupyterhub-singleuser, and batchspawner's wrapper, in one folder."""
    folder.mkdir()
    server = folder / "jupyterhub-singleuser"
    server.write_text(f"#!{sys.executable} -IS\n{STAND_IN.read_text('utf-8')}")
    server.chmod(server.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    (folder / "batchspawner-singleuser").symlink_to(Path(sys.executable).parent / "batchspawner-singleuser")
    return folder


@contextmanager
def folders(database: Path | None) -> Iterator[tuple[Path, Path]]:
    """A folder in memory for all files of a run, and the one for the hubs' databases: the same unless it is given.

    On a cluster slurmctld, the nodes and the homes do not write to the hub's disk, and jobs do not keep the hub's
    machine from its disk. Here they would: a commit that takes 1 ms at rest takes 100 while 30 jobs start.
    """
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()  # noqa: S108
    made = [Path(tempfile.mkdtemp(prefix="gpuspawner-load-", dir=parent)) for parent in (memory, database or memory)]
    for folder in made:
        folder.chmod(0o755)
    try:
        yield made[0], made[1]
    finally:
        for folder in made:
            shutil.rmtree(folder, ignore_errors=True)


async def measure(place: Place, system: System, asked: argparse.Namespace) -> tuple[Measured, list[float]]:
    """All phases of one system; for ours the floor as well."""
    measured, floor = Measured(system.key), list[float]()
    say(f"{system.title}: {asked.users} users click")
    await phases.start(place, system, measured, users=asked.users, rest=asked.rest, timeout=TIMEOUT)
    if measured.scripts:
        say("plain sbatch of the same scripts")
        path = f"{place.environment}:{os.environ['PATH']}"
        floor = await plain_sbatch(place, measured.scripts, path=path, timeout=TIMEOUT)
        await cancel_all(place.slurm)
    if asked.waiting:
        steps = asked.waiting if system is OURS else asked.waiting[:1]
        say(f"{system.title}: {' and '.join(map(str, steps))} users wait")
        await phases.waiting(place, system, measured, steps=steps, seconds=10.0)
    if asked.held and system is OURS:
        say(f"{system.title}: {asked.held} servers at rest")
        await phases.held(place, system, measured, servers=asked.held, seconds=60.0)
    return measured, floor


async def run(asked: argparse.Namespace, folder: Path, databases: Path) -> Results:
    """Everything."""
    systems = [system for system in SYSTEMS if not asked.only or system.key in asked.only]
    with PrivateSlurm(cluster_for(asked.users), folder / "slurm") as slurm:
        step_aside(slurm)
        words = slurm.run("sinfo", "--version").split()[1]
        old = tuple(map(int, words.split(".")[:2])) < (23, 2)
        place = Place(slurm, folder, databases, environment(folder / "env"), old=old, users=asked.users)
        found, floor = [], list[float]()
        for system in systems:
            measured, plain = await measure(place, system, asked)
            found.append(measured)
            floor = plain or floor
    packages = ("jupyterhub", "batchspawner", "wrapspawner", "jupyterhub-moss", "slurmformspawner")
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    about = f"{os.cpu_count()} cores, Python {platform.python_version()}, Slurm {words}, {versions}"
    return Results(tuple(found), tuple(floor), about)


def main() -> int:
    """Print the table, then each aim with what was reached; exit 1 where one was not."""
    asked = options()
    with folders(asked.database) as (folder, databases):
        results = asyncio.run(run(asked, folder, databases))
        if asked.keep:
            shutil.copytree(folder, asked.keep, ignore=shutil.ignore_patterns("slurm", "env", "bin"))
    text = f"{table(results)}\n{aims(results)}\n({results.about})\n"
    print(text)
    if asked.json:
        figures = {
            "about": results.about,
            "systems": [each.as_json() for each in results.measured],
            "plain sbatch": results.floor,
            "aims": [{"what": what, "most": most, "was": was} for what, most, was in bars(results)],
        }
        asked.json.write_text(json.dumps(figures, indent=1) + "\n")
    if asked.table:
        asked.table.write_text(f"{TITLE}\n{text}")
    if asked.plot:
        asked.plot.write_text(plot(results))
    return 1 if any(was > most for _, most, was in bars(results)) else 0


if __name__ == "__main__":
    sys.exit(main())
