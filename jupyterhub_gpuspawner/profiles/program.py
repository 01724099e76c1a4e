"""A program that runs in the place of JupyterLab, and the command that starts a server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class ServerCommand:
    """The command that a job starts; the profile's container holds the part in :attr:`words` alone."""

    words: tuple[str, ...]
    outside: tuple[str, ...] = ()
    """The words before them, of what runs outside the container."""
    shared: tuple[str, ...] = ()
    """Folders that both use, which the container binds."""
    beside: str = ""
    """See :attr:`python_beside`; empty: the first of all words."""

    @property
    def all_words(self) -> tuple[str, ...]:
        """The whole command."""
        return (*self.outside, *self.words)

    @property
    def python_beside(self) -> str:
        """A program beside which a Python for the launcher may lie."""
        return self.beside or self.all_words[0]


@dataclass(frozen=True)
class Program:
    """A program in the place of JupyterLab."""

    title: str
    """Its name for people."""
    icon: str
    """The picture beside its name, one of ``gpuspawner_icon.html``."""
    readiness: str
    """The path, below the server's, at which JupyterHub and the hub's own check ask the server."""
    launched: Callable[[str], ServerCommand]
    """Its command for the launcher, by the one that starts JupyterLab (``c.Spawner.cmd``)."""
