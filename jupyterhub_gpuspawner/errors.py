"""The errors that this package raises, by who can correct them.

::

    GPUSpawnerError            one sentence, and a hint: what is expected
    ├── ConfigError            the admin: configuration or a profile; with its path
    │   └── NotPermitted       Slurm refuses the command to this account: not tried again
    ├── RequestError           the user: names the field and what is allowed              -> 400
    ├── SubmitRejected         Slurm rejected the job: its message, and ours              -> 400
    ├── SlurmUnavailable       no answer (time-out, down, missing command)                -> 503; servers are kept
    └── SlurmOutputError       an answer that is not understood: carries the raw text     -> 500, please report

Problems on a compute node are not exceptions but lines in the node's report.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class GPUSpawnerError(Exception):
    """One fault, described in one sentence; ``hint`` says what is expected."""

    status_code = 500
    reason = "gpuspawner_error"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


class ConfigError(GPUSpawnerError):
    """The admin's configuration or a profile is wrong; ``where`` is the file, line or field path."""

    reason = "configuration"

    def __init__(self, message: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(f"{where}: {message}" if where else message, hint=hint)
        self.where = where


class NotPermitted(ConfigError):
    """Slurm refuses the command to this account; retrying does not help."""


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


class RequestError(GPUSpawnerError):
    """The user's request is not allowed or not understood.

    ``field`` is the option at fault; ``refusal`` is set where the user may not use the requested profile now.
    """

    status_code = 400
    reason = "user_options"

    def __init__(self, message: str, *, field: str = "", hint: str = "", refusal: Refusal | None = None) -> None:
        super().__init__(message, hint=hint)
        self.field = field
        self.refusal = refusal


class SubmitRejected(GPUSpawnerError):
    """Slurm rejected the job; ``stderr`` is sbatch's message, at most 2,000 characters.

    ``field`` is the profile field at fault, such as ``slurm.time``; empty where there is none or it is not known.
    """

    status_code = 400
    reason = "submit_rejected"

    def __init__(self, message: str, *, stderr: str = "", exit_code: int = 1, hint: str = "", field: str = "") -> None:
        super().__init__(message, hint=hint)
        self.field = field
        self.stderr = stderr[:2000]
        self.exit_code = exit_code


class SlurmUnavailable(GPUSpawnerError):
    """Slurm gave no answer: time-out, controller down, command missing."""

    status_code = 503
    reason = "slurm_unavailable"


class SlurmOutputError(GPUSpawnerError):
    """Slurm's answer was not understood; ``raw`` is its text, at most 2,000 characters.

    ``field`` is Slurm's name for the field at fault; empty where it is the whole record.
    """

    reason = "slurm_output"

    def __init__(self, message: str, *, raw: str = "", field: str = "") -> None:
        super().__init__(message, hint="Please report this line to the project.")
        self.raw = raw[:2000]
        self.field = field
