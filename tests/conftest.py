"""What all tests share: the fixtures in tests/fixtures, and the programs of the virtual environment."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings

# a test of text that takes 200 ms on a busy machine is no slow test
settings.register_profile("unhurried", settings(), deadline=None)
settings.load_profile("unhurried")

pytest.register_assert_rewrite("tests.nightly.sites.main_job")  # its assertions are shared by the sites' modules
pytest_plugins = [f"tests.fixtures.{name}" for name in ("users", "slurm", "postgres", "hubs", "site")]

# whoever runs the tests in the background may ignore these, and what the tests start would ignore them, too
for number, default in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, default)

# configurable-http-proxy and node, where scripts/test put them
os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '/usr/bin:/bin')}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests in a browser come last; with ``-n`` and ``--dist loadgroup`` all that use the session's Slurm share one."""
    for item in items:
        if item.get_closest_marker("slurm"):
            item.add_marker(pytest.mark.xdist_group("slurm"))
    # Playwright's loop runs on in this thread, and no other can run beside it.
    items.sort(key=lambda item: item.get_closest_marker("browser") is not None)
