"""How long seats are counted: 50 people on 100 nodes, 500 people on 2,000, with jobs that hold resources.

    python benchmarks/extensions/courses/bench_twin.py [--check]

Printed are the seconds of ``gpuspawner course check`` for the first, as a whole, at a site of which there is slurmctld
alone; then for each those of the scheduler's answer, its start included, and how many run. With ``--check`` the exit
status is 1 beyond 5 s, and 30 s for the second.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from jupyterhub_gpuspawner.extensions.seats import controller
from jupyterhub_gpuspawner.extensions.seats.site import Request, Site, question_of
from jupyterhub_gpuspawner.extensions.seats.twin import what_runs
from jupyterhub_gpuspawner.slurm.commands import Installation
from tests.extensions.courses.course_hub import configuration
from tests.extensions.seats.site_answers import NOW, job, node, partition, site
from tests.fixtures.clock import about_noon


@dataclass(frozen=True)
class Size:
    """A cluster, and who asks."""

    nodes: int
    people: int
    jobs: int
    limit: float
    """Seconds."""


SIZES = (Size(100, 50, 400, 5.0), Size(2000, 500, 4000, 30.0))
PROFILES = (("--gres=gpu:a100:1", "--cpus-per-task=4", "--mem=16G"), ("--gres=gpu:a100:2", "-c 8", "--mem=32G"))


def site_of(size: Size) -> Site:
    """Nodes of eight GPUs, with one job of one GPU after the other on each."""
    nodes = [node(f"g{number}", "gpu:a100:8(S:0-1)", cores=32, memory=512000) for number in range(size.nodes)]
    jobs = tuple(
        held
        for number in range(size.jobs)
        for held in job(
            number + 1,
            f"g{number % size.nodes}",
            f"{4 * (number // size.nodes)}-{4 * (number // size.nodes) + 3}",
            f"gpu:a100:1(IDX:{number // size.nodes})",
            ends_in=3600 + 60 * (number % 1000),
        )
    )
    return site(nodes, [partition("gpu", f"g[0-{size.nodes - 1}]")], jobs=jobs)


async def measure(size: Size) -> tuple[float, int]:
    """Seconds, and how many of the people run: the first half with one GPU each, the others with two."""
    of = site_of(size)
    people = [Request(f"person{n}", PROFILES[2 * n // size.people]) for n in range(size.people)]
    began = time.monotonic()
    answers = await what_runs(of, people, at=NOW, slurm=Installation(), timeout=300)
    return time.monotonic() - began, answers.running


COURSE = """
name: Deep learning
instructors: ada
roster: train[001-{people:03d}]
profile: gpu
zone: {zone}
sessions: [{{date: {start:%Y-%m-%d}, from: {start:%H:%M}, to: {end:%H:%M}}}]
"""
PROFILE = {
    "display_name": "GPU",
    "slug": "gpu",
    "slurm": {"partition": "gpu", "gpus": 1, "cpus": 4, "memory": "16G", "time": "2:00:00"},
}


def measure_command(size: Size) -> tuple[float, int]:
    """Seconds that ``gpuspawner course check`` takes, whose session is under way, and how many fit."""
    zone, now = about_noon()
    folder = Path(tempfile.mkdtemp(prefix="gpuspawner-", dir="/tmp"))
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        question = controller.checked(json.dumps(question_of(site_of(size), (), at=NOW).document).encode())
        twin = controller.Twin(folder, "bench", question)
        daemons += twin.daemons
        controller.place(twin, question.held)
        courses = folder / "courses"
        courses.mkdir()
        course = COURSE.format(people=size.people, zone=zone, start=now, end=now + timedelta(hours=2))
        (courses / "deep.yaml").write_text(course)
        bin_dir = str(Path(shutil.which("sbatch", path=twin.path) or "").parent)
        config = folder / "jupyterhub_config.py"
        config.write_text(configuration(bin_dir, courses, PROFILE))
        command = Path(sys.executable).with_name("gpuspawner")
        began = time.monotonic()
        answer = subprocess.run(
            [command, "course", "check", "deep", "--json", "--config", config],
            env={**os.environ, "SLURM_CONF": twin.environment["SLURM_CONF"]},
            stdout=subprocess.PIPE,
            check=False,
        )
        seconds = time.monotonic() - began
        (session,) = json.loads(answer.stdout)["sessions"]
        assert session["counted"] == "slurm", session
        return seconds, session["fit"]
    finally:
        for daemon in daemons:
            daemon.kill()
            daemon.wait()
        shutil.rmtree(folder)


def main() -> None:
    """Measure the command, and each size."""
    first = SIZES[0]
    seconds, fit = measure_command(first)
    print(
        f"gpuspawner course check, {first.people} people on {first.nodes} nodes with {first.jobs} jobs: {seconds:.1f} "
        f"s (at most {first.limit:g} s), {fit} fit",
        flush=True,
    )
    slow = seconds > first.limit
    for size in SIZES:
        seconds, running = asyncio.run(measure(size))
        print(
            f"{size.people} people on {size.nodes} nodes with {size.jobs} jobs: {seconds:.1f} s (at most "
            f"{size.limit:g} s), {running} run",
            flush=True,
        )
        slow |= seconds > size.limit
    if slow and "--check" in sys.argv[1:]:
        sys.exit("too slow")


if __name__ == "__main__":
    main()
