"""Machines with AMD's GPUs as the kernel shows them, written below a folder: recorded trees, and documented machines.

The recorded trees are those of ``tests/data/amd``. The others are made of what is documented or recorded of a machine:
bus ids, NUMA nodes and XGMI links of Frontier (OLCF's user guide, RCCL's models), ARCHER2, and servers with MI300.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyterhub_gpuspawner.extensions.amd.node.kfd import read_gpus
from jupyterhub_gpuspawner.node import hardware
from jupyterhub_gpuspawner.placement.topology import NodeTopology
from jupyterhub_gpuspawner.units import parse_cpulist

DATA = Path(__file__).parents[2] / "data" / "amd"
_LINK = ("node_to", "type", "weight", "min_bandwidth", "max_bandwidth", "flags")
MI250X_LINKS = (
    (0, 4, 1, 0, 0, 0, 2, 0),
    (4, 0, 0, 1, 0, 1, 0, 0),
    (1, 0, 0, 4, 2, 0, 0, 0),
    (0, 1, 4, 0, 0, 0, 0, 1),
    (0, 0, 2, 0, 0, 4, 1, 0),
    (0, 1, 0, 0, 4, 0, 0, 1),
    (2, 0, 0, 0, 1, 0, 0, 4),
    (0, 0, 0, 1, 0, 1, 4, 0),
)


def all_to_all(count: int, links: int) -> tuple[tuple[int, ...], ...]:
    """So many XGMI links between any two."""
    return tuple(tuple(0 if a == b else links for a in range(count)) for b in range(count))


@dataclass(frozen=True)
class Machine:
    """A documented machine."""

    device_id: int
    gfx: int
    gpus: tuple[tuple[str, int], ...]
    """PCI bus id and NUMA node of each, as the kernel counts them."""
    numa_cpus: Mapping[int, str]
    links: tuple[tuple[int, ...], ...] = ()
    """XGMI links between any two, 0 for pairs of a hive that are not adjacent; empty: no XGMI."""
    rate: int = 50000
    """MB/s of a link, as the driver says; 0: it does not."""
    caches: tuple[str, ...] = ()
    """CPUs of each L3 cache."""
    memory: int = 64 << 30
    speed: str = "16.0 GT/s PCIe"
    bridges: Mapping[str, str] = field(default_factory=dict)
    """By bus id, the folders above the device; a host bridge of its own by default."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files of every PCI device."""
    display: str = "0x038000"


