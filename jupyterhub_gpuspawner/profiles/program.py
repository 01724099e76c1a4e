"""What a server runs: JupyterLab, the profile's own command, or a program that a field of an extension puts there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.resolve import JobRequest
from jupyterhub_gpuspawner.profiles.sections import profile_fields


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


def program_of(profile: Profile | None) -> Program | None:
    """What runs in the place of JupyterLab, and of the profile's ``command``; None: nothing does."""
    of_fields = (field.program(field.of(profile)) for _, field in profile_fields().values() if field.program)
    return next(filter(None, of_fields), None)


def server_command(request: JobRequest | None, cmd: Sequence[str], args: Sequence[str]) -> ServerCommand:
    """The server's command: a program's own, or the profile's, or ``cmd``, with JupyterHub's arguments."""
    program = program_of(request.profile) if request is not None else None
    if program is not None:
        return program.launched(cmd[0])
    return ServerCommand((*((request.command if request is not None else None) or cmd), *args))
