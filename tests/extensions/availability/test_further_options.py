"""Further options of sbatch, as far as they decide where and when a job starts."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.extensions.availability.model.availability import availability
from jupyterhub_gpuspawner.extensions.availability.model.limits import uses_one_thread
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot, NodeState, Partition

SNAPSHOT = ClusterSnapshot(
    nodes=[NodeState("g1", states=frozenset({"IDLE"}), cpus=8, memory_mib=1000)],
    partitions=(Partition("gpu", default=True, nodes=("g1",)),),
)


@pytest.mark.parametrize(
    ("line", "chance"),
    [
        ("-J name", "now"),
        ('--wckey="a -b"', "now"),
        ("--mail-us=ada", "now"),
        ("--hint nomultithread", "now"),
        ("--hint=memory_bound", "unknown"),
        ("--lic=matlab", "unknown"),
        ("--qos=high", "unknown"),
        ("--no-such-option", "unknown"),
        ("--wckey=a'b", "unknown"),
    ],
)
def test_the_form_says_now_where_every_further_option_decides_neither_nodes_nor_turn(line: str, chance: str) -> None:
    """However it is written."""
    resources = Resources(cpus=1, memory=1, extra=(line,))

    assert availability(resources, SNAPSHOT, now=0).chance == chance


@pytest.mark.parametrize("line", ["--hint nomultithread", "--hin=nomultithread", "--threads-per-core 1"])
def test_one_thread_of_each_core_is_known_however_it_is_written(line: str) -> None:
    """The form then counts cores."""
    assert uses_one_thread(Resources(extra=("--hint=multithread", line)))
    assert not uses_one_thread(Resources(extra=(line, "--hint=multithread")))
