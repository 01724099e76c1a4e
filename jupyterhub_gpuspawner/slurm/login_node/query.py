"""Standard input of the script ``query``, which runs the hub's questions to Slurm on a login node. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.errors import SlurmOutputError

if TYPE_CHECKING:
    from collections.abc import Sequence

QUERY = "query"
"""The script of ``wrapper_dir`` that runs what only reads."""
SETTING = "query_prefix"
"""The setting with the prefix that runs it."""


def request(command: str, arguments: Sequence[str]) -> str:
    """The command and its arguments, each ended by a NUL."""
    words = (command, *arguments)
    if any("\0" in word for word in words):
        raise SlurmOutputError(f"An argument of {command} contains a NUL.", raw=" ".join(words))
    return "".join(f"{word}\0" for word in words)
