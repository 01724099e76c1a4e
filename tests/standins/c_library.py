"""Builds the stand-ins for a driver's libraries, which are written in C."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def compiler() -> str | None:
    """The C compiler; None if there is none."""
    return shutil.which("gcc") or shutil.which("cc")


def build(source: Path, library: Path) -> None:
    """Build a shared library of this name from one file. Raises CalledProcessError, also for a warning."""
    command = [str(compiler()), "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", f"-Wl,-soname,{library.name}"]
    subprocess.run([*command, "-o", str(library), str(source)], check=True, timeout=60)
