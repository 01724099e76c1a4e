"""A stand-in for NVML: a real ``libnvidia-ml.so.1``, built from ``nvml.c``, that the real pynvml loads.

:func:`describe` writes the machine's description. Lines that make calls fail may follow (``fail FUNCTION CODE GPU``).
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from tests.standins import c_library

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology

SOURCE = Path(__file__).with_name("nvml.c")
LEVELS = {"PIX": 10, "PXB": 20, "PHB": 30, "NODE": 40, "SYS": 50, "SOC": 50}
NVLINK_VERSIONS = {1: 1, 2: 2, 3: 4, 4: 6, 5: 7}
_LINKS = 18
_SWITCH = "00000000:FE:00.0"


def build(folder: Path) -> Path:
    """Build the library in ``folder``, which can then be used as ``LD_LIBRARY_PATH``."""
    c_library.build(SOURCE, folder / "libnvidia-ml.so.1")
    return folder


def describe(topology: NodeTopology) -> str:
    """The stand-in's text for a machine. NVLinks go to NVSwitches where a GPU would need more of them than it has."""
    boards: dict[int, list[Gpu]] = {}
    for gpu in topology.gpus:
        boards.setdefault(gpu.index, []).append(gpu)
    whole = [boards[index][0] for index in sorted(boards)]
    lines = [f"driver {topology.driver or '0'}"]
    for gpu in whole:
        lines.append(_gpu(gpu, parent=f"GPU-{gpu.index}" if gpu.mig else gpu.uuid))
        if gpu.mig is not None:
            # Every other place, as after parts were made and removed again.
            lines.append(f"mig {gpu.index} {2 * len(boards[gpu.index])}")
            lines += [
                f"part {gpu.index} {2 * part_index + 1} {part.uuid} {part.memory_mib} {_word(_part_name(part))}"
                for part_index, part in enumerate(boards[gpu.index])
            ]
    position_of = {gpu.index: topology.gpus.index(gpu) for gpu in whole}
    used = dict.fromkeys(position_of, 0)
    words = {
        a.index: [topology.link(position_of[a.index], position_of[b.index]) for b in whole if a is not b] for a in whole
    }
    counts = {index: [int(word[2:]) for word in row if word.startswith("NV")] for index, row in words.items()}
    switched = any(sum(row) > _LINKS for row in counts.values())
    for a, b in combinations(whole, 2):
        word = topology.link(position_of[a.index], position_of[b.index])
        if not word.startswith("NV"):
            lines.append(f"level {a.index} {b.index} {LEVELS[word]}")
            continue
        lines.append(f"level {a.index} {b.index} 50")
        for one, other in () if switched else ((a, b), (b, a)):
            for _ in range(int(word[2:])):
                lines.append(_nvlink(one, used[one.index], 0, _bus_id(other)))
                used[one.index] += 1
    if switched:
        lines += [_nvlink(gpu, n, 2, _SWITCH) for gpu in whole for n in range(max(counts[gpu.index], default=0))]
    return "\n".join(lines) + "\n"


def _gpu(gpu: Gpu, *, parent: str) -> str:
    nodes = gpu.numa_affinity or (() if gpu.numa_node is None else (gpu.numa_node,))
    name = _word(_parent_name(gpu))
    memory = gpu.memory_mib or 0
    numbers = (gpu.gpu_numa_id, gpu.pcie_generation)
    own, generation = (-1 if number is None else number for number in numbers)
    minor = -1 if gpu.minor is None else gpu.minor
    masks = f"{_mask(gpu.cpus)} {_mask(nodes)}"
    return f"gpu {parent} {_bus_id(gpu)} {memory} {minor} {masks} {own} {generation} {name}"


def _parent_name(gpu: Gpu) -> str:
    return gpu.name.replace("MIG", "").replace(gpu.mig or "MIG", "").strip()


def _part_name(gpu: Gpu) -> str:
    """In NVML's format: ``NVIDIA A100-SXM4-80GB MIG 1g.10gb``."""
    return f"{_parent_name(gpu)} MIG {gpu.mig}"


def _nvlink(gpu: Gpu, link: int, kind: int, remote: str) -> str:
    return f"nvlink {gpu.index} {link} {kind} {NVLINK_VERSIONS[gpu.nvlink_generation or 3]} {remote}"


def _bus_id(gpu: Gpu) -> str:
    """In NVML's format, with a domain of eight digits."""
    return f"0000{gpu.pci}".upper()


def _word(text: str) -> str:
    return text.replace(" ", "_") or "_"


def _mask(numbers: Iterable[int]) -> str:
    bits = sum(1 << number for number in set(numbers))
    words = []
    while bits:
        words.append(f"{bits & (1 << 64) - 1:x}")
        bits >>= 64
    return ",".join(words) or "-"
