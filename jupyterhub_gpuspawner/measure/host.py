"""The node's CPUs and memory, for a measurement: threads bound to a NUMA node, and memory whose NUMA node is known."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.measure.copies import Buffer, CopyError
from jupyterhub_gpuspawner.node import binding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jupyterhub_gpuspawner.placement.topology import NodeTopology

_MOVE_PAGES = {"x86_64": 279, "aarch64": 239, "ppc64le": 301}
_SAMPLES = 256
_PAGE = mmap.PAGESIZE


class ThisHost:
    """The node that this process runs on; the CPUs of its NUMA nodes come from ``topology``."""

    def __init__(self, topology: NodeTopology) -> None:
        self._cpus = {node.id: node.cpus for node in topology.numa_nodes}

    def nodes(self) -> tuple[int, ...]:
        """NUMA nodes with CPUs that this process may use."""
        allowed = set(binding.allowed_cpus())
        return tuple(sorted(node for node, cpus in self._cpus.items() if allowed.intersection(cpus)))

    def on(self, node: int | None, work: Callable[[], None]) -> None:
        """Run ``work`` in a new thread, so that its CPU affinity and memory policy end with the thread."""
        failures: list[BaseException] = []

        def bound() -> None:
            try:
                if node is not None:
                    self._bind(node)
                work()
            except BaseException as error:  # noqa: BLE001 - raised again by the caller
                failures.append(error)

        thread = threading.Thread(target=bound)
        thread.start()
        thread.join()
        if failures:
            raise failures[0]

    def _bind(self, node: int) -> None:
        _, problems = binding.bind_cpus(self._cpus[node])
        policy, more = binding.bind_memory("bind", (node,))
        if problems or more:
            raise CopyError(" ".join((*problems, *more)).rstrip("."))
        if policy != f"bind:{node}":
            raise CopyError(f"the memory policy is {policy}, though bind:{node} was set")

    @contextmanager
    def buffer(self, size: int) -> Iterator[Buffer]:
        """Anonymous memory of ``size`` bytes, every page touched by this thread."""
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        view = (ctypes.c_char * size).from_buffer(memory)
        try:
            address = ctypes.addressof(view)
            ctypes.memset(address, 1, size)
            yield Buffer(address, size, nodes_of(address, size))
        finally:
            del view
            memory.close()


def nodes_of(address: int, size: int) -> tuple[int, ...]:
    """NUMA nodes of a sample of the pages (move_pages(2)); empty where the kernel does not say."""
    number = _MOVE_PAGES.get(os.uname().machine)
    if number is None:
        return ()
    first = address - address % _PAGE
    pages = range(first, address + size, _PAGE)
    sampled = pages[:: max(1, len(pages) // _SAMPLES)]
    addresses = (ctypes.c_void_p * len(sampled))(*sampled)
    status = (ctypes.c_int * len(sampled))()
    arguments = (ctypes.c_long(0), ctypes.c_ulong(len(sampled)), addresses, None, status, ctypes.c_int(0))
    if ctypes.CDLL(None).syscall(ctypes.c_long(number), *arguments) != 0:
        return ()
    return tuple(sorted({node for node in status if node >= 0}))
