"""What a check gets, and what it finds: a finding, the codes of findings, and the context of a check."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from jupyterhub_gpuspawner.errors import SlurmOutputError, SlurmUnavailable
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.site.configuration import Site
from jupyterhub_gpuspawner.site.people import People
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot

# What every check is given: the configuration, the profiles, and Slurm's answer.


@dataclass(frozen=True)
class Options:
    """What the command line asks for beyond the usual checks."""

    user: str = ""
    """A user whose jobs are tried, without submitting them."""
    groups: tuple[str, ...] = ()
    """JupyterHub groups of that user."""
    people: int = 0
    """How many people would start at once; 0: not asked."""
    profile: str = ""
    """The only profile to try, and to count the seats of; empty: each."""
    submit: bool = False
    """Submit one small job of the user in each partition, and look at its node."""


DEFAULTS = Options()
"""Nothing beyond the usual checks."""


@dataclass(frozen=True)
class Context:
    """A site at one moment."""

    site: Site
    spawner: Any
    """The spawner of a user ``nobody``."""
    slurm_site: GPUSlurmSpawner
    """A spawner with the settings of all Slurm servers."""
    client: SlurmClient
    profiles: tuple[Profile, ...]
    """None in a hub without profiles."""
    defaults: Resources
    """The site's defaults for Slurm jobs."""
    people: People
    """JupyterHub's users and groups, as far as they are known."""
    now: datetime
    """With a time zone."""
    version: str = ""
    """Slurm's."""
    snapshot: ClusterSnapshot | None = None
    """None if Slurm did not answer, or not so that it can be read; then :attr:`slurm_error` says why."""
    slurm_error: SlurmUnavailable | SlurmOutputError | None = None
    options: Options = DEFAULTS


START = "check"
"""The mark of these jobs' comments, in place of a hub's."""


class Severity(str, Enum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    """It works, but look at it."""
    ERROR = "error"
    """Starts will fail."""


@dataclass(frozen=True)
class Finding:
    """One answer of ``gpuspawner check``."""

    severity: Severity
    code: str
    """The name of its :class:`Code`."""
    where: str
    """File and line, the field of a profile, or the setting."""
    text: str
    """One sentence: the fault, or for OK what was found in order."""
    fix: str = ""
    """One sentence: the remedy; empty where ``text`` implies it, and for OK."""


CODES: dict[str, Code] = {}
"""Every code by its name, for the reference. A code is declared once, in the module of the check that reports it."""


@dataclass(frozen=True)
class Code:
    """A kind of finding. The name is stable: scripts may depend on it."""

    name: str
    """Lower case with hyphens, such as ``partition-missing``."""
    meaning: str
    """When it is reported, for the reference; sentences."""

    def __post_init__(self) -> None:
        """Enter the code in :data:`CODES`; raises ValueError for a name that another code has."""
        if CODES.setdefault(self.name, self) != self:
            raise ValueError(f"two codes are called {self.name}.")

    def ok(self, where: str, text: str) -> Finding:
        """A finding that says what is in order."""
        return Finding(Severity.OK, self.name, where, text)

    def warning(self, where: str, text: str, fix: str = "") -> Finding:
        """A finding about something that works, and should be looked at."""
        return Finding(Severity.WARNING, self.name, where, text, fix)

    def error(self, where: str, text: str, fix: str = "") -> Finding:
        """A finding because of which starts will fail."""
        return Finding(Severity.ERROR, self.name, where, text, fix)


Check = Callable[["Context"], Awaitable[Iterable[Finding]]]
"""One question that ``gpuspawner check`` asks.

Its findings are in an order that does not change between runs. Raises SlurmUnavailable if Slurm does not answer.
"""
