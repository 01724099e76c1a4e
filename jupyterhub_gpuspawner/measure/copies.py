"""How fast pinned memory is copied to and from each GPU, from each NUMA node: what is measured, and in which order.

The measurement of numactl around a copy test: ``numactl -m0 -N0`` against ``-m1 -N1``, and neither. CUDA and the kernel
stand behind two protocols, so that the order of things can be tested without a GPU.
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
"""Copies before those that count."""
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
    """Copies of one kind: one GPU, one place of the host's memory, one direction."""

    gpu: int
    """The GPU's index."""
    bound_to: int | None
    """NUMA node that CPU and memory were bound to; null: not bound."""
    direction: Direction
    gbps: tuple[float, ...] = Field(min_length=1)
    """GB/s (10^9 bytes a second) of each copy."""
    memory_on: tuple[int, ...] = ()
    """NUMA nodes that the host's memory really was on, as the kernel tells; empty where it does not."""

    @property
    def median_gbps(self) -> float:
        """GB/s, the middle of all copies."""
        return median(self.gbps)


class Bandwidth(_Document):
    """All that was measured on a node: version 1 of the document that ``--json`` prints and ``--read`` takes."""

    version: Literal[1] = 1
    size_mib: int
    """MiB of one copy."""
    gpus: tuple[MeasuredGpu, ...]
    copies: tuple[Copies, ...]
    problems: tuple[str, ...] = ()

    def find(self, gpu: int, bound_to: int | None, direction: Direction) -> Copies | None:
        """The copies of one kind; None where they could not be made."""
        return next(
            (c for c in self.copies if (c.gpu, c.bound_to, c.direction) == (gpu, bound_to, direction)),
            None,
        )

    @property
    def nodes(self) -> tuple[int, ...]:
        """NUMA nodes that were bound to."""
        return tuple(sorted({copies.bound_to for copies in self.copies if copies.bound_to is not None}))


class CopyError(Exception):
    """A copy, or what it needs, could not be had; the text says why."""


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
        """Do ``work`` bound to ``node``, or not bound at all; raises CopyError where the kernel refuses."""

    def buffer(self, size: int) -> AbstractContextManager[Buffer]:
        """So many bytes, placed by the policy that holds now, every page in use."""


class OpenGpu(Protocol):
    """A GPU with memory for a copy."""

    def pinned(self, buffer: Buffer) -> AbstractContextManager[Callable[[Direction], float]]:
        """Pin the buffer; what is returned copies it once and tells the seconds that took. Raises CopyError."""


class Cuda(Protocol):
    """The GPUs of this process."""

    def gpus(self) -> Sequence[MeasuredGpu]:
        """In CUDA's order."""

    def open(self, place: int, size: int) -> AbstractContextManager[OpenGpu]:
        """The GPU at this place of :meth:`gpus`, with so many bytes; raises CopyError."""


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
    """Copy to and from each GPU (of the indices in ``only``), not bound and then bound to each of ``nodes``.

    What fails is a sentence in ``problems``, and the rest is measured all the same.
    """
    wanted = None if only is None else set(only)
    found: list[Copies] = []
    problems: list[str] = []
    chosen = [(place, gpu) for place, gpu in enumerate(cuda.gpus()) if wanted is None or gpu.index in wanted]
    for place, gpu in chosen:
        for node in (None, *nodes):
            tell(f"GPU {gpu.index}, {'not bound' if node is None else f'bound to NUMA node {node}'}")

            def work(place: int = place, gpu: MeasuredGpu = gpu, node: int | None = node) -> None:
                found.extend(_copies(cuda, host, place, gpu.index, node, size_mib=size_mib, repeats=repeats))

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
    cuda: Cuda, host: Host, place: int, index: int, node: int | None, *, size_mib: int, repeats: int
) -> list[Copies]:
    size = size_mib * MIB
    with cuda.open(place, size) as gpu, host.buffer(size) as buffer, gpu.pinned(buffer) as copy:
        found = []
        for direction in DIRECTIONS:
            for _ in range(WARM_UP):
                copy(direction)
            rates = tuple(round(size / copy(direction) / 1e9, 2) for _ in range(repeats))
            found.append(Copies(gpu=index, bound_to=node, direction=direction, gbps=rates, memory_on=buffer.memory_on))
        return found
