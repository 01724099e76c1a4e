"""No way to count GPUs is taken for another: the type checker refuses it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_LINES = """\
from jupyterhub_gpuspawner.node.grant import CudaIndex, GpuGrant, SlurmIndex, VisibleName, positions_of
from jupyterhub_gpuspawner.placement.topology import NodeTopology

topology = NodeTopology()
slurms, cudas = SlurmIndex(5), CudaIndex(0)
GpuGrant((VisibleName(str(cudas)),), (0,), (slurms,))
positions_of((slurms,), topology)
GpuGrant((str(slurms),))  # refused
GpuGrant((slurms,))  # refused
GpuGrant((VisibleName("0"),), (0,), (cudas,))  # refused
GpuGrant((VisibleName("0"),), (0,), (topology.gpus[0].index,))  # refused
positions_of((cudas,), topology)  # refused
positions_of((0,), topology)  # refused
cudas = slurms  # refused
"""


@pytest.mark.nightly
def test_one_index_is_not_assigned_to_another(tmp_path: Path) -> None:
    """Slurm's index, the CUDA index, the NVML index, and the name in CUDA_VISIBLE_DEVICES."""
    api = pytest.importorskip("mypy.api")
    snippet = tmp_path / "snippet.py"
    snippet.write_text(_LINES)

    report, errors, _ = api.run(["--strict", f"--cache-dir={tmp_path}", "--config-file=", str(snippet)])

    refused = [number for number, line in enumerate(_LINES.splitlines(), 1) if line.endswith("# refused")]
    assert [int(number) for number in re.findall(r"snippet\.py:(\d+): error", report)] == refused, report + errors
