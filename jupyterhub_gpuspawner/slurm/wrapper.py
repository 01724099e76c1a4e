"""What the scripts of ``config/wrappers`` are given: all of it on standard input, nothing as an argument. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

SUBMIT, TRIAL, CANCEL, LOG = "submit", "trial", "cancel", "log"
"""Their names in the folder that ``wrapper_dir`` names."""


def submission(script: str, environment: Mapping[str, str]) -> str:
    """The input of ``submit``: the job's environment with its length in bytes before it, and the script.

    Raises ConfigError for a variable that no process can have.
    """
    for name, value in environment.items():
        if not name.isidentifier() or not name.isascii() or "\0" in value:
            raise ConfigError(f"{name[:40]!r} cannot be a variable of a job's environment.", where="environment")
    block = "".join(f"{name}={value}\0" for name, value in environment.items())
    return f"environment {len(block.encode(errors='surrogateescape'))}\n{block}{script}"
