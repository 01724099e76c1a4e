"""Measured bandwidths as a table for people. Pure."""

from __future__ import annotations

from jupyterhub_gpuspawner.cpulist import format_cpulist
from jupyterhub_gpuspawner.measure.bandwidth import DIRECTIONS, Bandwidth, Copies, Direction, MeasuredGpu

WORDS: dict[Direction, str] = {"h2d": "host to device", "d2h": "device to host"}


def rows(measured: Bandwidth, gpu: MeasuredGpu) -> tuple[int | None, ...]:
    """The host's bindings that were measured: the GPU's own NUMA node first, then the others, then unbound."""
    bindings = {copies.bound_to for copies in measured.copies if copies.gpu == gpu.index}
    nodes = sorted((node for node in bindings if node is not None), key=lambda node: (node != gpu.numa_node, node))
    return (*nodes, None) if None in bindings else tuple(nodes)


def change(measured: Bandwidth, gpu: MeasuredGpu, copies: Copies) -> str:
    """Difference to the GPU's own NUMA node, such as ``-84 %``; empty if that node is unknown or is this one."""
    if gpu.numa_node is None or copies.bound_to == gpu.numa_node:
        return ""
    best = measured.find(gpu.index, gpu.numa_node, copies.direction)
    return "" if best is None else f"{round(100 * copies.median_gbps / best.median_gbps) - 100:+d} %"


def table(measured: Bandwidth) -> str:
    """A block for each GPU with a line for each binding of the host."""
    runs = max((len(copies.gbps) for copies in measured.copies), default=0)
    blocks = [f"Pinned copies of {measured.size_mib} MiB, GB/s (10^9 bytes a second), the median of {runs}"]
    for gpu in measured.gpus:
        beside = "NUMA node not known" if gpu.numa_node is None else f"beside NUMA node {gpu.numa_node}"
        lines = [
            f"{'GPU ' + str(gpu.index) + ', ' + beside:<28}"
            + "".join(f"{WORDS[direction]:<22}" for direction in DIRECTIONS)
        ]
        lines += [_line(measured, gpu, bound_to) for bound_to in rows(measured, gpu)]
        blocks.append("\n".join(line.rstrip() for line in lines))
    if measured.problems:
        blocks.append("\n".join(measured.problems))
    return "\n\n".join(blocks) + "\n"


def _line(measured: Bandwidth, gpu: MeasuredGpu, bound_to: int | None) -> str:
    line = f"{'  ' + bound_label(bound_to):<28}"
    memory: tuple[int, ...] = ()
    for direction in DIRECTIONS:
        copies = measured.find(gpu.index, bound_to, direction)
        cell = ""
        if copies is not None:
            memory = copies.memory_on
            cell = f"{copies.median_gbps:6.1f}  {change(measured, gpu, copies)}"
        line += f"{cell:<22}"
    return line + (f"memory on {format_cpulist(memory)}" if memory and memory != (bound_to,) else "")


def bound_label(bound_to: int | None) -> str:
    """The host's binding in words."""
    return "not bound" if bound_to is None else f"bound to node {bound_to}"
