"""What a check finds: a finding, and the codes of findings."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


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
