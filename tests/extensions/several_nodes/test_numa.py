"""The ranks of a step on a real two-socket kernel: each has the memory of its GPU's socket."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from jupyterhub_gpuspawner.extensions.several_nodes.carried import CARRIED, PACKAGE
from jupyterhub_gpuspawner.extensions.several_nodes.node.srun import SPEC, Spec
from tests.vm.conftest import boot
from tests.vm.jobs import K80, plan
from tests.vm.test_numa import TOUCHED, Truth

__all__ = ["boot"]  # the fixture

pytestmark = [pytest.mark.vm, pytest.mark.timeout(1200), pytest.mark.nightly]


@dataclass(frozen=True)
class Rank:
    """One of four ranks of a step that has the whole node, as slurmstepd starts it."""

    number: int
    gpu: str
    cpus: str
    numa_node: int

    @property
    def name(self) -> str:
        """For the guest."""
        return f"rank {self.number}"

    def to_guest(self) -> dict[str, Any]:
        """The rank in the format of ``guest/jobs.py``."""
        spec = Spec(
            token="abc",
            plan=plan(cpus=None).dumps(),
            master_port=20000,
            allocation="Nodes=k80 CPU_IDs=0-23 Mem=600 GRES=gpu:4(IDX:0-3)",
        )
        environ = {
            "SLURM_JOB_GPUS": "0,1,2,3",
            "CUDA_VISIBLE_DEVICES": "0,1,2,3",
            "SLURM_NODEID": "0",
            "SLURM_PROCID": str(self.number),
            "SLURM_LOCALID": str(self.number),
            "SLURM_STEP_NUM_TASKS": "4",
            "SLURM_STEP_NUM_NODES": "1",
            "SLURM_STEP_TASKS_PER_NODE": "4",
            SPEC: spec.dumps(),
        }
        return {
            "name": self.name,
            "cpus": "0-23",
            "mems": "0-1",
            "before": [],
            "environ": environ,
            "arguments": ["--entry", f"{PACKAGE}.rank:main"],
        }


RANKS = (Rank(0, "0", "0-5", 0), Rank(3, "3", "18-23", 1))


@pytest.fixture(scope="module")
def truth(boot: Callable[..., list[dict[str, Any]]], tmp_path_factory: pytest.TempPathFactory) -> Truth:
    """The results of all ranks; the machine is booted once."""
    files = tmp_path_factory.mktemp("guest")
    return Truth(boot([rank.to_guest() for rank in RANKS], files, carried=(CARRIED,)))


@pytest.mark.parametrize("rank", RANKS, ids=lambda rank: rank.name)
def test_a_rank_has_the_memory_of_its_gpus_socket(truth: Truth, rank: Rank) -> None:
    """Each of four ranks: its GPU, a quarter of the cores, on the GPU's socket, and pages there, for every thread."""
    witness = truth.witness(rank.name)
    at = truth.node["pci"][K80.gpus[rank.number].pci]["numa_node"]
    assert (at, witness["environ"]["CUDA_VISIBLE_DEVICES"], set(witness["threads"]), witness["policies"]) == (
        str(rank.numa_node),
        rank.gpu,
        {rank.cpus},
        ["default"],
    )
    assert list(witness["pages"]) == [at]
    assert witness["pages"][at] >= TOUCHED
