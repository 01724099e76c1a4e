"""What a snapshot of 10,000 nodes with 50,000 jobs costs the hub: processor time, and how long its event loop stands.

    python -m pytest benchmarks/bench_snapshot.py -s

The answers come from real processes (``large_cluster.py``) through the client's own path, from their pipes to an
indexed snapshot. Beside it a task of the event loop wakes up every millisecond, and notes how late it
is. Of that counts what this process spent in processor time meanwhile: whoever holds the interpreter's lock computes,
while on a busy machine the loop is also late because other processes have the processors.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

import jupyterhub.app  # the objects of a hub: a collection of garbage looks at all of them
import pytest

from benchmarks.large_cluster import NODES, PENDING, RUNNING, install, large_cluster
from jupyterhub_gpuspawner.hub.site.connection import ClusterView
from jupyterhub_gpuspawner.hub.site.event_loop import SWITCH_SECONDS, set_aside
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.commands import Installation

CPU_BAR, HELD_BAR = 1.0, 0.030
"""Limits in seconds: processor time for one snapshot, and the longest time for which the event loop stands still."""
TURNS = 5
TICK = 0.001


class Cost(NamedTuple):
    """One snapshot's cost, in seconds."""

    cpu: float
    """Processor time of all threads of this process."""
    held: float
    """The longest time for which the event loop stood still."""
    wall: float


class Ticks:
    """A task that wakes up every millisecond, and the longest time for which it could not."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def run(self) -> None:
        last, cpu = time.perf_counter(), time.process_time()
        while True:
            await asyncio.sleep(TICK)
            now, by_now = time.perf_counter(), time.process_time()
            late = min(now - last - TICK, by_now - cpu)
            self.longest = max(self.longest, late)
            last, cpu = now, by_now


@asynccontextmanager
async def ticking() -> AsyncIterator[Ticks]:
    """Tick beside the block."""
    ticks = Ticks()
    task = asyncio.ensure_future(ticks.run())
    try:
        yield ticks
    finally:
        task.cancel()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> SlurmClient:
    """Slurm's commands with the answers of the large cluster, in a hub that has started."""
    sys.setswitchinterval(SWITCH_SECONDS)
    set_aside()
    folder: Path = install(tmp_path_factory.mktemp("slurm"), large_cluster())
    return SlurmClient(Installation(bin_dir=str(folder), timeout=60.0))


async def _cost(view: ClusterView, *, tick: bool) -> Cost:
    """Take a snapshot as the pages of a hub do; the last one is freed."""
    cpu, wall = time.process_time(), time.perf_counter()
    async with ticking() if tick else nullcontext(Ticks()) as ticks:
        snapshot = await view.recent(max_age=0.0, patience=60.0)
    assert snapshot is not None
    assert (len(snapshot.nodes), len(snapshot.jobs), snapshot.unread) == (NODES, RUNNING + PENDING, ())
    return Cost(time.process_time() - cpu, ticks.longest, time.perf_counter() - wall)


async def _costs(client: SlurmClient, *, tick: bool) -> list[Cost]:
    view, costs = ClusterView(client.snapshot), list[Cost]()
    for _ in range(TURNS):
        costs.append(await _cost(view, tick=tick))
        held_text = f", {costs[-1].held * 1000:.0f} ms held" if tick else ""
        print(f"\n  {costs[-1].cpu:.2f} s of processor time{held_text}, {costs[-1].wall:.2f} s in all", end="")
    return costs


async def test_processor_time(client: SlurmClient) -> None:
    """The fastest of the rounds, since other work on the machine only adds."""
    costs = await _costs(client, tick=False)
    print(f"\n{NODES} nodes, {RUNNING + PENDING} jobs: {min(cost.cpu for cost in costs):.2f} s of processor time")
    print(f"largest memory of the process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    assert min(cost.cpu for cost in costs) <= CPU_BAR


async def test_event_loop(client: SlurmClient) -> None:
    """The event loop goes on while a snapshot is taken, in every round."""
    costs = await _costs(client, tick=True)
    held = max(cost.held for cost in costs)
    print(f"\n{NODES} nodes, {RUNNING + PENDING} jobs: event loop held for {held * 1000:.0f} ms")
    assert held <= HELD_BAR


assert jupyterhub.app
