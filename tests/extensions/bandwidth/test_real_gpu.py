"""gpuspawner bandwidth on a real GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu


@pytest.fixture
def gpus() -> list[str]:
    """Bus ids of the GPUs, as nvidia-smi has them."""
    pytest.importorskip("cuda.bindings", reason="no cuda-bindings (extra gpu)")
    try:
        listing = subprocess.run(
            ["nvidia-smi", "--query-gpu=pci.bus_id", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no GPU: {error}")
    return [line.strip().lower()[4:] for line in listing.stdout.splitlines()]


def test_every_gpu_is_measured_from_every_node(gpus: list[str]) -> None:
    """Each GPU has figures for both directions, bound and unbound; bound memory is on its node."""
    program = Path(sys.executable).with_name("gpuspawner")
    done = subprocess.run(
        [program, "bandwidth", "--json", "--size", "64", "--repeat", "3"], capture_output=True, timeout=150, check=True
    )
    document = json.loads(done.stdout)
    assert ([gpu["pci"] for gpu in document["gpus"]], document["problems"]) == (gpus, [])
    nodes = {copies["bound_to"] for copies in document["copies"]}
    assert None in nodes
    assert {(c["gpu"], c["bound_to"], c["direction"]) for c in document["copies"]} == {
        (gpu["index"], node, direction) for gpu in document["gpus"] for node in nodes for direction in ("h2d", "d2h")
    }
    assert all(c["memory_on"] == [c["bound_to"]] for c in document["copies"] if c["bound_to"] is not None)
    assert all(rate > 0.5 for c in document["copies"] for rate in c["gbps"])
