"""How long a twin takes: 50 people on 100 nodes, 500 people on 2,000, with jobs that hold resources.

    python benchmarks/bench_twin.py [--check]

Printed for each are the seconds until the answer, the start of slurmctld included, and how many run. With ``--check``
the exit status is 1 beyond 5 s and 30 s.
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass

from jupyterhub_gpuspawner.slurm.commands import Installation
from jupyterhub_gpuspawner.slurm.twin.ask import what_runs
from jupyterhub_gpuspawner.slurm.twin.site import Request
from tests.standins.site_answers import NOW, job, node, partition, site


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


async def measure(size: Size) -> tuple[float, int]:
    """Seconds, and how many of the people run: the first half with one GPU each, the others with two."""
    nodes = [node(f"g{number}", "gpu:a100:8(S:0-1)", cores=32, memory=512000) for number in range(size.nodes)]
    jobs = "".join(
        job(
            number + 1,
            f"g{number % size.nodes}",
            f"{4 * (number // size.nodes)}-{4 * (number // size.nodes) + 3}",
            f"gpu:a100:1(IDX:{number // size.nodes})",
            ends_in=3600 + 60 * (number % 1000),
        )
        for number in range(size.jobs)
    )
    of = site(nodes, [partition("gpu", f"g[0-{size.nodes - 1}]")], jobs=jobs)
    people = [Request(f"person{n}", PROFILES[2 * n // size.people]) for n in range(size.people)]
    began = time.monotonic()
    answers = await what_runs(of, people, at=NOW, slurm=Installation(), timeout=300)
    return time.monotonic() - began, answers.running


def main() -> None:
    """Measure each size."""
    slow = False
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
