"""The errors that this package raises, by who can correct them.

::

    GPUSpawnerError            what went wrong and what is expected, for the admin; one sentence for a participant
    ├── ConfigError            the admin: configuration or a profile; with its path
    ├── RequestError           the user: names the field and what is allowed              -> 400
    ├── SubmitRejected         Slurm rejected the job: its message, and ours              -> 400
    ├── SlurmUnavailable       no answer (time-out, down, missing command)                -> 503; servers are kept
    └── SlurmOutputError       an answer that is not understood: carries the raw text     -> 500, please report

Problems on a compute node are not exceptions but lines in the node's report.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import ClassVar


class GPUSpawnerError(Exception):
    """One fault, described in one sentence; ``hint`` says what is expected.

    Both are for the admin and the hub's log, and may name settings, commands and paths. ``for_user`` is what a
    participant reads: it names none of these.
    """

    status_code = 500
    reason = "gpuspawner_error"
    usual_for_user: ClassVar[str] = "The hub could not start the server."
    """What a participant reads where an error has no sentence of its own."""
    where: str = ""
    """The file and line, field or setting at fault, with which ``message`` begins; empty where there is none."""

    def __init__(self, message: str, *, hint: str = "", for_user: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fault = message
        """The message without ``where``."""
        self.hint = hint
        self.for_user = for_user or self.usual_for_user or message

    @property
    def for_admin(self) -> str:
        """What the error says beyond ``for_user``; empty where that is all."""
        text = str(self)
        return "" if text == self.for_user else self.hint if self.message == self.for_user else text

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


class ConfigError(GPUSpawnerError):
    """The admin's configuration or a profile is wrong; ``where`` is the file, line or field path."""

    reason = "configuration"
    usual_for_user = "The hub cannot start this server: it is not set up correctly."

    def __init__(self, message: str, *, where: str = "", hint: str = "", for_user: str = "") -> None:
        super().__init__(f"{where}: {message}" if where else message, hint=hint, for_user=for_user)
        self.where = where
        self.fault = message


class RefusalKind(str, Enum):
    """The rule by which a user may not use a profile now."""

    NOT_YET = "not yet"
    """Its first day has not come."""
    ENDED = "ended"
    """Its last day has passed."""
    OTHER_USERS = "other users"
    """It lists users, and this one is not among them."""
    OTHER_GROUPS = "other groups"
    """It lists groups, and the user is in none of them."""


@dataclass(frozen=True)
class Refusal:
    """Why a user may not use a profile now."""

    kind: RefusalKind
    text: str
    """For a participant; without leading capital and final full stop."""
    when: date | None = None
    """The first day or moment for NOT_YET, the last one for ENDED; a moment has a time zone."""

    @property
    def is_shown(self) -> bool:
        """Whether the user is shown the profile nevertheless: one that begins later.

        Those of other users and those that have ended are left out everywhere: the user can do nothing about them, and
        their names may be confidential.
        """
        return self.kind is RefusalKind.NOT_YET


class RequestError(GPUSpawnerError):
    """The user's request is not allowed or not understood.

    Message and hint are for the user. ``field`` is the option at fault; ``refusal`` is set where the user may not use
    the requested profile now.
    """

    status_code = 400
    reason = "user_options"

    def __init__(self, message: str, *, field: str = "", hint: str = "", refusal: Refusal | None = None) -> None:
        super().__init__(message, hint=hint, for_user=f"{message} {hint}".strip())
        self.field = field
        self.refusal = refusal


class SubmitRejected(GPUSpawnerError):
    """Slurm rejected the job; ``stderr`` is sbatch's message, at most 2,000 characters.

    ``field`` is the profile field at fault, such as ``slurm.time``; empty where there is none or it is not known.
    """

    status_code = 400
    reason = "submit_rejected"
    usual_for_user = "Slurm refused the job."

    def __init__(self, message: str, *, stderr: str = "", hint: str = "", field: str = "", for_user: str = "") -> None:
        super().__init__(message, hint=hint, for_user=for_user)
        self.field = field
        self.stderr = stderr[:2000]
        self.why = ""
        """Why, in the words of the form, where its view of the cluster tells more than sbatch."""


class SlurmUnavailable(GPUSpawnerError):
    """Slurm gave no answer: time-out, controller down, command missing."""

    status_code = 503
    reason = "slurm_unavailable"
    usual_for_user = "Slurm is not responding at the moment."


class SlurmOutputError(GPUSpawnerError):
    """Slurm's answer was not understood; ``raw`` is its text, at most 2,000 characters.

    ``field`` is Slurm's name for the field at fault; empty where it is the whole record.
    """

    reason = "slurm_output"
    usual_for_user = "The hub could not read Slurm's answer."

    def __init__(self, message: str, *, raw: str = "", field: str = "") -> None:
        super().__init__(message, hint="Please report this line to the project.")
        self.raw = raw[:2000]
        self.field = field


class ReportError(ValueError):
    """A report that is refused; the text begins with the path of the field, such as ``placement.gpus[0].index``."""
