"""What a server gets on machines that are sold: GPUs in their order, the slowest link, cores and memory.

    python benchmarks/machines_table.py > table.md

Each machine is a topology file, or a recorded tree of ``/sys`` and ``/proc`` that is read like a node. On an empty
machine a server is given 1, 2, 4 and all GPUs, each time with their share of the cores, by the functions that the
launcher calls.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from jupyterhub_gpuspawner.node.hardware import observe
from jupyterhub_gpuspawner.placement.choice import aligned, choose, choose_cpus, memory_nodes, whole_cores
from jupyterhub_gpuspawner.placement.topology import NodeTopology, gpu_name, load
from jupyterhub_gpuspawner.slurm.gpu_model import device_model
from jupyterhub_gpuspawner.units import format_cpulist

DATA = Path(__file__).parent.parent / "tests" / "data"
MACHINES = {
    "nodes/dgx-a100-nps4.json": "DGX A100, NPS4",
    "nodes/dgx-h100-snc.json": "DGX H100, SNC4",
    "nodes/hgx-b200.json": "HGX B200",
    "nodes/gb200-tray.json": "GB200, a tray of NVL72",
    "nodes/gh200-x4.json": "4 GH200",
    "nodes/l40s-x8.json": "8 L40S",
    "nodes/rtx-mix.json": "workstation with RTX of three models",
    "nodes/dgx-station-a100.json": "DGX Station A100",
    "nodes/hgx-h100-vm.json": "virtual machine with 8 H100",
    "nodes/a40-x4-pairs.json": "4 A40 with bridges between the sockets",
    "nodes/pcie-box-10.json": "10 RTX A5000 at one socket",
    "nodes/xeon6-snc3-rtx-pro-6000-x8.json": "8 RTX PRO 6000 on Xeon 6, SNC3",
    "nodes/a100-mig-mix.json": "3 A100, one of them in slices",
    "nodes/power9-gaps.json": "POWER9 with 4 V100",
}
"""Titles of machines, by file or folder below ``tests/data``."""
NEAR = {True: "yes", False: "no", None: "not known"}
HEADS = (
    "machine",
    "GPUs",
    "requested",
    "`CUDA_VISIBLE_DEVICES`",
    "slowest link",
    "cores on NUMA nodes",
    "memory",
    "aligned",
)


def topology_of(path: Path) -> NodeTopology:
    """A topology file, or a recorded tree."""
    return load(str(path)) if path.is_file() else observe(node="", topology_file=None, deadline=60, root=str(path))


def rows(title: str, machine: NodeTopology) -> Iterator[list[str]]:
    """A row for each number of GPUs of a machine of any maker, however it was read."""
    size = len(machine.gpus)
    cpus = sorted(cpu for node in machine.numa_nodes for cpu in node.cpus)
    models = [str(device_model(gpu.name, gpu.mig, gpu.memory_mib)) for gpu in machine.gpus]
    kinds = "; ".join(f"{models.count(model)} {model}" for model in dict.fromkeys(models))
    for count in sorted({1, 2, 4, size}):
        if count > size:
            continue
        choice = choose(machine, granted=range(size), count=count, cpus=cpus)
        share = choose_cpus(machine, granted=cpus, count=len(cpus) * count // size, gpus=choice.gpus)
        bound = whole_cores(machine, cpus, share)
        nodes = {machine.numa_node_of_cpu(cpu) for cpu in bound}
        gpus = [machine.gpus[gpu] for gpu in choice.gpus]
        names = [
            gpu_name(gpu.index, gpu.mig, machine.mig_device(at)) if gpu.mig else str(gpu.index)
            for at, gpu in zip(choice.gpus, gpus, strict=True)
        ]
        speed = f", {choice.ring_gbps:g} GB/s" if choice.ring_gbps else ""
        yield [
            title,
            kinds,
            str(count),
            ", ".join(names),
            f"{choice.weakest_link}{speed}" if choice.weakest_link else "-",
            format_cpulist(node for node in nodes if node is not None),
            format_cpulist(memory_nodes(machine, bound, choice.gpus)),
            NEAR[aligned(machine, choice.gpus, bound)],
        ]


def main() -> None:
    """Print the table as Markdown; of the machines named on the command line, or of all."""
    print("|", " | ".join(HEADS), "|")
    print("|---" * len(HEADS) + "|")
    for name, title in MACHINES.items():
        if not sys.argv[1:] or Path(name).stem in sys.argv[1:]:
            for cells in rows(title, topology_of(DATA / name)):
                print("|", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
