"""Copies through NVIDIA's bindings, with a stand-in for the driver's library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology, to_document
from tests.standins import c_library, cuda

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

UNKNOWN = NodeTopology()
TWO_GPUS = "gpu 0000:04:00.0 12.9 12.8 Tesla_K80\ngpu 0000:82:00.0 6.0 5.0 Tesla_K80\n"
_MEASURE = """
import json, sys
from jupyterhub_gpuspawner.extensions.bandwidth.measurement import (
    CopyError, CudaDriver, CudaUnavailableError, ThisHost, measure
)
from jupyterhub_gpuspawner.placement.topology import from_document
node = from_document(json.loads(sys.stdin.read()))
try:
    driver = CudaDriver(node)
    print(measure(driver, ThisHost(node), nodes=(), size_mib=1, repeats=2).model_dump_json())
except (CopyError, CudaUnavailableError) as error:
    print(json.dumps({type(error).__name__: str(error)}))
"""


class Measure(Protocol):
    """Measure on the machine that the text describes."""

    def __call__(
        self, text: str, *, node: NodeTopology = UNKNOWN, environ: Mapping[str, str] | None = None
    ) -> dict[str, Any]: ...


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("cuda.bindings", reason="no cuda-bindings (extra gpu)")
    if c_library.compiler() is None:
        pytest.skip("no C compiler to build the stand-in for CUDA's driver with")
    return cuda.build(tmp_path_factory.mktemp("cuda"))


@pytest.fixture
def measure(library: Path, tmp_path: Path) -> Measure:
    """A separate process in which the real bindings load the stand-in."""

    def run(text: str, *, node: NodeTopology = UNKNOWN, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
        machine = tmp_path / "machine.txt"
        machine.write_text(text)
        done = subprocess.run(
            [sys.executable, "-c", _MEASURE],
            input=json.dumps(to_document(node)),
            env={**os.environ, "LD_LIBRARY_PATH": str(library), "STANDIN_CUDA": str(machine), **(environ or {})},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    return run


def test_gpus_are_known_by_their_bus_ids(measure: Measure) -> None:
    """A GPU has NVML's index and NUMA node, whatever its ordinal in CUDA; one unknown to NVML keeps its ordinal."""
    node = NodeTopology(gpus=(Gpu(5, pci="0000:82:00.0", numa_node=1),))
    answer = measure(TWO_GPUS, node=node)
    assert answer["gpus"] == [
        {"index": 0, "name": "Tesla K80", "pci": "0000:04:00.0", "numa_node": None},
        {"index": 5, "name": "Tesla K80", "pci": "0000:82:00.0", "numa_node": 1},
    ]
    assert [(c["gpu"], c["bound_to"], c["direction"], c["gbps"]) for c in answer["copies"]] == [
        (0, None, "h2d", [12.9, 12.9]),
        (0, None, "d2h", [12.8, 12.8]),
        (5, None, "h2d", [6.0, 6.0]),
        (5, None, "d2h", [5.0, 5.0]),
    ]
    assert answer["problems"] == []


@pytest.mark.parametrize(
    ("text", "environ", "answer"),
    [
        ("init 100\n", {}, "CUDA finds no GPU here"),
        ("", {"CUDA_VISIBLE_DEVICES": ""}, "CUDA finds no GPU here; CUDA_VISIBLE_DEVICES is ''"),
        ("init 803\n", {}, "CUDA cannot be used: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
    ],
)
def test_no_gpu(measure: Measure, text: str, environ: dict[str, str], answer: str) -> None:
    """The message contains CUDA's answer, and the variable that may hide the GPUs."""
    assert measure(text, environ=environ) == {"CudaUnavailableError": answer}


def test_no_driver(measure: Measure, tmp_path: Path) -> None:
    """Bindings without a driver say that there is none."""
    answer = measure(TWO_GPUS, environ={"LD_LIBRARY_PATH": str(tmp_path)})
    if "gpus" in answer:
        pytest.skip("this machine has a driver")
    assert answer == {
        "CudaUnavailableError": "there is no NVIDIA driver here (libcuda.so.1 cannot be loaded), so no GPU"
    }


@pytest.mark.parametrize("function", ["cuMemAlloc", "cuMemHostRegister", "cuMemcpyDtoHAsync", "cuEventCreate"])
def test_a_failing_call_is_a_problem(measure: Measure, function: str) -> None:
    """If a call fails, only that GPU's figures are missing, and the problem names the call and the reason."""
    answer = measure(f"{TWO_GPUS}fail {function} 2\n")
    assert (answer["copies"], answer["problems"]) == (
        [],
        [f"Not bound, GPU {n} was not measured: {function} failed: CUDA_ERROR_OUT_OF_MEMORY." for n in range(2)],
    )
