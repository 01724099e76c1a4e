"""gpuspawner bandwidth without a GPU, and with a stand-in for one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from jupyterhub_gpuspawner.extensions.bandwidth import measurement as bandwidth
from jupyterhub_gpuspawner.placement.topology import NodeTopology
from tests.extensions.bandwidth.standin import StandInMachine

if TYPE_CHECKING:
    from tests.fixtures.commands import Call


def test_without_the_library(gpuspawner: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 2, and the command that installs it."""
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    result = gpuspawner("bandwidth")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("gpuspawner: NVIDIA's cuda-bindings cannot be imported (")
    assert result.stderr.endswith("pip install 'jupyterhub-gpuspawner[gpu]'\n")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> StandInMachine:
    """A stand-in in place of this machine's GPUs."""
    stand_in = StandInMachine()

    def driver(_: NodeTopology) -> StandInMachine:
        return stand_in

    monkeypatch.setattr(bandwidth, "CudaDriver", driver)
    return stand_in


def test_a_gpu_that_is_not_there(gpuspawner: Call, machine: StandInMachine) -> None:
    """Exit code 2, and a message with the existing indices."""
    result = gpuspawner("bandwidth", "--gpu", 1)
    assert (result.exit_code, result.stderr) == (2, "gpuspawner: --gpu: there is no GPU 1 here; there is 0, 2\n")


def test_nothing_that_could_be_measured(gpuspawner: Call, machine: StandInMachine) -> None:
    """If every copy fails there are no figures: exit code 2 and the reasons."""
    machine.failures = {f"gpu {n} {2**20}": "cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY" for n in range(2)}
    result = gpuspawner("bandwidth", "--gpu", 2, "--size", 1, "--repeat", 1)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "gpuspawner: Not bound, GPU 2 was not measured: cuMemAlloc failed" in result.stderr