EPYC_7A53 = {0: "0-15,64-79", 1: "16-31,80-95", 2: "32-47,96-111", 3: "48-63,112-127"}
TWO_SOCKETS = {0: "0-47,96-143", 1: "48-95,144-191"}
MI300X_PCI = ("0c", "22", "38", "5c", "9f", "af", "bf", "df")
MACHINES = {
    "Frontier": Machine(
        0x7408,
        90010,
        tuple(
            (f"0000:{bus}:00.0", numa)
            for bus, numa in zip(
                ("c1", "c6", "c9", "ce", "d1", "d6", "d9", "de"), (3, 3, 1, 1, 0, 0, 2, 2), strict=True
            )
        ),
        EPYC_7A53,
        MI250X_LINKS,
        caches=tuple(f"{8 * n}-{8 * n + 7},{64 + 8 * n}-{71 + 8 * n}" for n in range(8)),
    ),
    "ARCHER2": Machine(
        0x740F,
        90010,
        (("0000:c9:00.0", 0), ("0000:87:00.0", 1), ("0000:49:00.0", 2), ("0000:09:00.0", 3)),
        {n: f"{8 * n}-{8 * n + 7}" for n in range(4)},
        all_to_all(4, 1),
    ),
    "8 MI300X": Machine(
        0x74A1,
        90402,
        tuple((f"0000:{bus}:00.0", n // 4) for n, bus in enumerate(MI300X_PCI)),
        TWO_SOCKETS,
        all_to_all(8, 1),
        memory=192 << 30,
        speed="32.0 GT/s PCIe",
        display="0x120000",
    ),
    "8 MI325X": Machine(
        0x74A5,
        90402,
        tuple((f"0000:{bus}:00.0", n // 4) for n, bus in enumerate(MI300X_PCI)),
        TWO_SOCKETS,
        all_to_all(8, 1),
        rate=64000,
        memory=256 << 30,
        speed="32.0 GT/s PCIe",
        display="0x120000",
    ),
    "8 MI355X, a driver without bandwidths": Machine(
        0x75A3,
        90500,
        tuple((f"0000:{bus}:00.0", n // 4) for n, bus in enumerate(MI300X_PCI)),
        TWO_SOCKETS,
        all_to_all(8, 1),
        rate=0,
        memory=288 << 30,
        display="0x120000",
    ),
    "4 MI300A": Machine(
        0x74A0,
        90402,
        tuple((f"0000:{bus}:00.0", n) for n, bus in enumerate(("02", "42", "82", "c2"))),
        {n: f"{24 * n}-{24 * n + 23},{96 + 24 * n}-{119 + 24 * n}" for n in range(4)},
        all_to_all(4, 2),
        rate=64000,
        memory=128 << 30,
        display="0x120000",
    ),
    "2 MI100 with a bridge": Machine(
        0x738C, 90008, (("0000:43:00.0", 0), ("0000:83:00.0", 0)), {0: "0-31"}, all_to_all(2, 1), memory=32 << 30
    ),
    "4 GPUs of PCIe": Machine(
        0x740F,
        90010,
        tuple((f"0000:{bus}:00.0", n // 2) for n, bus in enumerate(("21", "24", "a1", "a4"))),
        {0: "0-15", 1: "16-31"},
        bridges={
            "0000:21:00.0": "pci0000:20/0000:20:01.0/0000:22:00.0",
            "0000:24:00.0": "pci0000:20/0000:20:01.0/0000:22:00.0",
        },
    ),
    "a Vega in a desktop": Machine(
        0x687F,
        90000,
        (("0000:0b:00.0", -1),),
        {0: "0-15"},
        memory=8 << 30,
        files={"product_name": "", "max_link_speed": "8.0 GT/s PCIe"},
        display="0x030000",
    ),
}


def write(root: Path, path: str, text: object) -> None:
    """One file, with its folders."""
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n")


def write_kfd(root: Path, nodes: Sequence[Mapping[str, Any]], *, hidden: Collection[int] = ()) -> None:
    """The kernel's nodes. A device cgroup makes the files of ``hidden`` ones unreadable: they are empty here."""
    for node in nodes:
        path = f"sys/class/kfd/kfd/topology/nodes/{node['node']}"
        facts = {name: value for name, value in node.items() if isinstance(value, int) and name != "node"}
        is_hidden = node["node"] in hidden
        write(root, f"{path}/properties", "" if is_hidden else "\n".join(f"{n} {v}" for n, v in facts.items()))
        for kind in ("io_links", "p2p_links"):
            for number, link in enumerate(node.get(kind, ())):
                gone = is_hidden or link[0] in hidden
                lines = "" if gone else "\n".join(f"{n} {v}" for n, v in zip(_LINK, link, strict=True))
                write(root, f"{path}/{kind}/{number}/properties", lines)
        for number, (kind, size) in enumerate(node.get("mem_banks", ())):
            write(root, f"{path}/mem_banks/{number}/properties", f"heap_type {kind}\nsize_in_bytes {size}")


def recorded(root: Path, name: str, *, hidden: Collection[int] = ()) -> NodeTopology:
    """A recorded tree, as it is read."""
    write_kfd(root, json.loads((DATA / f"kfd-{name}.json").read_text())["nodes"], hidden=hidden)
    return read(root)


def kfd_nodes(machine: Machine) -> list[dict[str, Any]]:
    """The kernel's nodes of a documented machine."""
    first = len(machine.numa_cpus)
    nodes: list[dict[str, Any]] = [{"node": n, "cpu_cores_count": 16} for n in range(first)]
    for n, (pci, numa) in enumerate(machine.gpus):
        domain, bus, slot = pci.split(":")
        links = [[max(numa, 0), 2, 20, 0, 32000, 1]]
        for m, count in enumerate(machine.links[n] if machine.links else ()):
            if m != n:
                weight = 15 if count else 30
                rates = [machine.rate, machine.rate * count] if count else [0, 0]
                links.append([first + m, 11, weight, *rates, 1])
        nodes.append(
            {
                "node": first + n,
                "simd_count": 440,
                "gfx_target_version": machine.gfx,
                "vendor_id": 0x1002,
                "device_id": machine.device_id,
                "domain": int(domain, 16),
                "location_id": int(bus, 16) << 8 | int(slot[:2], 16) << 3,
                "drm_render_minor": 128 + n,
                "unique_id": 0 if "Vega" in machine.files.get("product_name", "x") else 0x9F5A6C0000000000 + n,
                "mem_banks": [[1, machine.memory]],
                "io_links": links,
            }
        )
    return nodes


def write_machine(root: Path, machine: Machine, *, hidden: Collection[int] = ()) -> None:
    """A documented machine; ``hidden``: GPUs, by the kernel's order, that this job may not open."""
    first = len(machine.numa_cpus)
    write_kfd(root, kfd_nodes(machine), hidden=[first + n for n in hidden])
    cpus = sorted(cpu for text in machine.numa_cpus.values() for cpu in parse_cpulist(text))
    write(root, "sys/devices/system/cpu/online", f"0-{cpus[-1]}")
    for number, text in machine.numa_cpus.items():
        write(root, f"sys/devices/system/node/node{number}/cpulist", text)
        write(root, f"sys/devices/system/node/node{number}/meminfo", f"Node {number} MemTotal: 131072000 kB")
        distances = " ".join("10" if number == other else "12" for other in machine.numa_cpus)
        write(root, f"sys/devices/system/node/node{number}/distance", distances)
    threads = 2 if cpus[-1] + 1 == 2 * 8 * len(machine.caches) or len(cpus) in (128, 192) else 1
    cores = len(cpus) // threads
    for cpu in cpus:
        siblings = ",".join(str(cpu % cores + cores * n) for n in range(threads))
        write(root, f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", siblings)
        write(root, f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id", 0)
        for text in machine.caches:
            if cpu in parse_cpulist(text):
                write(root, f"sys/devices/system/cpu/cpu{cpu}/cache/index3/shared_cpu_list", text)
    for pci, numa in machine.gpus:
        above = machine.bridges.get(pci, f"pci0000:{pci[5:7]}/0000:{pci[5:7]}:01.0")
        path = f"sys/devices/{above}/{pci}"
        files = {
            "vendor": "0x1002",
            "class": machine.display,
            "numa_node": str(numa),
            "local_cpulist": machine.numa_cpus.get(numa, ""),
            "max_link_speed": machine.speed,
            "mem_info_vram_total": str(machine.memory),
            "mem_info_vram_used": "297623552",
            "gpu_busy_percent": "7",
            **machine.files,
        }
        for name, text in files.items():
            write(root, f"{path}/{name}", text)
        (root / "sys/bus/pci/devices").mkdir(parents=True, exist_ok=True)
        (root / "sys/bus/pci/devices" / pci).symlink_to(root / path)


def read(root: Path) -> NodeTopology:
    """What the launcher reads of a node below this folder."""
    return read_gpus(str(root), hardware.read(str(root)))


def built(root: Path, name: str, *, hidden: Collection[int] = ()) -> NodeTopology:
    """A documented machine, as it is read."""
    write_machine(root, MACHINES[name], hidden=hidden)
    return read(root)
