"""A stand-in for CUDA's driver: a real ``libcuda.so.1``, built from ``cuda.c``, that NVIDIA's own bindings load."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("cuda.c")


def compiler() -> str | None:
    """The C compiler; None if there is none."""
    return shutil.which("gcc") or shutil.which("cc")


def build(folder: Path) -> Path:
    """Build the library in ``folder``, which can then be used as ``LD_LIBRARY_PATH``."""
    library = folder / "libcuda.so.1"
    command = [str(compiler()), "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", f"-Wl,-soname,{library.name}"]
    subprocess.run([*command, "-o", str(library), str(SOURCE)], check=True, timeout=60)
    return folder
