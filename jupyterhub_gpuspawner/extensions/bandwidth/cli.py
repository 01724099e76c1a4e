"""``gpuspawner bandwidth``: copy rates between host memory and GPUs, from each NUMA node."""

from __future__ import annotations

import click

from jupyterhub_gpuspawner.cli.topology import give_up, this_node
from jupyterhub_gpuspawner.extensions.bandwidth import measurement
from jupyterhub_gpuspawner.extensions.bandwidth.measurement import (
    DIRECTIONS,
    Bandwidth,
    Copies,
    CopyError,
    CudaUnavailableError,
    Direction,
    MeasuredGpu,
    ThisHost,
    measure,
)
from jupyterhub_gpuspawner.units import format_cpulist


@click.command()
@click.option(
    "--gpu", "gpus", type=click.IntRange(min=0), multiple=True, help="NVML index of a GPU to measure; may be repeated."
)
@click.option("--size", default=256, show_default=True, type=click.IntRange(1, 16384), help="Size of one copy, in MiB.")
@click.option(
    "--repeat", default=10, show_default=True, type=click.IntRange(1, 1000), help="Number of copies of each kind."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with each individual copy.")
def bandwidth(*, gpus: tuple[int, ...], size: int, repeat: int, as_json: bool) -> None:
    """Measure copies of pinned memory to and from each GPU, bound to each NUMA node and unbound.

    CPU and memory are bound together, as with numactl -N and -m, and the kernel is asked where the memory really is.
    Only GPUs and NUMA nodes that this process may use are measured; in a job, those of the job. This takes about one
    second for each GPU and NUMA node. Nothing else should run on the node at the same time.

    Requires the extra "gpu" (pip install 'jupyterhub-gpuspawner[gpu]').

    Exit code 2: there is no GPU, or no library to access it.
    """
    measured = _measure(gpus, size, repeat)
    click.echo(measured.model_dump_json(indent=2) + "\n" if as_json else table(measured), nl=False)


def _measure(gpus: tuple[int, ...], size: int, repeat: int) -> Bandwidth:
    node = this_node(10.0)
    host = ThisHost(node)
    try:
        cuda = measurement.CudaDriver(node)
        there = [gpu.index for gpu in cuda.gpus()]
        for gpu in gpus:
            if gpu not in there:
                give_up(f"--gpu: there is no GPU {gpu} here; there is {', '.join(map(str, there))}")
        measured = measure(
            cuda,
            host,
            nodes=host.nodes(),
            size_mib=size,
            repeats=repeat,
            only=gpus or None,
            report=lambda doing: click.echo(doing, err=True),
        )
    except (CudaUnavailableError, CopyError) as error:
        give_up(str(error))
    if not measured.copies:
        give_up(" ".join(measured.problems) or "nothing was measured")
    return measured


# Measured bandwidths as a table for people.

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
