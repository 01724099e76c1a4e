"""``gpuspawner place``: the choice of GPUs, as the launcher makes it."""

from __future__ import annotations

import json
from typing import Any

import click

from jupyterhub_gpuspawner.cli.options import JSON, JSON_VERSION
from jupyterhub_gpuspawner.cli.topology import Source, give_up, source_options
from jupyterhub_gpuspawner.placement.choice import POLICIES, aligned, choose
from jupyterhub_gpuspawner.placement.topology import NodeTopology
from jupyterhub_gpuspawner.units import format_cpulist, parse_cpulist


@click.command()
@source_options
@click.option("--gpus", "-k", "count", required=True, type=click.IntRange(min=1), help="Number of GPUs to choose.")
@click.option("--free", metavar="LIST", help="Indices of the GPUs to choose from, such as 0,1,4-7.  [default: all]")
@click.option("--cpus", metavar="LIST", help="CPUs of the job, such as 0-3,8; GPUs close to them are preferred.")
@click.option(
    "--policy",
    default="best-effort",
    show_default=True,
    type=click.Choice(POLICIES),
    help="none takes the first GPUs; restricted prefers few NUMA nodes over bandwidth.",
)
@JSON
def place(
    *,
    text: str | None,
    file: str | None,
    timeout: float,
    count: int,
    free: str | None,
    cpus: str | None,
    policy: str,
    as_json: bool,
) -> None:
    """Choose GPUs of a node as the launcher does in a job, and explain the choice.

    Sets of GPUs are compared by the slowest link of the best ring, then by the mean bandwidth of all pairs, the
    distance from the CPUs, the number of NUMA nodes, and what is left for other jobs.

    JSON: gpus (indices, in the order of their ring), weakest_link, ring_gbps, mean_gbps (GB/s one way), numa_nodes,
    aligned (null if unknown), why. On a node with MIG devices the indices are those of the devices, as in Slurm.

    Exit code 2: there are fewer free GPUs, or no such GPU, or no usable matrix.
    """
    node = Source(text, file, timeout).read()
    numbers = gpu_numbers(node)
    granted = [n for n, _ in enumerate(numbers)] if free is None else _positions(free, numbers)
    if count > len(granted):
        give_up(f"--gpus: {count} is more than the {len(granted)} that {'are free' if free else 'the node has'}")
    wanted = _numbers("--cpus", cpus or "")
    choice = choose(node, granted=granted, count=count, cpus=wanted, policy=policy)
    report = {
        "version": JSON_VERSION,
        "gpus": [numbers[position] for position in choice.gpus],
        "weakest_link": choice.weakest_link,
        "ring_gbps": choice.ring_gbps,
        "mean_gbps": choice.mean_gbps,
        "numa_nodes": list(choice.numa_nodes),
        "aligned": aligned(node, choice.gpus, wanted),
        "why": choice.why,
    }
    click.echo(json.dumps(report, indent=2) if as_json else _words(report))


def gpu_numbers(node: NodeTopology) -> tuple[int, ...]:
    """Number of each GPU: its NVML index; on a node with MIG devices its position among all devices, as in Slurm."""
    if any(gpu.mig is not None for gpu in node.gpus):
        return tuple(range(len(node.gpus)))
    return tuple(gpu.index for gpu in node.gpus)


def _positions(text: str, numbers: tuple[int, ...]) -> list[int]:
    wanted = _numbers("--free", text)
    unknown = [number for number in wanted if number not in numbers]
    if unknown:
        give_up(f"--free: there is no GPU {unknown[0]}; the node has {format_cpulist(numbers) or 'none'}")
    return [numbers.index(number) for number in wanted]


def _numbers(option: str, text: str) -> tuple[int, ...]:
    try:
        return parse_cpulist(text)
    except ValueError as error:
        give_up(
            f"{option}: {str(error).replace('CPU or a range of CPUs', 'number or a range').replace('CPUs', 'numbers')}"
        )


def _words(report: dict[str, Any]) -> str:
    def number(value: float | None) -> str:
        return "unknown" if value is None else f"about {value:g} GB/s one way"

    lines = {"GPUs": ",".join(map(str, report["gpus"])) + "  (in the order of their ring)"}
    if len(report["gpus"]) > 1:
        lines["slowest link"] = f"{report['weakest_link'] or 'unknown'}, {number(report['ring_gbps'])}"
        lines["mean of pairs"] = number(report["mean_gbps"])
    lines["NUMA nodes"] = ",".join(map(str, report["numa_nodes"])) or "unknown"
    if report["aligned"] is not None:
        lines["CPUs"] = "near these GPUs" if report["aligned"] else "not near these GPUs"
    return "\n".join([*(f"{name + ':':<15}{value}" for name, value in lines.items()), "", report["why"]])
