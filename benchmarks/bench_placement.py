"""Time of a choice of GPUs: at most 2 ms for 8 GPUs, 40 ms for 16, on an ordinary core.

    python -m pytest benchmarks/bench_placement.py

Every count of GPUs is chosen from the whole machine; the bar is for the slowest count, in processor time and by the
fastest of its rounds, since other work on the machine only adds.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from jupyterhub_gpuspawner.placement.choice import choose
from jupyterhub_gpuspawner.placement.topology import load

MACHINES = Path(__file__).parent.parent / "tests" / "data" / "machines"
BAR = {8: 0.002, 16: 0.040}
"""Limits in seconds, by number of GPUs."""
CASES = [
    (name, count)
    for name, size in [
        ("dgx1v", 8),
        ("a100-bridges", 8),
        ("nps4-bridges", 8),
        ("dgx-a100", 8),
        ("dgx2", 16),
        ("pcie-tree-16", 16),
        ("bridged-16", 16),
        ("cross-bridged-16", 16),
        ("cube-mesh-16", 16),
        ("torus-16", 16),
    ]
    for count in range(1, size + 1)
]


@pytest.mark.benchmark(timer=time.process_time)
@pytest.mark.parametrize(("name", "count"), CASES)
def test_choice(benchmark: Any, name: str, count: int) -> None:
    """The choice of ``count`` GPUs of a whole machine stays within its limit."""
    machine = load(str(MACHINES / f"{name}.json"))
    size = len(machine.gpus)
    benchmark.pedantic(
        choose,
        args=(machine,),
        kwargs={"granted": range(size), "count": count, "cpus": range(3)},
        rounds=30,
        warmup_rounds=1,
    )
    assert benchmark.stats.stats.min <= BAR[size]
