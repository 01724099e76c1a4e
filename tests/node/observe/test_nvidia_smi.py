"""The text of ``nvidia-smi``: what the GPUs are, how they are linked, their MIG devices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.node.observe import nvidia_smi
from jupyterhub_gpuspawner.node.observe.errors import UnavailableError
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology

QUERY = """\
0, GPU-aaa, 00000000:07:00.0, NVIDIA A100-SXM4-40GB, 40960, 535.104.05, 4
1, GPU-bbb, 0000000F:0F:00.0, NVIDIA A100-SXM4-40GB, 40960, 535.104.05, 4
"""
LISTING = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aaa)
  MIG 3g.20gb     Device  0: (UUID: MIG-111)
  MIG 1g.5gb      Device  1: (UUID: MIG-222)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-bbb)
"""
MATRIX = """\
\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV12\tPXB\t0-1\t0\t\tN/A
GPU1\tNV12\t X \tSYS\t2-3\t1\t\tN/A
NIC0\tPXB\tSYS\t X \t\t\t\t

NIC Legend:

  NIC0: mlx5_0
"""
FIRST = Gpu(0, "GPU-aaa", "0000:07:00.0", "NVIDIA A100-SXM4-40GB", 40960, pcie_generation=4)
SECOND = Gpu(1, "GPU-bbb", "000f:0f:00.0", "NVIDIA A100-SXM4-40GB", 40960, pcie_generation=4)


def test_the_query_tells_what_the_gpus_are() -> None:
    """With bus ids as sysfs has them, and the driver's version."""
    assert nvidia_smi.parse_query(QUERY) == ([FIRST, SECOND], "535.104.05")


@pytest.mark.parametrize(
    ("line", "gpu"),
    [
        ("0, [N/A], [N/A], [N/A], [N/A], 535, [N/A]", Gpu(0)),
        (
            "0, GPU-x, 00000000:07:00.0, Orin, [Not Supported], N/A, 3",
            Gpu(0, "GPU-x", "0000:07:00.0", "Orin", pcie_generation=3),
        ),
        ("No devices were found", None),
        ("Unable to determine the device handle for GPU0000:07:00.0: GPU is lost.", None),
        ("", None),
    ],
)
def test_what_it_does_not_know_is_unknown(line: str, gpu: Gpu | None) -> None:
    """Lines in another form are ignored."""
    assert nvidia_smi.parse_query(line)[0] == ([gpu] if gpu else [])


def test_the_listing_tells_mig_devices_by_gpu() -> None:
    """Profile and UUID."""
    assert nvidia_smi.parse_listing(LISTING) == {0: [("3g.20gb", "MIG-111"), ("1g.5gb", "MIG-222")]}


def test_three_answers_make_one_topology() -> None:
    """MIG devices replace their GPU and have its links."""
    whole = "\n".join(line for line in LISTING.splitlines() if "MIG" not in line)

    assert nvidia_smi.compose([FIRST, SECOND], MATRIX, whole, driver="535") == NodeTopology(
        gpus=(_placed(FIRST, 0, (0, 1)), _placed(SECOND, 1, (2, 3))),
        links=(("X", "NV12"), ("NV12", "X")),
        nics=("mlx5_0",),
        nic_links=(("PXB", "SYS"),),
        source="nvidia-smi",
        driver="535",
    )

    parted = nvidia_smi.compose([FIRST, SECOND], MATRIX, LISTING)

    assert [(gpu.index, gpu.uuid, gpu.mig, gpu.numa_node) for gpu in parted.gpus] == [
        (0, "MIG-111", "3g.20gb", 0),
        (0, "MIG-222", "1g.5gb", 0),
        (1, "GPU-bbb", None, 1),
    ]
    assert parted.links == (("X", "PIX", "NV12"), ("PIX", "X", "NV12"), ("NV12", "NV12", "X"))
    assert parted.nics == ()


def _placed(gpu: Gpu, node: int, cpus: tuple[int, ...]) -> Gpu:
    return replace(gpu, numa_node=node, cpus=cpus, numa_affinity=(node,))


@pytest.mark.parametrize("matrix", ["", "No devices were found\n", "Failed to initialize NVML: Unknown Error\n"])
def test_without_a_matrix_the_links_are_unknown(matrix: str) -> None:
    """The GPUs are known all the same."""
    topology = nvidia_smi.compose([FIRST, SECOND], matrix, "")

    assert (topology.gpus, topology.links) == ((FIRST, SECOND), ())
    assert len(topology.problems) == (1 if matrix else 0)


def test_a_gpu_that_the_matrix_lacks_has_unknown_links() -> None:
    """Never a guess."""
    third = Gpu(2, "GPU-ccc")

    assert nvidia_smi.compose([FIRST, SECOND, third], MATRIX, "").links == (
        ("X", "NV12", "?"),
        ("NV12", "X", "?"),
        ("?", "?", "X"),
    )


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (None, "nvidia-smi: No such file or directory"),
        (
            "echo 'NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver.'; echo more; exit 9",
            "NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver.",
        ),
        ("exit 255", "exit code 255"),
    ],
)
def test_a_command_that_fails_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, reason: str
) -> None:
    """In the first line that it prints."""
    path = tmp_path / "nvidia-smi"
    if script:
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    with pytest.raises(UnavailableError) as raised:
        next(nvidia_smi.read())

    assert str(raised.value).endswith(reason)
