"""Run the commands whose output docs/howto/course.md and check.md show, and measure how long seats are counted.

python benchmarks/extensions/courses/course_check.py guide     # output for the guide's course, on a private Slurm
python benchmarks/extensions/courses/course_check.py seconds   # seconds for courses of different sizes
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from jupyterhub_gpuspawner.demo.slurm_cluster import (
    ClusterDescription,
    PrivateSlurm,
    SimulatedNode,
    SimulatedPartition,
    whole_gpus,
)
from jupyterhub_gpuspawner.extensions.courses.check import plan_of
from jupyterhub_gpuspawner.extensions.courses.course import CourseDate
from jupyterhub_gpuspawner.extensions.courses.rehearsal import RehearsalCluster, count_seats
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles
from jupyterhub_gpuspawner.profiles.resolve import resolve
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.commands import Installation
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot
from tests.extensions.courses.course_hub import configuration
from tests.extensions.seats.site_answers import NOW, node, partition, site

COURSE = """
name: Deep learning
instructors: [ada, grace]
roster: train[001-050]
profile: {slug: gpu, memory: 24G}
zone: Europe/Brussels
sessions:
  - {date: 2027-03-01, from: 9:00, to: 17:00, reservation: ml-hpc-1}
  - {weekly: [tuesday, thursday], first: 2027-03-02, last: 2027-03-04, from: 13:30, to: 17:00, reservation: ml-hpc-%u}
start_ahead: 10min
"""
RESERVATIONS = {
    "ml-hpc-1": ("a[1-13]", "2027-03-01T08:45:00", "2027-03-01T17:00:00"),
    "ml-hpc-2": ("b[1-13]", "2027-03-02T13:15:00", "2027-03-02T17:00:00"),
    "ml-hpc-4": ("a[1-12]", "2027-03-04T13:15:00", "2027-03-04T17:00:00"),
}
PROFILE = {
    "display_name": "GPU",
    "slug": "gpu",
    "slurm": {"partition": "gpu", "gpus": 1, "cpus": 6, "memory": "30G", "time": "9:00:00"},
}


def described(name: str, memory_mib: int) -> SimulatedNode:
    """A node of four GPUs, two beside each of two sockets of twelve cores."""
    gpus = (whole_gpus("k80", range(2), cores="0-11"), whole_gpus("k80", range(2, 4), cores="12-23"))
    return SimulatedNode(name, "k80", sockets=2, cores_per_socket=12, memory_mib=memory_mib, gpus=gpus)


def guide() -> None:
    """Print what the guides' commands print: a good day, one with too little memory, and one with too few nodes."""
    nodes = [described(f"a{n}", 128_000) for n in range(1, 14)] + [described(f"b{n}", 64_000) for n in range(1, 14)]
    names = tuple(simulated_node.name for simulated_node in nodes)
    cluster = ClusterDescription(tuple(nodes), (SimulatedPartition("gpu", names, default=True),))
    os.environ["TZ"] = "Europe/Brussels"
    time.tzset()
    folder = Path(tempfile.mkdtemp(prefix="gpuspawner-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        (folder / "courses").mkdir()
        (folder / "courses" / "deep-learning.yaml").write_text(COURSE)
        with PrivateSlurm(cluster, folder / "slurm") as slurm:
            for name, (where, begin, end) in RESERVATIONS.items():
                what = f"StartTime={begin} EndTime={end} Groups=root Nodes={where}"
                slurm.run("scontrol", "create", "reservation", f"ReservationName={name}", *what.split())
            config = folder / "jupyterhub_config.py"
            config.write_text(configuration(slurm.bin_dir, folder / "courses", PROFILE))
            command = Path(sys.executable).with_name("gpuspawner")
            began = time.monotonic()
            subprocess.run(
                [command, "course", "check", "deep-learning", "--config", config],
                env={**os.environ, **slurm.environment},
                check=False,
            )
            print(f"({time.monotonic() - began:.1f} s)")
            checked = subprocess.run(
                [command, "check", "--people", "100", "--profile", "gpu", "--config", config],
                env={**os.environ, **slurm.environment},
                capture_output=True,
                text=True,
                check=False,
            )
            print(*(line for line in checked.stdout.splitlines() if "[seats" in line), sep="\n")
    finally:
        shutil.rmtree(folder)


SIZES = ((50, 100, 6), (50, 13, 6), (50, 12, 8), (500, 2000, 6), (500, 100, 8))
"""People, nodes of four GPUs, and cores for each person."""


async def seconds() -> None:
    """Print for each size how many start, and how long that took."""
    print(f"{'people':>6} {'nodes':>6} {'cores':>6} {'start':>12} {'seconds':>8}  with less")
    for people, number, cpus in SIZES:
        gres = "".join(
            f"Name=gpu Type=k80 File=/dev/nvidia[{first}-{first + 1}] Cores={cores}\n"
            for first, cores in ((0, "0-11"), (2, "12-23"))
        )
        nodes = [node(f"g{index}", "gpu:k80:4") for index in range(1, number + 1)]
        answers = site(nodes, [partition("gpu", f"g[1-{number}]")], gres_conf=gres)
        snapshot = ClusterSnapshot(answers.nodes, tuple(answers.partitions), taken_at=NOW)
        slurm = {"partition": "gpu", "gpus": 1, "cpus": cpus, "memory": "8G", "time": "2:00:00"}
        now = datetime.fromtimestamp(NOW, timezone.utc)
        profiles = parse_profiles([{"display_name": "GPU", "slug": "gpu", "slurm": slurm}])
        request = resolve(profiles, {}, username="ada", groups=(), server_name="", now=now)
        date = CourseDate(now, datetime.fromtimestamp(NOW + 7200, timezone.utc), "today")
        plan = plan_of(date, request, snapshot, [f"t{index}" for index in range(people)], opens=NOW)
        script = f"#!/bin/bash\n#SBATCH --partition=gpu --gres=gpu:1 --cpus-per-task={cpus} --mem=8G --time=120\n"
        cluster = RehearsalCluster(SlurmClient(Installation()), snapshot, answers)
        began = time.monotonic()
        count = await count_seats(plan, [script], {"": cluster})
        assert count is not None
        assert not count.estimate, count.estimate
        took = time.monotonic() - began
        print(
            f"{people:>6} {number:>6} {cpus:>6} {count.fit:>5} of {count.tried:>3} {took:>8.1f}  {count.smaller or ''}"
        )


if __name__ == "__main__":
    if sys.argv[1:] == ["guide"]:
        guide()
    elif sys.argv[1:] == ["seconds"]:
        asyncio.run(seconds())
    else:
        sys.exit(__doc__)
