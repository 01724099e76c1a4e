"""The one name of a kind of GPU on all pages: its model, and its memory in the GB of its product name. Pure.

It comes from what the driver reports (:func:`device_model`), or from Slurm's type, where that determines it
(:func:`gpu_model`). Slurm's types are names chosen by the site (``k80``), NVML's names (``nvidia_a100-sxm4-80gb``,
gres.conf(5), ``AutoDetect``), or MIG profiles (``1g.10gb``, ``nvidia_a100_1g.10gb``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from jupyterhub_gpuspawner.words import gpu_gigabytes

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
_MIG = re.compile(r"(?:^|[-_.])(?:\d+c\.)?\d+g\.(?P<memory>\d+)gb(?:[-_.+][a-z]+)*$", re.ASCII)
"""``1g.10gb``, ``1c.3g.40gb`` (a compute instance of a GPU instance), ``1g.24gb-me`` (without media engines)."""
_MIG_IN_NAME = " MIG "
"""Between a GPU's name and the profile in NVML's name of a MIG device: ``NVIDIA A100-SXM4-80GB MIG 1g.10gb``."""
_SIZE = re.compile(r"(\d+)gb?", re.ASCII)
_OF_GH200 = (96, 144)
_NO_MODEL = frozenset({"nvidia", "tesla", "geforce", "quadro", "amd", "instinct", "pcie", "nvl", "graphics"})
_FORM = re.compile(r"sxm\d*|hbm\d*e?", re.ASCII)


@dataclass(frozen=True)
class GpuModel:
    """A GPU model, or a slice of one (a MIG device)."""

    name: str
    """Such as ``A100``, or ``A100 slice``; otherwise the site's name unchanged."""
    memory_gb: int | None = None
    """Gigabytes as in the model's or the MIG profile's name; None where they are not known."""

    @property
    def plural(self) -> str:
        """What several are called in a count of those that are free: ``K80``, ``A100 slices``."""
        return f"{self.name}s" if self.name.endswith(" slice") else self.name

    def __str__(self) -> str:
        """``K80, 12 GB``, ``A100 slice, 10 GB``."""
        return f"{self.name}, {self.memory_gb} GB" if self.memory_gb else self.name


def device_model(name: str, mig: str | None = None, memory_mib: int | None = None) -> GpuModel:
    """The model of a device by NVML's name, its MIG profile (None: as in the name) and its memory in MiB."""
    of_whole, _, in_name = name.partition(_MIG_IN_NAME)
    whole, mig = gpu_model(of_whole), mig or in_name
    if mig:
        return _slice_of(whole.name, gpu_model(mig).memory_gb or gpu_gigabytes(memory_mib))
    return GpuModel(whole.name or "GPU", gpu_gigabytes(memory_mib) or whole.memory_gb)


def device_name(name: str, mig: str | None = None) -> str:
    """NVML's name of a device, with its MIG profile, so that :func:`device_model` can read both from it."""
    return f"{name}{_MIG_IN_NAME}{mig}" if mig and name and _MIG_IN_NAME not in name else name or mig or ""


def is_mig(gres_type: str) -> bool:
    """Whether Slurm's type names a MIG profile."""
    return _MIG.search(gres_type.lower()) is not None


def _slice_of(model: str, memory_gb: int | None) -> GpuModel:
    return GpuModel(f"{model or 'GPU'} slice", memory_gb)


def gpu_model(gres_type: str, beside: Iterable[str] = ()) -> GpuModel:
    """The model named by Slurm's type; ``a100`` exists with 40 and 80 GB, so its memory is left open.

    ``beside`` are the types of the GPUs on the same nodes. A MIG profile does not name the GPU that is divided; it is
    taken to be of the same model as the whole GPUs there, where these are of one.
    """
    sliced = _MIG.search(gres_type.lower())
    if sliced:
        wholes = [gres_type[: sliced.start()]] if sliced.start() else [kind for kind in beside if not _MIG.search(kind)]
        models = {gpu_model(kind).name for kind in wholes}
        return _slice_of(models.pop() if len(models) == 1 else "", int(sliced["memory"]))
    words, memory = [], None
    for word in re.split("[-_ ]+", gres_type.lower()):
        size = _SIZE.fullmatch(word)
        if size:
            memory = int(size[1])
            if "gh200" in words and memory not in _OF_GH200:
                memory = min(_OF_GH200)  # the size in the name is that of the processor's memory
        elif word and word not in _NO_MODEL and not _FORM.fullmatch(word):
            words.append(word)
    if not any(character.isdigit() for word in words for character in word):
        return GpuModel(gres_type, memory)
    name = " ".join(word.upper() if re.search(r"\d|rtx|gtx", word) else word.capitalize() for word in words)
    return GpuModel(name, memory or MEMORY_GB.get("".join(words).removeprefix("rtx").removeprefix("gtx")))
