"""How fast pinned memory is copied to and from each GPU, from each NUMA node: what is measured, and in which order.

The same measurement as a copy test under numactl: ``numactl -m0 -N0``, ``-m1 -N1``, and without numactl. CUDA and the
kernel are behind two protocols, so that the order of operations can be tested without a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager

Direction = Literal["h2d", "d2h"]
DIRECTIONS: tuple[Direction, ...] = ("h2d", "d2h")
"""Host to device, device to host."""
WARM_UP = 2
"""Copies made before those that are measured."""
MIB = 2**20


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class MeasuredGpu(_Document):
    """A GPU that was measured."""

    index: int
    """NVML index; CUDA's where the two could not be matched."""
    name: str = ""
    pci: str = ""
    numa_node: int | None = None
    """NUMA node nearest to it, by kernel number; null where unknown."""


class Copies(_Document):
    """Copies of one kind: one GPU, one binding of the host's memory, one direction."""

    gpu: int
    """The GPU's index."""
    bound_to: int | None
    """NUMA node that CPU and memory were bound to; null: not bound."""
    direction: Direction
    gbps: tuple[float, ...] = Field(min_length=1)
    """GB/s (10^9 bytes a second) of each copy."""
    memory_on: tuple[int, ...] = ()
    """NUMA nodes that held the host's memory, according to the kernel; empty where it does not say."""

    @property
    def median_gbps(self) -> float:
        """Median of all copies, in GB/s."""
        return median(self.gbps)


class Bandwidth(_Document):
    """All measurements on a node: version 1 of the document that ``--json`` prints and ``--read`` reads."""

    version: Literal[1] = 1
    size_mib: int
    """MiB of one copy."""
    gpus: tuple[MeasuredGpu, ...]
    copies: tuple[Copies, ...]
    problems: tuple[str, ...] = ()

    def find(self, gpu: int, bound_to: int | None, direction: Direction) -> Copies | None:
        """The copies of one kind; None if they could not be made."""
        return next(
            (c for c in self.copies if (c.gpu, c.bound_to, c.direction) == (gpu, bound_to, direction)),
            None,
        )

    @property
    def nodes(self) -> tuple[int, ...]:
        """NUMA nodes that CPU and memory were bound to."""
        return tuple(sorted({copies.bound_to for copies in self.copies if copies.bound_to is not None}))


class CopyError(Exception):
    """A copy, or something that it needs, failed; the text says why."""


@dataclass(frozen=True)
class Buffer:
    """Memory of the host."""

    address: int
    size: int
    """Bytes."""
    memory_on: tuple[int, ...] = ()
    """NUMA nodes, by kernel number."""


class Host(Protocol):
    """The node's CPUs and memory."""

    def on(self, node: int | None, work: Callable[[], None]) -> None:
        """Run ``work`` bound to ``node``, or unbound for None; raises CopyError if the kernel refuses."""

    def buffer(self, size: int) -> AbstractContextManager[Buffer]:
        """``size`` bytes, allocated under the current memory policy, with every page touched."""


class OpenGpu(Protocol):
    """A GPU with memory for a copy."""

    def pinned(self, buffer: Buffer) -> AbstractContextManager[Callable[[Direction], float]]:
        """Pin the buffer and return a function that copies it once and returns the seconds taken. Raises CopyError."""


class Cuda(Protocol):
    """The GPUs of this process."""

    def gpus(self) -> Sequence[MeasuredGpu]:
        """The GPUs in CUDA's order."""

    def open(self, ordinal: int, size: int) -> AbstractContextManager[OpenGpu]:
        """The GPU at this position of :meth:`gpus`, with ``size`` bytes allocated on it; raises CopyError."""


def measure(
    cuda: Cuda,
    host: Host,
    *,
    nodes: Sequence[int],
    size_mib: int,
    repeats: int,
    only: Iterable[int] | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Bandwidth:
    """Copy to and from each GPU (if ``only`` is given, those with its indices), unbound and bound to each of ``nodes``.

    A copy that fails is recorded in ``problems``, and the rest is still measured.
    """
    wanted = None if only is None else set(only)
    found: list[Copies] = []
    problems: list[str] = []
    chosen = [(ordinal, gpu) for ordinal, gpu in enumerate(cuda.gpus()) if wanted is None or gpu.index in wanted]
    for ordinal, gpu in chosen:
        for node in (None, *nodes):
            tell(f"GPU {gpu.index}, {'not bound' if node is None else f'bound to NUMA node {node}'}")

            def work(ordinal: int = ordinal, gpu: MeasuredGpu = gpu, node: int | None = node) -> None:
                found.extend(_copies(cuda, host, ordinal, gpu.index, node, size_mib=size_mib, repeats=repeats))

            try:
                host.on(node, work)
            except CopyError as error:
                where = "Not bound" if node is None else f"Bound to NUMA node {node}"
                problems.append(f"{where}, GPU {gpu.index} was not measured: {error}.")
    return Bandwidth(
        size_mib=size_mib,
        gpus=tuple(gpu for _, gpu in chosen),
        copies=tuple(found),
        problems=tuple(problems),
    )


def _copies(
    cuda: Cuda, host: Host, ordinal: int, index: int, node: int | None, *, size_mib: int, repeats: int
) -> list[Copies]:
    size = size_mib * MIB
    with cuda.open(ordinal, size) as gpu, host.buffer(size) as buffer, gpu.pinned(buffer) as copy:
        found = []
        for direction in DIRECTIONS:
            for _ in range(WARM_UP):
                copy(direction)
            rates = tuple(round(size / copy(direction) / 1e9, 2) for _ in range(repeats))
            found.append(Copies(gpu=index, bound_to=node, direction=direction, gbps=rates, memory_on=buffer.memory_on))
        return found
