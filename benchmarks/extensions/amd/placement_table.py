"""What a choice is worth on machines with AMD's GPUs, as ``benchmarks/placement_table.py`` shows it of others.

    python -m benchmarks.extensions.amd.placement_table > table.md

An XGMI link counts as an NVLink in pair scores; a way over another GPU counts as none.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.placement_table import print_table
from jupyterhub_gpuspawner.placement.topology import NodeTopology
from tests.extensions.amd.machines import built

MACHINES = {"mi250x": "Frontier", "mi300x": "8 MI300X"}
"""The tests' machines, by their names in the table."""


def machines() -> Iterator[tuple[str, NodeTopology]]:
    """Of the tests' machines, as a launcher reads them."""
    for title, name in MACHINES.items():
        with tempfile.TemporaryDirectory() as folder:
            yield title, built(Path(folder), name)


if __name__ == "__main__":
    print_table(machines())
