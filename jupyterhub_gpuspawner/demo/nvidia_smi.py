"""``nvidia-smi`` of the demo's simulated nodes: the job's own simulated GPUs, with the use that the pages show.

It knows the listing (``-L``), ``--query-gpu`` with common fields as CSV, and the table without arguments. Everything
that it prints says that it is simulated. Source: nvidia-smi(1), driver 550.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from jupyterhub_gpuspawner.node import usage
from jupyterhub_gpuspawner.node.usage import GpuReading
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology, load

NO_DEVICES = 6
"""Exit code of nvidia-smi(1) where there is nothing to show."""
FORMATS = ("csv", "csv,noheader", "csv,nounits", "csv,noheader,nounits")


UNITS = {
    "utilization.gpu": "%",
    "utilization.memory": "%",
    "memory.total": "MiB",
    "memory.used": "MiB",
    "memory.free": "MiB",
    "power.draw": "W",
}
"""Units of the fields that have one."""
FIELDS = (
    *("timestamp", "index", "name", "gpu_name", "uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id", "driver_version"),
    *(*UNITS, "temperature.gpu", "pcie.link.gen.max", "mig.mode.current"),
)


@dataclass(frozen=True)
class Shown:
    """A GPU of the job, and its use now."""

    index: int
    gpu: Gpu
    use: GpuReading
    driver: str
    mig_device: int | None = None

    @property
    def values(self) -> dict[str, object]:
        """The value of each of :data:`FIELDS` that is known; the name says that it is simulated."""
        gpu, use = self.gpu, self.use
        values: dict[str, object] = {
            "timestamp": datetime.now().strftime("%Y/%m/%d %H:%M:%S.000"),  # noqa: DTZ005 - as nvidia-smi
            "index": self.index,
            "name": f"{gpu.name} MIG {gpu.mig} (simulated)" if gpu.mig else f"{gpu.name} (simulated)",
            "uuid": gpu.uuid,
            "pci.bus_id": f"0000{gpu.pci.upper()}",  # with an eight-digit domain
            "driver_version": self.driver,
            "utilization.gpu": use.utilization,
            "memory.total": use.memory_mib,
            "memory.used": use.memory_used_mib,
            "pcie.link.gen.max": gpu.pcie_generation,
            "mig.mode.current": "Enabled" if gpu.mig else "Disabled",
        }
        if use.memory_mib is not None and use.memory_used_mib is not None:
            values["memory.free"] = use.memory_mib - use.memory_used_mib
        if use.power_watts is not None:
            values["power.draw"] = f"{use.power_watts:.2f}"
        same = {"gpu_name": values["name"], "gpu_uuid": gpu.uuid, "gpu_bus_id": values["pci.bus_id"]}
        return {name: value for name, value in {**values, **same}.items() if value is not None}


def main(arguments: Sequence[str], environ: Mapping[str, str], pattern: str, *, now: float | None = None) -> int:
    """Print what nvidia-smi would; returns its exit code, or raises SystemExit for arguments that it does not know.

    ``pattern`` is a topology file's, with ``{node}``.
    """
    options = _parser().parse_args(arguments)
    while True:
        gpus = gpus_of(environ, pattern, time.time() if now is None else now)
        if options.id is not None:
            gpus = [gpu for gpu in gpus if str(gpu.index) in options.id.split(",")]
        if not gpus:
            print("No devices were found")
            return NO_DEVICES
        if options.list_gpus:
            lines = _listing(gpus)
        else:
            lines = _csv(gpus, options.query_gpu, options.format.split(",")) if options.query_gpu else _table(gpus)
        print("\n".join(lines), flush=True)
        if not options.loop:
            return 0
        time.sleep(options.loop)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nvidia-smi",
        description="The nvidia-smi of simulated GPUs. Without options: a table of this job's GPUs.",
        epilog=f"Fields: {', '.join(FIELDS)}",
    )
    parser.add_argument("-L", "--list-gpus", action="store_true", help="names and UUIDs")
    parser.add_argument("--query-gpu", type=_fields, metavar="FIELD,...", help="these fields of each GPU")
    parser.add_argument("--format", choices=FORMATS, default="csv", help="of the query")
    parser.add_argument("-i", "--id", metavar="INDEX,...", help="these GPUs alone")
    parser.add_argument("-l", "--loop", type=int, nargs="?", const=5, metavar="SECONDS", help="again and again")
    return parser


def _fields(text: str) -> tuple[str, ...]:
    fields = tuple(field.strip() for field in text.split(","))
    for field in fields:
        if field not in FIELDS:
            raise argparse.ArgumentTypeError(f'Field "{field}" is not a valid field to query.')
    return fields


def gpus_of(environ: Mapping[str, str], pattern: str, now: float) -> list[Shown]:
    """The GPUs of the job of this environment; none outside of a job."""
    node = environ.get("SLURMD_NODENAME", "")
    names = environ.get("CUDA_VISIBLE_DEVICES", environ.get("SLURM_JOB_GPUS", "")) if node else ""
    if not names:
        return []
    try:
        topology = load(pattern.replace("{node}", Path(node).name))
    except (OSError, ValueError):
        return []
    gpus = [_shown(name, topology, now) for name in names.split(",")]
    return sorted((gpu for gpu in gpus if gpu is not None), key=lambda gpu: (gpu.index, gpu.mig_device or 0))


def _shown(name: str, topology: NodeTopology, now: float) -> Shown | None:
    """The GPU of this name in ``CUDA_VISIBLE_DEVICES``: its number in Slurm's order, or its UUID."""
    if name.isdigit():
        gpu = topology.gpus[int(name)] if int(name) < len(topology.gpus) else None
    else:
        gpu = next((candidate for candidate in topology.gpus if candidate.uuid == name), None)
    if gpu is None:
        return None
    index = int(name) if name.isdigit() else gpu.index
    use = usage.reading(index, gpu.memory_mib, now, mig=gpu.mig is not None, uuid=gpu.uuid)
    return Shown(index, gpu, use, topology.driver, topology.mig_device(topology.gpus.index(gpu)))


