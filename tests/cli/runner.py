"""Click's test runner, with separate standard output and standard error in every version."""

from __future__ import annotations

import inspect
from typing import Any

from click.testing import CliRunner


def cli_runner() -> CliRunner:
    """Click 8.1 mixes them by default; 8.2 and newer do not, and have no such parameter."""
    apart: dict[str, Any] = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}
    return CliRunner(**apart)
