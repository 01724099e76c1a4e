"""The part of a node that each task of a step takes: what srun says, the division, and the placement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import jupyterhub_gpuspawner
from jupyterhub_gpuspawner.extensions.several_nodes.node import nics, rank
from jupyterhub_gpuspawner.extensions.several_nodes.node.rank import (
    Rank,
    RankLaunch,
    binding,
    divide_cpus,
    has_own,
    rank_of,
    shares,
)
from jupyterhub_gpuspawner.extensions.several_nodes.node.srun import Spec
from jupyterhub_gpuspawner.node import placing
from jupyterhub_gpuspawner.node.grant import ControllerAnswers
from jupyterhub_gpuspawner.node.hardware import Reader
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology, NumaNode, load
from jupyterhub_gpuspawner.units import format_cpulist, parse_cpulist
from jupyterhub_gpuspawner.wire.documents import LaunchPlan, PlacementDocument

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
    ("node", "granted", "gpus", "per_task", "parts"),
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
    node: NodeTopology, granted: str, gpus: list[tuple[int, ...]], per_task: int | None, parts: str
) -> None:
    """Each task gets cores next to its GPUs, whole ones if there are enough; nothing is assigned twice."""
    cpus = divide_cpus(node, parse_cpulist(granted), gpus, per_task=per_task)
    assert " ".join(map(format_cpulist, cpus)) == parts


@given(
    st.sets(st.integers(0, 23), min_size=1), st.lists(st.sets(st.integers(0, 3), max_size=2), min_size=1, max_size=9)
)
def test_division_is_sound(granted: set[int], gpus: list[set[int]]) -> None:
    """Whatever is granted and however GPUs are shared, every task has a CPU, and CPUs are shared only where too few."""
    parts = divide_cpus(K80, sorted(granted), [sorted(indices) for indices in gpus])
    together = [cpu for part in parts for cpu in part]
    assert all(parts)
    assert set(together) == granted
    assert len(granted) < len(gpus) or len(together) == len(granted)


MACHINES = Path(jupyterhub_gpuspawner.__file__).parent / "demo" / "machines"
DATA = Path(__file__).parents[2] / "data" / "machines"
K80, MIG = (load(str(MACHINES / f"{name}.json")) for name in ("k80-2socket", "a100-mig"))
DGX1V = load(str(DATA / "dgx1v.json"))


class Task(RankLaunch):
    """One task of a step on a described node."""

    def __init__(self, node: NodeTopology, environ: dict[str, str], cpu_ids: str, **plan: Any) -> None:
        rank = rank_of(environ)
        assert rank is not None
        slurm = ControllerAnswers({}, job=f"Nodes=n1 CPU_IDs={cpu_ids} Mem=1 GRES=", node="")
        super().__init__(
            LaunchPlan(report=False, **plan), environ, rank, Spec("token", "{}"), slurm=slurm, topology=node
        )


def step(
    node: NodeTopology, tasks: int, gpus: str, cpu_ids: str, policy: str = "best-effort", **environ: str
) -> list[tuple[Task, PlacementDocument]]:
    """All tasks of a step, each with its placement; ``environ`` may hold values with ``{}`` for the task's number."""
    placements = []
    for local in range(tasks):
        task = Task(
            node,
            {
                "SLURM_JOB_ID": "7",
                "SLURM_PROCID": str(local),
                "SLURM_LOCALID": str(local),
                "SLURM_NODEID": "0",
                "SLURM_STEP_TASKS_PER_NODE": str(tasks),
                "SLURM_STEP_GPUS": gpus,
                "SLURM_JOB_GPUS": gpus,
                "CUDA_VISIBLE_DEVICES": gpus,
                "SLURM_GPUS_ON_NODE": str(len(gpus.split(","))),
                "SLURM_CPUS_ON_NODE": str(len(parse_cpulist(cpu_ids))),
                **{key: value.format(local) for key, value in environ.items()},
            },
            cpu_ids,
            policy=policy,
        )
        placements.append((task, task.place()[0]))
    return placements


def parts_of(tasks: list[tuple[Task, PlacementDocument]]) -> list[str]:
    return [f"{task.environ['CUDA_VISIBLE_DEVICES']} on {placement.cpus}" for task, placement in tasks]


