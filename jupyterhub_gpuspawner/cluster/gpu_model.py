"""The GPU model behind Slurm's type, with its memory where the type determines it. Pure.

Slurm's types are names chosen by the site (``k80``), NVML's names (``nvidia_a100-sxm4-80gb``, gres.conf(5),
``AutoDetect``), or MIG profiles (``1g.10gb``, ``nvidia_a100_1g.10gb``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MEMORY_GB = {
    "2080ti": 11,
    "3090": 24,
    "4090": 24,
    "a10": 24,
    "a2": 16,
    "a30": 24,
    "a40": 48,
    "h200": 141,
    "k40": 12,
    "k40m": 12,
    "k80": 12,
    "l4": 24,
    "l40": 48,
    "l40s": 48,
    "mi100": 32,
    "mi210": 64,
    "mi300x": 192,
    "t4": 16,
    "v100s": 32,
}
"""GB of models sold with a single memory size, from the vendors' data sheets; half a K80 is one GPU."""
_MIG = re.compile(r"(?:^|[-_])(?P<profile>\d+g\.(?P<memory>\d+)gb(?:[.+]\w+)*)$", re.ASCII)
_SIZE = re.compile(r"(\d+)gb?", re.ASCII)
_NO_MODEL = frozenset({"nvidia", "tesla", "geforce", "quadro", "amd", "instinct", "pcie", "nvl", "graphics"})
_FORM = re.compile(r"sxm\d*|hbm\d*e?", re.ASCII)


@dataclass(frozen=True)
class GpuModel:
    """A GPU model, or a MIG part of one."""

    name: str
    """Such as ``A100``, or ``A100 MIG 1g.10gb``; otherwise the site's name unchanged."""
    memory_gb: int | None = None
    """Gigabytes as in the model's name; None where the type does not determine them."""

    def __str__(self) -> str:
        return f"{self.name} ({self.memory_gb} GB)" if self.memory_gb else self.name


def gpu_model(gres_type: str) -> GpuModel:
    """The model named by Slurm's type; ``a100`` exists with 40 and 80 GB, so its memory is left open."""
    sliced = _MIG.search(gres_type.lower())
    if sliced:
        whole = gpu_model(gres_type[: sliced.start()]).name if sliced.start() else ""
        return GpuModel(f"{whole} MIG {sliced['profile']}".strip(), int(sliced["memory"]))
    words, memory = [], None
    for word in re.split("[-_ ]+", gres_type.lower()):
        size = _SIZE.fullmatch(word)
        if size:
            memory = int(size[1])
        elif word and word not in _NO_MODEL and not _FORM.fullmatch(word):
            words.append(word)
    if not any(character.isdigit() for word in words for character in word):
        return GpuModel(gres_type, memory)
    name = " ".join(word.upper() if re.search(r"\d|rtx|gtx", word) else word.capitalize() for word in words)
    return GpuModel(name, memory or MEMORY_GB.get("".join(words).removeprefix("rtx").removeprefix("gtx")))
