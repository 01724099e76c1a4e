"""What a server gets on documented machines with AMD's GPUs, as ``benchmarks/machines_table.py`` shows it of others.

    python -m benchmarks.extensions.amd.machines_table > table.md

The files below ``/sys`` of each machine are written to a folder, and read there as a launcher reads them.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.machines_table import HEADS, rows
from tests.extensions.amd.machines import built

MACHINES = {
    "Frontier": "Frontier, 4 MI250X",
    "ARCHER2": "ARCHER2, 4 MI210",
    "8 MI300X": "8 MI300X",
    "4 MI300A": "4 MI300A",
}
"""Titles, by the names of the tests' machines."""


def main() -> None:
    """Print the table as Markdown."""
    heads = [head.replace("CUDA", "ROCR") for head in HEADS]
    print("|", " | ".join(heads), "|")
    print("|---" * len(heads) + "|")
    for name, title in MACHINES.items():
        with tempfile.TemporaryDirectory() as folder:
            for cells in rows(title, built(Path(folder), name)):
                print("|", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
