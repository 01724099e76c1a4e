"""The parts that all tasks of a job step take, on named machines, and the threads of a rank's processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import jupyterhub_gpuspawner
from jupyterhub_gpuspawner.cpulist import parse_cpulist
from jupyterhub_gpuspawner.node.grant import Slurm
from jupyterhub_gpuspawner.node.run.rank import Rank, RankPlacing, binding, rank_of
from jupyterhub_gpuspawner.node.run.srun import Spec
from jupyterhub_gpuspawner.placement.topology import NodeTopology, load
from jupyterhub_gpuspawner.wire.documents import LaunchPlan, PlacementDocument

MACHINES = Path(jupyterhub_gpuspawner.__file__).parent / "demo" / "machines"
DATA = Path(__file__).parents[2] / "data" / "machines"
K80, DGX1, MIG = (load(str(MACHINES / f"{name}.json")) for name in ("k80-2socket", "dgx1", "a100-mig"))
DGX1V = load(str(DATA / "dgx1v.json"))


class Task(RankPlacing):
    """One task of a step on a described node."""

    def __init__(self, node: NodeTopology, environ: dict[str, str], cpu_ids: str, **plan: Any) -> None:
        rank = rank_of(environ)
        assert rank is not None
        slurm = Slurm({}, job=f"Nodes=n1 CPU_IDs={cpu_ids} Mem=1 GRES=", node="")
        super().__init__(LaunchPlan(report=False, **plan), environ, rank, slurm=slurm, topology=node)


def step(
    node: NodeTopology, tasks: int, gpus: str, cpu_ids: str, policy: str = "best-effort", **environ: str
) -> list[tuple[Task, PlacementDocument]]:
    """All tasks of a step, each with its placement; ``environ`` may hold values with ``{}`` for the task's number."""
    found = []
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
        found.append((task, task.place()[0]))
    return found


def seen(tasks: list[tuple[Task, PlacementDocument]]) -> list[str]:
    return [f"{task.environ['CUDA_VISIBLE_DEVICES']} on {placed.cpus}" for task, placed in tasks]


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
    assert seen(step(node, tasks, gpus, cpus)) == parts


def test_the_placement_tells_the_tasks_part() -> None:
    """Links, nodes and alignment are those of the part; the sentence says whose it is."""
    [_, (_, placed)] = step(K80, 2, "0,1,2,3", "0-23")
    assert (placed.weakest_link, placed.numa_nodes, placed.aligned) == ("PIX", (1,), True)
    assert placed.why == (
        "Task 1 of 2 on this node. GPUs 2 and 3, as granted; the slowest link of their ring is PIX (about 12 GB/s)."
    )


def test_gpus_that_slurm_gave_to_each_task_stay_with_it() -> None:
    """--gpus-per-task: the cores follow what Slurm has given."""
    own = {"CUDA_VISIBLE_DEVICES": "{}", "SLURM_STEP_GPUS": "{}"}
    assert seen(step(K80, 4, "0,1,2,3", "0-23", **own)) == [
        "0 on 0-5",
        "1 on 6-11",
        "2 on 12-17",
        "3 on 18-23",
    ]


def test_mig_devices_are_divided_by_their_uuids() -> None:
    """MIG devices have no number; each task gets the UUIDs of its own."""
    parts = MIG.gpus[2:]
    uuids = ",".join(gpu.uuid for gpu in parts)
    tasks = step(MIG, 4, "2,3,4,5", "16-23", CUDA_VISIBLE_DEVICES=uuids)
    assert [task.environ["CUDA_VISIBLE_DEVICES"] for task, _ in tasks] == [gpu.uuid for gpu in parts]


def test_names_that_cannot_be_found_are_divided_in_slurms_order() -> None:
    """If the driver says nothing, only the names are divided."""
    unknown = NodeTopology(numa_nodes=K80.numa_nodes, simulated=True)
    assert seen(step(unknown, 2, "0,1,2,3", "0-23")) == ["0,1 on 0-11", "2,3 on 12-23"]


def test_threads_of_the_whole_server_are_not_those_of_a_part() -> None:
    """Values that the launcher set for the server are replaced; values set by others stay."""
    [(task, _), _] = step(K80, 2, "0,1", "0-7", GPUSPAWNER_THREADS="8", OMP_NUM_THREADS="8", MKL_NUM_THREADS="3")
    threads = {name: task.environ[name] for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "GPUSPAWNER_THREADS")}
    assert threads == {"OMP_NUM_THREADS": "4", "MKL_NUM_THREADS": "3", "GPUSPAWNER_THREADS": "4"}


def test_without_a_policy_cpus_are_left_as_they_are() -> None:
    """``none`` divides the GPUs, which srun shows to all tasks, and binds nothing."""
    assert seen(step(K80, 2, "0,1,2,3", "0-7", policy="none")) == ["0,1 on 0-7", "2,3 on 0-7"]


# Ranks of gpuspawner-run.

WHOLE = Slurm({}, job="Nodes=n1 CPU_IDs=0-23 Mem=1 GRES=", node="")
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
    RankPlacing(plan, environ, Rank(0, 0, 0, (ranks,)), spec, words, slurm=WHOLE, topology=K80).place()
    assert environ["OMP_NUM_THREADS"] == threads


def test_tasks_that_share_are_counted_by_the_first() -> None:
    """CPUs or GPUs."""
    tasks = step(K80, 25, "0,1", "0-23")
    shared = ("25 tasks share 2 GPUs on this node.", "25 tasks share 24 CPUs on this node.")
    assert [placed.problems for _, placed in tasks] == [shared, *[()] * 24]


@pytest.mark.parametrize(
    ("simulated", "words"),
    [
        (False, "GPUs 1; CPUs 6-11; memory preferred:0"),
        (True, "GPUs 1; CPUs and memory not bound, because the node is simulated"),
    ],
)
def test_the_binding_that_is_printed_is_the_one_that_holds(simulated: bool, words: str) -> None:
    """The numbers of a simulated node are not those of the machine on which the rank runs."""
    placed = PlacementDocument(simulated=simulated, cpus="6-11", memory_policy="preferred:0")
    assert binding(placed, "1") == words
