"""What a check finds: a finding, the codes of findings, and a check with the codes that it may report."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from jupyterhub_gpuspawner.check.context import Context


class Severity(str, Enum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    """Something is wrong or doubtful, but nothing fails because of it."""
    ERROR = "error"
    """Something will fail."""


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
    right: str = ""
    """One sentence: what would be right; empty where ``text`` implies it, and for OK."""


@dataclass(frozen=True)
class Code:
    """A kind of finding. The name is stable: scripts may depend on it."""

    name: str
    """Lower case with hyphens, such as ``partition-missing``."""
    meaning: str
    """When it is reported, for the reference; sentences."""

    def ok(self, where: str, text: str) -> Finding:
        """A finding that says what is in order."""
        return Finding(Severity.OK, self.name, where, text)

    def warning(self, where: str, text: str, right: str = "") -> Finding:
        """A finding because of which nothing fails."""
        return Finding(Severity.WARNING, self.name, where, text, right)

    def error(self, where: str, text: str, right: str = "") -> Finding:
        """A finding because of which something fails."""
        return Finding(Severity.ERROR, self.name, where, text, right)


@dataclass(frozen=True)
class Check:
    """One question that ``gpuspawner check`` asks."""

    find: Callable[[Context], Awaitable[Sequence[Finding]]]
    """Answers it, in an order that does not change between runs. Raises SlurmUnavailable if Slurm does not answer."""
    codes: tuple[Code, ...]
    """The codes of its findings, for the reference."""