@pytest.mark.parametrize(
    ("node", "tasks", "gpus", "cpus", "parts"),
    [
        pytest.param(K80, 2, "0,1,2,3", "0-23", ["0,1 on 0-11", "2,3 on 12-23"], id="a socket each"),
        pytest.param(K80, 2, "1,3", "0-3,12-15", ["1 on 0-3", "3 on 12-15"], id="what was granted"),
        pytest.param(K80, 3, "2", "12-14", ["2 on 12", "2 on 13", "2 on 14"], id="one GPU for all"),
        pytest.param(K80, 3, "0,1,2,3", "0-11", ["0,1 on 0-3", "2 on 4-7", "3 on 8-11"], id="not even, one socket"),
        pytest.param(
            DGX1V,
            4,
            "0,1,2,3,4,5,6,7",
            "0-19",
            ["0,3 on 0-4", "1,2 on 5-9", "5,6 on 10-14", "4,7 on 15-19"],
            id="neighbours in the ring",
        ),
    ],
)
def test_tasks_divide_the_node(node: NodeTopology, tasks: int, gpus: str, cpus: str, parts: list[str]) -> None:
    """Each task gets neighbours in the best ring and cores near them; nothing is assigned twice unless it must be."""
    assert parts_of(step(node, tasks, gpus, cpus)) == parts


def test_the_placement_tells_the_tasks_part() -> None:
    """Links, nodes and alignment are those of the part; the sentence says whose it is."""
    [_, (_, placement)] = step(K80, 2, "0,1,2,3", "0-23")
    assert (placement.weakest_link, placement.numa_nodes, placement.aligned) == ("PIX", (1,), True)
    assert placement.why == (
        "Task 1 of 2 on this node. GPUs 2 and 3, as granted; the slowest link of their ring is PIX (about 12 GB/s)."
    )


def test_gpus_that_slurm_gave_to_each_task_stay_with_it() -> None:
    """--gpus-per-task: the cores follow what Slurm has given."""
    own = {"CUDA_VISIBLE_DEVICES": "{}", "SLURM_STEP_GPUS": "{}"}
    assert parts_of(step(K80, 4, "0,1,2,3", "0-23", **own)) == [
        "0 on 0-5",
        "1 on 6-11",
        "2 on 12-17",
        "3 on 18-23",
    ]


def test_gpus_that_slurm_gave_to_each_task_are_found_in_a_device_cgroup() -> None:
    """To Slurm the job's GPUs are 5 and 7, the first beside the second socket; to the driver, and to CUDA, 0 and 1."""
    gpus = tuple(replace(K80.gpus[n], index=index) for index, n in enumerate((3, 1)))
    links = tuple(tuple(K80.link(a, b) for b in (3, 1)) for a in (3, 1))
    node = replace(K80, gpus=gpus, links=links, nics=(), nic_links=(), nic_numa=(), source="nvml+sysfs")

    tasks = step(node, 2, "5,7", "0-1,12-13", CUDA_VISIBLE_DEVICES="{}")

    assert parts_of(tasks) == ["0 on 12-13", "1 on 0-1"]


def test_mig_devices_are_divided_by_their_uuids() -> None:
    """MIG devices have no number; each task gets the UUIDs of its own."""
    parts = MIG.gpus[2:]
    uuids = ",".join(gpu.uuid for gpu in parts)
    tasks = step(MIG, 4, "2,3,4,5", "16-23", CUDA_VISIBLE_DEVICES=uuids)
    assert [task.environ["CUDA_VISIBLE_DEVICES"] for task, _ in tasks] == [gpu.uuid for gpu in parts]


def test_names_that_cannot_be_found_are_divided_in_slurms_order() -> None:
    """If the driver says nothing, only the names are divided."""
    unknown = NodeTopology(numa_nodes=K80.numa_nodes, simulated=True)
    assert parts_of(step(unknown, 2, "0,1,2,3", "0-23")) == ["0,1 on 0-11", "2,3 on 12-23"]


def test_threads_of_the_whole_server_are_not_those_of_a_part() -> None:
    """Values that the launcher set for the server are replaced; values set by others stay."""
    [(task, _), _] = step(K80, 2, "0,1", "0-7", GPUSPAWNER_THREADS="8", OMP_NUM_THREADS="8", MKL_NUM_THREADS="3")
    threads = {name: task.environ[name] for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "GPUSPAWNER_THREADS")}
    assert threads == {"OMP_NUM_THREADS": "4", "MKL_NUM_THREADS": "3", "GPUSPAWNER_THREADS": "4"}


def test_a_task_has_both_threads_of_each_core_where_slurm_counts_cores() -> None:
    """Two CPUs for each task are two cores, of which Slurm has granted four with eight threads."""
    tasks = step(replace(THREADED, simulated=True), 2, "0,1", "0-7", SLURM_CPUS_ON_NODE="4", SLURM_CPUS_PER_TASK="2")
    assert sorted(parts_of(tasks)) == ["0 on 0-1,4-5", "1 on 2-3,6-7"]