def _listing(gpus: Sequence[Shown]) -> list[str]:
    """A line for each GPU; below it its MIG devices. The UUID of a GPU with MIG devices is not known."""
    lines: list[str] = []
    for gpu in gpus:
        parent = f"GPU {gpu.index}: {gpu.gpu.name} (simulated)"
        if gpu.mig_device is None:
            lines.append(f"{parent} (UUID: {gpu.gpu.uuid})")
            continue
        lines += [] if parent in lines else [parent]
        lines.append(f"  MIG {gpu.gpu.mig:<11} Device {gpu.mig_device:>2}: (UUID: {gpu.gpu.uuid})")
    return lines


def _csv(gpus: Sequence[Shown], fields: Sequence[str], options: Sequence[str]) -> list[str]:
    units = {} if "nounits" in options else UNITS
    heads = [f"{name} [{units[name]}]" if name in units else name for name in fields]
    lines = [] if "noheader" in options else [", ".join(heads)]
    for gpu in gpus:
        values = {name: f"{value:g}" if isinstance(value, float) else value for name, value in gpu.values.items()}
        cells = [f"{values[name]} {units.get(name, '')}" if name in values else "[N/A]" for name in fields]
        lines.append(", ".join(map(str.rstrip, cells)))
    return lines


def _table(gpus: Sequence[Shown]) -> list[str]:
    rows = [["GPU", "Name", "Bus-Id", "Power", "Memory-Usage", "GPU-Util"]]
    for gpu in gpus:
        use, values = gpu.use, gpu.values
        power = "N/A" if use.power_watts is None else f"{use.power_watts:.0f}W"
        utilization = "N/A" if use.utilization is None else f"{use.utilization:.0f}%"
        memory = f"{use.memory_used_mib}MiB / {use.memory_mib}MiB"
        rows.append([str(gpu.index), str(values["name"]), str(values["pci.bus_id"]), power, memory, utilization])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    head, *lines = [f"| {' | '.join(map(str.ljust, row, widths))} |" for row in rows]
    rule = f"+{'+'.join('-' * (width + 2) for width in widths)}+"
    outer = f"+{'-' * (len(rule) - 2)}+"
    processes = sum(gpu.use.processes or 0 for gpu in gpus) or "none"
    title = f"NVIDIA-SMI of simulated GPUs      Driver Version: {gpus[0].driver or 'none'} (simulated)"
    summary = f"Processes: {processes}, simulated. This node has no GPU; nothing was measured."
    return [
        datetime.now().strftime("%a %b %d %H:%M:%S %Y"),  # noqa: DTZ005 - as nvidia-smi
        outer,
        f"| {title:<{len(rule) - 4}} |",
        *(rule, head, rule.replace("-", "="), *lines, rule),
        f"| {summary:<{len(rule) - 4}} |",
        outer,
    ]


def command_file(python: str, pattern: str) -> str:
    """The text of an executable file ``nvidia-smi`` for the nodes of this pattern of topology files."""
    words = (python, "-I", "-m", "jupyterhub_gpuspawner.demo.nvidia_smi", pattern)
    return f'#!/bin/sh\n# nvidia-smi of the simulated GPUs of gpuspawner demo\nexec {shlex.join(words)} "$@"\n'


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[2:], os.environ, sys.argv[1]))
    except (KeyboardInterrupt, BrokenPipeError):
        sys.exit(1)
