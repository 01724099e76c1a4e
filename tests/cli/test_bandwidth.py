"""gpuspawner bandwidth without a GPU, and with recorded figures."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from jupyterhub_gpuspawner.measure import bandwidth
from jupyterhub_gpuspawner.measure.bandwidth import Bandwidth
from jupyterhub_gpuspawner.measure.table import chart, table
from jupyterhub_gpuspawner.placement.topology import NodeTopology
from tests.cli.conftest import TEXTS
from tests.measure.standin import StandInMachine

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Call

MADE_UP = TEXTS.parent / "bandwidth" / "made-up.json"


def test_without_the_library(gpuspawner: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 2, and the command that installs it."""
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    result = gpuspawner("bandwidth")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("gpuspawner: NVIDIA's cuda-bindings cannot be imported (")
    assert result.stderr.endswith("pip install 'jupyterhub-gpuspawner[gpu]'\n")


def test_table_json_and_plot_of_a_recording(gpuspawner: Call, tmp_path: Path) -> None:
    """What --json printed is shown as a table or chart, or as the same JSON, without measuring."""
    measured = Bandwidth.model_validate_json(MADE_UP.read_bytes())
    plot = tmp_path / "plot.svg"
    assert gpuspawner("bandwidth", "--read", MADE_UP).stdout == table(measured)
    assert json.loads(gpuspawner("bandwidth", "--read", MADE_UP, "--json").stdout) == json.loads(MADE_UP.read_text())
    drawn = gpuspawner("bandwidth", "--read", MADE_UP, "--plot", plot)
    assert (drawn.stdout, plot.read_text()) == ("", chart(measured))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"version": 2, "size_mib": 1, "gpus": [], "copies": []}', "version: Input should be 1"),
        (
            '{"size_mib": 1, "gpus": [], "copies": [{"gpu": 0, "bound_to": 0, "direction": "up", "gbps": [1]}]}',
            "copies.0.direction: Input should be 'h2d' or 'd2h'",
        ),
        ("nothing", "file: Invalid JSON: expected ident at line 1 column 2"),
    ],
)
def test_a_recording_that_is_none(gpuspawner: Call, tmp_path: Path, text: str, fault: str) -> None:
    """Exit code 2 and one line that names the field."""
    path = tmp_path / "measured.json"
    path.write_text(text)
    result = gpuspawner("bandwidth", "--read", path)
    assert (result.exit_code, result.stderr) == (2, f"gpuspawner: {path} is not a measurement: {fault}\n")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> StandInMachine:
    """A stand-in in place of this machine's GPUs."""
    found = StandInMachine()

    def driver(_: NodeTopology) -> StandInMachine:
        return found

    monkeypatch.setattr(bandwidth, "CudaDriver", driver)
    return found


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