def test_without_a_policy_cpus_are_left_as_they_are() -> None:
    """``none`` divides the GPUs, which srun shows to all tasks, and binds nothing."""
    assert parts_of(step(K80, 2, "0,1,2,3", "0-7", policy="none")) == ["0,1 on 0-7", "2,3 on 0-7"]


# Ranks of gpuspawner-run.

WHOLE = ControllerAnswers({}, job="Nodes=n1 CPU_IDs=0-23 Mem=1 GRES=", node="")
"""Slurm, where the job has such a node whole."""


@pytest.mark.parametrize(
    ("command", "ranks", "keeps", "policy", "threads"),
    [
        ("python train.py", 1, (), "auto", "24"),
        ("python train.py", 4, (), "auto", "6"),
        ("python train.py", 30, (), "auto", "1"),
        ("python train.py", 4, (), "none", "6"),
        ("python train.py", 4, ("cpu",), "auto", "6"),
        ("torchrun train.py", 1, (), "auto", "6"),
        ("torchrun --nproc-per-node=2 train.py", 1, (), "auto", "12"),
        ("torchrun --nproc-per-node=2 train.py", 2, (), "auto", "6"),
        ("torchrun --nproc-per-node=100 train.py", 1, (), "auto", "1"),
    ],
)
def test_the_threads_of_all_processes_are_no_more_than_the_cores(
    command: str, ranks: int, keeps: tuple[str, ...], policy: str, threads: str
) -> None:
    """One rank for each node or GPU, with CPUs of its own or shared ones; of torchrun's processes each has its part."""
    environ = {
        "SLURM_JOB_ID": "7",
        "SLURM_LOCALID": "0",
        "SLURM_JOB_GPUS": "0,1,2,3",
        "CUDA_VISIBLE_DEVICES": "0,1,2,3",
        "SLURM_GPUS_ON_NODE": "4",
        "OMP_NUM_THREADS": "24",
        "GPUSPAWNER_THREADS": "24",
    }
    words = command.split()
    spec = Spec("token", "{}", keeps=keeps, torchrun=words[0] == "torchrun")
    plan = LaunchPlan(report=False, policy=policy)
    RankLaunch(plan, environ, Rank(0, 0, 0, (ranks,)), spec, words, slurm=WHOLE, topology=K80).place()
    assert environ["OMP_NUM_THREADS"] == threads


@pytest.mark.parametrize(("nodes", "cards"), [("2", "mlx4_0"), ("1", None)], ids=["two nodes", "one node"])
def test_a_rank_of_several_nodes_knows_the_network_cards_beside_its_gpus(
    monkeypatch: pytest.MonkeyPatch, nodes: str, cards: str | None
) -> None:
    """On one node NCCL uses none. The node is a description; what the plan names reads the cards."""

    def described(*, readers: Sequence[Reader], **_: object) -> NodeTopology:
        topology = replace(K80, nics=(), nic_links=(), nic_numa=())
        for reader in readers:
            topology = reader.read(topology, "/")
        return topology

    monkeypatch.setattr(placing, "observe", described)
    monkeypatch.setattr(nics, "with_nics", lambda _topology, _root: K80)
    plan = LaunchPlan(readers=(f"{nics.__name__}:NetworkCards",))
    environ = {
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NUM_NODES": nodes,
        "SLURM_JOB_GPUS": "2,3",
        "CUDA_VISIBLE_DEVICES": "2,3",
        "SLURM_GPUS_ON_NODE": "2",
    }
    rank.place(Spec("token", plan.dumps(), allocation="Nodes=n1"), environ, ["true"], Rank(0, 0, 0, (1,)))

    assert environ.get("GPUSPAWNER_NICS") == cards


def test_tasks_that_share_are_counted_by_the_first() -> None:
    """CPUs or GPUs."""
    tasks = step(K80, 25, "0,1", "0-23")
    shared = ("25 tasks share 2 GPUs on this node.", "25 tasks share 24 CPUs on this node.")
    assert [placement.problems for _, placement in tasks] == [shared, *[()] * 24]


def test_the_binding_that_is_printed_is_the_one_that_holds() -> None:
    """The numbers of a simulated node are not those of the machine on which the rank runs."""
    placement = PlacementDocument(cpus="6-11", memory_policy="preferred:0")
    assert binding(placement, "1") == "GPUs 1; CPUs 6-11; memory preferred:0"
    simulated = replace(placement, simulated=True)
    assert binding(simulated, "1") == "GPUs 1; CPUs and memory not bound, because the node is simulated"
