"""The table of a measurement (figures made up)."""

from __future__ import annotations

from pathlib import Path

from jupyterhub_gpuspawner.extensions.bandwidth.cli import rows, table
from jupyterhub_gpuspawner.extensions.bandwidth.measurement import Bandwidth, Copies, MeasuredGpu

BANDWIDTH = Bandwidth.model_validate_json((Path(__file__).parent / "made-up.json").read_bytes())


def test_table() -> None:
    """The GPU's own node first, the losses on the others, the location of the memory, and what failed."""
    assert table(BANDWIDTH) == (
        "Pinned copies of 256 MiB, GB/s (10^9 bytes a second), the median of 3\n"
        "\n"
        "GPU 0, beside NUMA node 0   host to device        device to host\n"
        "  bound to node 0             12.9                  12.8\n"
        "  bound to node 1              2.1  -84 %            2.4  -81 %\n"
        "  not bound                    9.2  -29 %            9.9  -23 %         memory on 0-1\n"
        "\n"
        "GPU 2, beside NUMA node 1   host to device        device to host\n"
        "  bound to node 1             12.7                  12.6\n"
        "  bound to node 0              2.2  -83 %            2.3  -82 %\n"
        "  not bound                   12.7  +0 %            12.5  -1 %          memory on 1\n"
        "\n"
        "Bound to NUMA node 1, GPU 3 was not measured: cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY.\n"
    )


def test_a_gpu_whose_node_is_not_known_has_nothing_to_lose_against() -> None:
    """If the GPU's NUMA node is unknown, the figures are in the order of the nodes, without differences."""
    gpu = MeasuredGpu(index=0)
    copies = tuple(
        Copies(gpu=0, bound_to=node, direction="h2d", gbps=(rate,)) for node, rate in ((None, 5.0), (1, 6.0), (0, 7.0))
    )
    measured = Bandwidth(size_mib=64, gpus=(gpu,), copies=copies)
    assert rows(measured, gpu) == (0, 1, None)
    assert table(measured) == (
        "Pinned copies of 64 MiB, GB/s (10^9 bytes a second), the median of 1\n"
        "\n"
        "GPU 0, NUMA node not known  host to device        device to host\n"
        "  bound to node 0              7.0\n"
        "  bound to node 1              6.0\n"
        "  not bound                    5.0\n"
    )
