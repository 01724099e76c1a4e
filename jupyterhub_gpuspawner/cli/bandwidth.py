"""``gpuspawner bandwidth``: copy rates between host memory and GPUs, from each NUMA node."""

from __future__ import annotations

import click

from jupyterhub_gpuspawner.cli.topology import give_up, this_node
from jupyterhub_gpuspawner.measure import bandwidth as gpu_bandwidth
from jupyterhub_gpuspawner.measure.bandwidth import Bandwidth, CopyError, CudaUnavailableError, ThisHost, measure
from jupyterhub_gpuspawner.measure.table import table


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
        cuda = gpu_bandwidth.CudaDriver(node)
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
