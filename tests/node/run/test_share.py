"""One task's part of a node: what srun says, and the division that all tasks work out alike."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import jupyterhub_gpuspawner
from jupyterhub_gpuspawner.cpulist import format_cpulist, parse_cpulist
from jupyterhub_gpuspawner.node.run.rank import (
    Rank,
    divide_cpus,
    has_own,
    rank_of,
    shares,
)
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology, NumaNode, load

MACHINES = Path(jupyterhub_gpuspawner.__file__).parent / "demo" / "machines"
K80 = load(str(MACHINES / "k80-2socket.json"))
THREADED = NodeTopology(
    gpus=(Gpu(0, numa_node=0), Gpu(1, numa_node=1)),
    numa_nodes=(NumaNode(0, (0, 1, 4, 5)), NumaNode(1, (2, 3, 6, 7))),
    siblings=((0, 4), (1, 5), (2, 6), (3, 7)),
)
"""Two sockets of two cores of two threads."""


@pytest.mark.parametrize(
    ("number", "local", "node", "tasks", "rank"),
    [
        ("0", "0", "0", "4", Rank(0, 0, 0, (4,))),
        ("4", "2", "1", "2,3", Rank(4, 2, 1, (2, 3))),
        ("18", "1", "5", "1,4(x5)", Rank(18, 1, 5, (1, 4, 4, 4, 4, 4))),
        ("0", "0", "0", "", None),  # a batch script, which has no tasks of a step
        ("4", "4", "0", "4", None),
        ("8", "0", "2", "4(x2)", None),
        ("0", "x", "0", "4", None),
        ("", "0", "0", "4", None),
    ],
)
def test_rank_as_srun_says_it(number: str, local: str, node: str, tasks: str, rank: Rank | None) -> None:
    """Among all tasks, and among those of this node; what does not fit together is none."""
    environ = {"PROCID": number, "LOCALID": local, "NODEID": node, "STEP_TASKS_PER_NODE": tasks}
    assert rank_of({f"SLURM_{name}": value for name, value in environ.items()}) == rank


@given(st.integers(0, 40), st.integers(1, 20))
def test_shares_are_all_of_it(size: int, count: int) -> None:
    """Nothing is lost, nothing is assigned twice unless it must be, and sizes differ by at most one."""
    parts = shares(range(size), count)
    together = [item for part in parts for item in part]
    assert len(parts) == count
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert set(together) == set(range(size))
    assert size < count or together == list(range(size))


@pytest.mark.parametrize(
    ("environ", "visible", "own"),
    [
        ({"SLURM_GPUS_ON_NODE": "4"}, 1, True),
        ({"SLURM_GPUS_ON_NODE": "4"}, 4, False),
        ({"SLURM_GPUS_ON_NODE": "4"}, 0, False),
        ({}, 2, False),
    ],
)
def test_what_slurm_has_divided(environ: dict[str, str], visible: int, own: bool) -> None:
    """A task that sees fewer GPUs or CPUs than the step has on this node was given its own by Slurm."""
    assert has_own("GPUS", environ, visible) == own
    assert has_own("CPUS", {key.replace("GPUS", "CPUS"): value for key, value in environ.items()}, visible) == own


@pytest.mark.parametrize(
    ("node", "granted", "gpus", "each", "parts"),
    [
        pytest.param(K80, "0-23", [(0,), (1,), (2,), (3,)], 4, "0-3 4-7 12-15 16-19", id="as promised"),
        pytest.param(K80, "0-23", [(2,), (0,)], None, "12-23 0-11", id="all of it, by socket"),
        pytest.param(K80, "0-3,12-13", [(0,), (2,)], None, "0-2 3,12-13", id="what is missing comes from afar"),
        pytest.param(K80, "0-11", [(0, 1), (2, 3)], None, "0-5 6-11", id="wrong socket"),
        pytest.param(K80, "0-2", [(0,), (2,)], 8, "0-1 2", id="less than promised"),
        pytest.param(K80, "0,12", [(0,), (1,), (2,)], 1, "0 12 0", id="fewer CPUs than tasks"),
        pytest.param(K80, "0-5", [(), ()], None, "0-2 3-5", id="GPUs not known"),
        pytest.param(THREADED, "0-7", [(1,), (0,)], None, "2-3,6-7 0-1,4-5", id="whole cores"),
        pytest.param(THREADED, "0-7", [(0,), (0,), (1,)], None, "0-1,4-5 3,7 2,6", id="cores do not come out even"),
        pytest.param(THREADED, "0,4", [(0,), (1,)], None, "0 4", id="one core for two tasks"),
    ],
)
def test_cpus_are_divided_beside_the_gpus(
    node: NodeTopology, granted: str, gpus: list[tuple[int, ...]], each: int | None, parts: str
) -> None:
    """Each task gets cores next to its GPUs, whole ones if there are enough; nothing is assigned twice."""
    found = divide_cpus(node, parse_cpulist(granted), gpus, per_task=each)
    assert " ".join(map(format_cpulist, found)) == parts


@given(
    st.sets(st.integers(0, 23), min_size=1), st.lists(st.sets(st.integers(0, 3), max_size=2), min_size=1, max_size=9)
)
def test_division_is_sound(granted: set[int], gpus: list[set[int]]) -> None:
    """Whatever is granted and however GPUs are shared, every task has a CPU, and CPUs are shared only where too few."""
    parts = divide_cpus(K80, sorted(granted), [sorted(each) for each in gpus])
    together = [cpu for part in parts for cpu in part]
    assert all(parts)
    assert set(together) == granted
    assert len(granted) < len(gpus) or len(together) == len(granted)
