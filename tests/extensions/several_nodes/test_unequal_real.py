"""gpuspawner-run on a real Slurm, in jobs that have different numbers of GPUs on their nodes, or few CPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.extensions.several_nodes.four_nodes import Server, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slurm
SHOW = ("--no-label", "--", "sh", "-c", "echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES")


@pytest.fixture(scope="module")
def server(four_nodes: PrivateSlurm, site_folder: Path) -> Iterator[Server]:
    """Three GPUs and three CPUs on two nodes."""
    with serving(four_nodes, site_folder, "--nodes=2", "--ntasks=3", "--gpus=3") as server:
        yield server


def test_each_gpu_of_unequal_nodes_has_its_rank(server: Server) -> None:
    """``--gpus=3`` on two nodes: no GPU is idle, and none has two ranks."""
    done = server.run(*SHOW)
    assert (done.returncode, len(done.stdout.split("\n")[:-1]), len(set(done.stdout.splitlines()))) == (0, 3, 3), done


def test_what_slurm_cannot_give_is_named(server: Server) -> None:
    """A rank on each node cannot have all GPUs there; one on the first node can."""
    refused = server.run("--per-node", *SHOW)
    assert (refused.returncode, "have different numbers of GPUs (r1 " in refused.stderr) == (2, True), refused
    done = server.run("-N", "1", "--per-node", *SHOW)
    assert (done.returncode, done.stdout.partition(" ")[0]) == (0, "r1"), done


def test_more_ranks_than_cpus_share_them(four_nodes: PrivateSlurm, site_folder: Path) -> None:
    """All of them run, and the first one on a node says so."""
    with serving(four_nodes, site_folder, "--nodes=1", "--ntasks=1", "--gres=gpu:4") as server:
        done = server.run(*SHOW)
    shared = "gpuspawner: 4 tasks share 1 CPUs on this node." in done.stderr.splitlines()
    gpus = sorted(line.partition(" ")[2] for line in done.stdout.splitlines())
    assert (done.returncode, gpus, shared) == (0, ["0", "1", "2", "3"], True), done


@pytest.mark.parametrize("options", [("--ntasks=1", "--gpus-per-task=4"), ("--ntasks=2", "--gpus-per-task=2")])
def test_gpus_of_the_job_s_tasks_are_divided_among_the_ranks(
    options: tuple[str, ...], four_nodes: PrivateSlurm, site_folder: Path
) -> None:
    """``--gpus-per-task`` is about the tasks of the job, of which each rank would ask for as many."""
    with serving(four_nodes, site_folder, "--nodes=1", "--cpus-per-task=4", *options) as server:
        done = server.run(*SHOW)
    gpus = sorted(line.partition(" ")[2] for line in done.stdout.splitlines())
    assert (done.returncode, gpus) == (0, ["0", "1", "2", "3"]), done
