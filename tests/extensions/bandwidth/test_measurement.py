"""What is measured and in which order, on a stand-in machine; and what the kernel reports for a bound thread."""

from __future__ import annotations

import ctypes
import os
from typing import Any

import pytest

from jupyterhub_gpuspawner.extensions.bandwidth.measurement import (
    Bandwidth,
    Buffer,
    Copies,
    CopyError,
    MeasuredGpu,
    ThisHost,
    measure,
    nodes_of,
)
from jupyterhub_gpuspawner.node import hardware, placing
from jupyterhub_gpuspawner.placement.topology import NodeTopology, NumaNode
from tests.extensions.bandwidth.standin import TWO_SOCKETS, StandInMachine

MIB = 2**20


def test_each_gpu_from_each_node_and_not_bound() -> None:
    """A GPU's near node is faster in both directions; unbound, the location of the memory decides."""
    machine: Any = StandInMachine(local=1)
    messages: list[str] = []
    measured = measure(machine, machine, nodes=(0, 1), size_mib=4, repeats=3, report=messages.append)
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
    assert messages == [
        "GPU 0, not bound",
        "GPU 0, bound to NUMA node 0",
        "GPU 0, bound to NUMA node 1",
        "GPU 2, not bound",
        "GPU 2, bound to NUMA node 0",
        "GPU 2, bound to NUMA node 1",
    ]


def test_the_order_of_one_measurement() -> None:
    """Memory is bound and touched before it is pinned; two copies warm up; everything is released."""
    machine: Any = StandInMachine()
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
    machine: Any = StandInMachine()
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
    assert (copies.median_gbps, measured.find(0, 0, "h2d"), measured.find(0, None, "h2d"), measured.size_mib) == (
        12.8,
        copies,
        None,
        1,
    )


HERE = hardware.read()


@pytest.fixture
def node() -> int:
    """A NUMA node of this machine that this process may use."""
    try:
        placing.read_memory()
    except OSError as error:
        pytest.skip(f"the kernel does not tell memory policies: {error}")
    return ThisHost(HERE).nodes()[0]


def test_a_bound_thread_leaves_the_process_as_it_was(node: int) -> None:
    """CPU and memory are bound only during the work, and its pages are on the node."""
    host = ThisHost(HERE)
    before = (os.sched_getaffinity(0), placing.read_memory())
    bindings: list[object] = []

    def work() -> None:
        with host.buffer(3 * 2**20) as buffer:
            bindings.extend([os.sched_getaffinity(0), placing.read_memory(), buffer.memory_on])

    host.on(node, work)
    near = next(numa_node.cpus for numa_node in HERE.numa_nodes if numa_node.id == node)
    assert bindings == [set(near) & before[0], f"bind:{node}", (node,)]
    assert (os.sched_getaffinity(0), placing.read_memory()) == before


def test_without_a_node_nothing_is_bound(node: int) -> None:
    """The work has the CPUs and the policy of the process."""
    bindings: list[object] = []
    ThisHost(HERE).on(None, lambda: bindings.extend([os.sched_getaffinity(0), placing.read_memory()]))
    assert bindings == [os.sched_getaffinity(0), placing.read_memory()]


def test_every_page_of_a_buffer_is_in_use(node: int) -> None:
    """A buffer is touched before it is used, so that no page is allocated during a copy."""
    with ThisHost(HERE).buffer(2**20) as buffer:
        assert ctypes.string_at(buffer.address, buffer.size) == b"\x01" * buffer.size
        assert nodes_of(buffer.address, buffer.size) == buffer.memory_on != ()


def test_a_failure_within_the_thread_is_raised() -> None:
    """An error in the work, or in the bind, is raised in the caller."""
    nowhere = ThisHost(NodeTopology(numa_nodes=(NumaNode(900, (65000,)),)))
    assert nowhere.nodes() == ()
    with pytest.raises(CopyError, match="This process is not allowed to use CPUs 65000"):
        nowhere.on(900, lambda: None)
    with pytest.raises(ZeroDivisionError):
        nowhere.on(None, lambda: print(1 / 0))


def test_a_place_that_is_no_memory_tells_no_node() -> None:
    """Pages that do not exist have no node."""
    assert nodes_of(0, 4096) == ()
    assert Buffer(0, 4096).memory_on == ()
