"""A stand-in for CUDA's driver: a real ``libcuda.so.1``, built from ``cuda.c``, that NVIDIA's own bindings load."""

from __future__ import annotations

from pathlib import Path

from tests.standins import c_library

SOURCE = Path(__file__).with_name("cuda.c")


def build(folder: Path) -> Path:
    """Build the library in ``folder``, which can then be used as ``LD_LIBRARY_PATH``."""
    c_library.build(SOURCE, folder / "libcuda.so.1")
    return folder
