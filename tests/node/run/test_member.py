"""One rank of a step: its part of a described node, and the threads of its processes."""

from __future__ import annotations

from pathlib import Path

import pytest

import jupyterhub_gpuspawner
from jupyterhub_gpuspawner.node.run.rank import Rank, RankPlacing, binding
from jupyterhub_gpuspawner.node.run.srun import Spec
from jupyterhub_gpuspawner.placement.topology import load
from jupyterhub_gpuspawner.wire.documents import LaunchPlan, PlacementDocument

K80 = load(str(Path(jupyterhub_gpuspawner.__file__).parent / "demo" / "machines" / "k80-2socket.json"))
"""Two sockets of twelve cores, with two GPUs each."""


ALL_OF_IT = "Nodes=n1 CPU_IDs=0-23 Mem=1 GRES="
"""The allocation of a job that has such a node whole."""


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
    spec = Spec("token", "{}", keeps=keeps, torchrun=words[0] == "torchrun", allocation=ALL_OF_IT)
    plan = LaunchPlan(report=False, policy=policy)
    RankPlacing(plan, environ, Rank(0, ranks), spec, words, topology=K80).place()
    assert environ["OMP_NUM_THREADS"] == threads


def test_ranks_that_share_cpus_are_told_so() -> None:
    """By the first of them."""
    environ = {"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "", "SLURM_GPUS_ON_NODE": "0"}
    plan, spec = LaunchPlan(report=False), Spec("", "{}", allocation=ALL_OF_IT)
    ranks = [RankPlacing(plan, dict(environ), Rank(n, 25), spec, topology=K80) for n in range(2)]
    problems = [rank.place()[0].problems for rank in ranks]
    assert problems == [("25 tasks share 24 CPUs on this node.",), ()]


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
