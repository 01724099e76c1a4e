"""What all tests share: the fixtures in tests/fixtures, and the programs of the virtual environment."""

from __future__ import annotations

import os
import re
import signal
import sys
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# a test of text that takes 200 ms on a busy machine is no slow test, and the first one of a new Python makes Hypothesis
# write its tables of characters
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# the same examples each time: scripts/test
settings.register_profile("repeatable", settings.get_profile("unhurried"), derandomize=True)
settings.load_profile("unhurried")

pytest.register_assert_rewrite("tests.nightly.sites.main_job")  # its assertions are shared by the sites' modules
FIXTURES = ("users", "slurm", "postgres", "hubs", "light_hub", "site", "commands", "browser")
pytest_plugins = [f"tests.fixtures.{name}" for name in FIXTURES]

# whoever runs the tests in the background may ignore these, and what the tests start would ignore them, too
for number, default in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, default)

# configurable-http-proxy and node, where scripts/test put them
os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '/usr/bin:/bin')}"


QUARANTINE = Path(__file__).with_name("quarantine.txt")


def quarantined() -> dict[str, str]:
    """The tests that every change would have to pass if they did not fail by chance: their ids, and why they fail."""
    lines = (line for line in QUARANTINE.read_text().splitlines() if line and not line.startswith("#"))
    return {test: reason.strip() for test, _, reason in (line.partition(" ") for line in lines)}


REAL = ("slurm", "hub", "browser", "users", "gpu", "vm")
"""The markers by whose text scripts/lib.sh finds the modules that it has pytest import."""


@cache
def _marks_in(path: Path) -> set[str]:
    return set(re.findall(r"\bmark\.(\w+)", path.read_text()))


@pytest.hookimpl(tryfirst=True)  # before tests are selected by their markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests in a browser come last, and tests in quarantine are for the night."""
    quarantine = quarantined()
    for item in items:
        unwritten = {mark.name for mark in item.iter_markers() if mark.name in REAL} - _marks_in(item.path)
        if unwritten:
            raise pytest.UsageError(
                f"{item.nodeid}: {sorted(unwritten)} must be written as pytest.mark.... in its module"
            )
        if item.nodeid.partition("[")[0] in quarantine:
            item.add_marker(pytest.mark.nightly)
    # Playwright's loop runs on in this thread, and no other can run beside it.
    items.sort(key=lambda item: item.get_closest_marker("browser") is not None)
