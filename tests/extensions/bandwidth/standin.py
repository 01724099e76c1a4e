"""Stand-ins for a machine with GPUs: copies take the time given in a table, and all calls are recorded."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from jupyterhub_gpuspawner.extensions.bandwidth.measurement import Buffer, CopyError, MeasuredGpu

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from jupyterhub_gpuspawner.extensions.bandwidth.measurement import Direction

T = TypeVar("T")
TWO_SOCKETS = (MeasuredGpu(index=0, name="K80", numa_node=0), MeasuredGpu(index=2, name="K80", numa_node=1))


class StandInMachine:
    """In place of both, GPUs and host. ``near`` and ``far`` are in GB/s."""

    def __init__(
        self, gpus: Sequence[MeasuredGpu] = TWO_SOCKETS, *, near: float = 10.0, far: float = 8.0, local: int = 0
    ) -> None:
        self._gpus = gpus
        self._rates = {True: near, False: far}
        self.local = local
        """NUMA node of memory that is not bound."""
        self.bound_to: int | None = None
        self.done: list[str] = []
        self.failures: Mapping[str, str] = {}

    def _do(self, what: str) -> None:
        self.done.append(what)
        if what in self.failures:
            raise CopyError(self.failures[what])

    def on(self, node: int | None, work: Callable[[], T]) -> T:
        self._do(f"on {node}")
        self.bound_to = node
        result = work()
        self.bound_to = None
        return result

    @contextmanager
    def buffer(self, size: int) -> Iterator[Buffer]:
        self._do(f"buffer {size}")
        yield Buffer(4096, size, (self.local if self.bound_to is None else self.bound_to,))
        self.done.append("buffer freed")

    def gpus(self) -> Sequence[MeasuredGpu]:
        return self._gpus

    @contextmanager
    def open(self, ordinal: int, size: int) -> Iterator[StandInGpu]:
        self._do(f"gpu {ordinal} {size}")
        yield StandInGpu(self, self._gpus[ordinal])
        self.done.append(f"gpu {ordinal} closed")

    def seconds(self, gpu: MeasuredGpu, buffer: Buffer) -> float:
        """The duration of a copy, in seconds."""
        return buffer.size / self._rates[buffer.memory_on == (gpu.numa_node,)] / 1e9


class StandInGpu:
    """One of the machine's GPUs."""

    def __init__(self, machine: StandInMachine, gpu: MeasuredGpu) -> None:
        self._machine = machine
        self._gpu = gpu

    @contextmanager
    def pinned(self, buffer: Buffer) -> Iterator[Callable[[Direction], float]]:
        def copy(direction: Direction) -> float:
            self._machine.done.append(direction)
            return self._machine.seconds(self._gpu, buffer)

        self._machine.done.append("pinned")
        yield copy
        self._machine.done.append("unpinned")
