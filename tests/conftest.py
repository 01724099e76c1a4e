"""What all tests share: the fixtures in tests/fixtures, and the programs of the virtual environment."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

pytest_plugins = ["tests.fixtures.users", "tests.fixtures.slurm", "tests.fixtures.hubs"]

# configurable-http-proxy and node, where scripts/test put them
os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '/usr/bin:/bin')}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With ``-n`` and ``--dist loadgroup``, tests on the session's Slurm go to one process, and so to one Slurm."""
    for item in items:
        if item.get_closest_marker("slurm"):
            item.add_marker(pytest.mark.xdist_group("slurm"))
