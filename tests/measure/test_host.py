"""The node's CPUs and memory: what the kernel reports for a bound thread and its pages."""

from __future__ import annotations

import ctypes
import os

import pytest

from jupyterhub_gpuspawner.measure.copies import Buffer, CopyError
from jupyterhub_gpuspawner.measure.host import ThisHost, nodes_of
from jupyterhub_gpuspawner.node import binding
from jupyterhub_gpuspawner.node.observe import sysfs
from jupyterhub_gpuspawner.placement.topology import NodeTopology, NumaNode

HERE = sysfs.read()


@pytest.fixture
def node() -> int:
    """A NUMA node of this machine that this process may use."""
    try:
        binding.read_memory()
    except OSError as error:
        pytest.skip(f"the kernel does not tell memory policies: {error}")
    return ThisHost(HERE).nodes()[0]


def test_a_bound_thread_leaves_the_process_as_it_was(node: int) -> None:
    """CPU and memory are bound only during the work, and its pages are on the node."""
    host = ThisHost(HERE)
    before = (os.sched_getaffinity(0), binding.read_memory())
    seen: list[object] = []

    def work() -> None:
        with host.buffer(3 * 2**20) as buffer:
            seen.extend([os.sched_getaffinity(0), binding.read_memory(), buffer.memory_on])

    host.on(node, work)
    near = next(each.cpus for each in HERE.numa_nodes if each.id == node)
    assert seen == [set(near) & before[0], f"bind:{node}", (node,)]
    assert (os.sched_getaffinity(0), binding.read_memory()) == before


def test_without_a_node_nothing_is_bound(node: int) -> None:
    """The work has the CPUs and the policy of the process."""
    seen: list[object] = []
    ThisHost(HERE).on(None, lambda: seen.extend([os.sched_getaffinity(0), binding.read_memory()]))
    assert seen == [os.sched_getaffinity(0), binding.read_memory()]


def test_every_page_of_a_buffer_is_in_use(node: int) -> None:
    """A buffer is touched before it is used, so that no page is allocated during a copy."""
    with ThisHost(HERE).buffer(2**20) as buffer:
        assert ctypes.string_at(buffer.address, buffer.size) == b"\x01" * buffer.size
        assert nodes_of(buffer.address, buffer.size) == buffer.memory_on != ()


def test_a_failure_within_the_thread_is_raised() -> None:
    """An error in the work, or in the binding, is raised in the caller."""
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
