"""What is measured and in which order, on a stand-in machine."""

from __future__ import annotations

from jupyterhub_gpuspawner.measure.copies import Bandwidth, Copies, MeasuredGpu, measure
from tests.measure.standin import TWO_SOCKETS, StandInMachine

MIB = 2**20


def test_each_gpu_from_each_node_and_not_bound() -> None:
    """A GPU's near node is faster in both directions; unbound, the location of the memory decides."""
    machine = StandInMachine(local=1)
    told: list[str] = []
    measured = measure(machine, machine, nodes=(0, 1), size_mib=4, repeats=3, tell=told.append)
    assert measured == Bandwidth(
        size_mib=4,
        gpus=TWO_SOCKETS,
        copies=tuple(
            Copies(gpu=gpu, bound_to=bound_to, direction=direction, gbps=(rate,) * 3, memory_on=(memory,))
            for gpu, bound_to, rate, memory in [
                (0, None, 8.0, 1),
                (0, 0, 10.0, 0),
                (0, 1, 8.0, 1),
                (2, None, 10.0, 1),
                (2, 0, 8.0, 0),
                (2, 1, 10.0, 1),
            ]
            for direction in ("h2d", "d2h")
        ),
    )
    assert told == [
        "GPU 0, not bound",
        "GPU 0, bound to NUMA node 0",
        "GPU 0, bound to NUMA node 1",
        "GPU 2, not bound",
        "GPU 2, bound to NUMA node 0",
        "GPU 2, bound to NUMA node 1",
    ]


def test_the_order_of_one_measurement() -> None:
    """Memory is bound and touched before it is pinned; two copies warm up; everything is released."""
    machine = StandInMachine()
    measure(machine, machine, nodes=(), size_mib=1, repeats=1, only=[2])
    assert machine.done == [
        "on None",
        f"gpu 1 {MIB}",
        f"buffer {MIB}",
        "pinned",
        *["h2d"] * 3,
        *["d2h"] * 3,
        "unpinned",
        "buffer freed",
        "gpu 1 closed",
    ]


def test_what_fails_is_told_and_the_rest_is_measured() -> None:
    """If the kernel refuses a node, or a GPU has no memory left, only those figures are missing."""
    machine = StandInMachine()
    machine.failures = {"on 1": "the kernel refused", f"gpu 0 {MIB}": "cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY"}
    measured = measure(machine, machine, nodes=(0, 1), size_mib=1, repeats=1)
    assert [(copies.gpu, copies.bound_to) for copies in measured.copies] == [(2, None), (2, None), (2, 0), (2, 0)]
    assert measured.problems == (
        "Not bound, GPU 0 was not measured: cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY.",
        "Bound to NUMA node 0, GPU 0 was not measured: cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY.",
        "Bound to NUMA node 1, GPU 0 was not measured: the kernel refused.",
        "Bound to NUMA node 1, GPU 2 was not measured: the kernel refused.",
    )


def test_the_middle_counts() -> None:
    """One slow copy does not change the figure."""
    copies = Copies(gpu=0, bound_to=0, direction="h2d", gbps=(12.8, 3.0, 12.9))
    measured = Bandwidth(size_mib=1, gpus=(MeasuredGpu(index=0),), copies=(copies,))
    assert (copies.median_gbps, measured.find(0, 0, "h2d"), measured.find(0, None, "h2d"), measured.nodes) == (
        12.8,
        copies,
        None,
        (0,),
    )
