"""Click's test runner, with standard error apart from standard output in each version."""

from __future__ import annotations

import inspect
from typing import Any

from click.testing import CliRunner


def cli_runner() -> CliRunner:
    """Click 8.1 mixes them unless it is told not to; 8.2 and newer do not, and take no such word."""
    apart: dict[str, Any] = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}
    return CliRunner(**apart)
