"""The command line, called within this process."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from jupyterhub_gpuspawner.cli.main import main


def cli_runner() -> CliRunner:
    """Click 8.1 mixes both outputs by default; 8.2 and newer do not, and have no such parameter."""
    apart: dict[str, Any] = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}
    return CliRunner(**apart)


def run(folder: Path, lines: str, *words: str, environment: dict[str, str] | None = None) -> Result:
    """Run ``gpuspawner WORDS`` with these lines as the hub's configuration."""
    config = folder / "jupyterhub_config.py"
    config.write_text(lines)
    return cli_runner().invoke(main, [*words, "--config", str(config)], env=environment)
