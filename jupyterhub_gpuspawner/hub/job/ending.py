"""How a start failed or a server ended: a value of facts, kept in the spawner's state.

What is said of it is in :mod:`.ending_words`; :class:`~.server_ending.ServerEnding` finds it out, and writes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from pydantic import TypeAdapter, ValidationError

from jupyterhub_gpuspawner.hub.job.cause import STOPS, Cause, Kind, Stage
from jupyterhub_gpuspawner.slurm.job import Job
from jupyterhub_gpuspawner.slurm.reason import NO_WORDS, Words
from jupyterhub_gpuspawner.wire.documents import LOG_MARK

TEXT_LIMIT = 2000
"""Characters of each text that is kept."""


class Repair(str, Enum):
    """Who can do something about a start that failed."""

    YOU = "you"
    """Its user, by another choice or with room in the home folder: the same start fails again."""
    ADMINISTRATOR = "administrator"
    """The same start fails again until the profile, the hub or the node is mended."""
    ANYBODY = "anybody"
    """To start again may help."""


REPAIRS: Mapping[str, Repair] = {
    **dict.fromkeys(("home_full", "submit_rejected", "queue_timeout", "job_out_of_memory"), Repair.YOU),
    **dict.fromkeys(("module_command", "module_path", "module", "conda_command", "conda"), Repair.ADMINISTRATOR),
    **dict.fromkeys(("venv", "setup", "prologue", "launcher", "script", "command"), Repair.ADMINISTRATOR),
    **dict.fromkeys(("command_refused", "home_unwritable", "log_full", "log_silent"), Repair.ADMINISTRATOR),
    **dict.fromkeys(("tmp_full", "tmp_unwritable", "tmp_silent", "hook", "unreachable"), Repair.ADMINISTRATOR),
    **dict.fromkeys(("configuration", "gpuspawner_error", "slurm_output"), Repair.ADMINISTRATOR),
    **dict.fromkeys(("server", "home_silent"), Repair.ANYBODY),
}
"""By the fault of a start; of another fault it is anybody."""


@dataclass(frozen=True)
class Ending:
    """Why the server does not run now: facts alone. What is said of them is :func:`~.ending_words.words_of`'s."""

    cause: Cause
    at: float | None = None
    """Seconds since the epoch; None if unknown."""
    by: str = ""
    """Who stopped it, where that is not its user."""
    job_id: str = ""
    job: Job | None = None
    """The job as Slurm last reported it; None where it has not, or where that explains nothing."""
    stage: Stage | None = None
    """How far a start was that failed or was stopped, where that matters."""
    seconds: float = 0.0
    """The limit that a start has reached."""
    gpus: int = 0
    """How many GPUs a stop has released."""
    ran: float = 0.0
    """For how many seconds a server had run that was stopped; 0 where it had not, or that is not known."""
    said: str = ""
    """What extensions say of a server that had run, as a clause, such as how much of its GPUs was used."""
    why: str = ""
    """Why the hub has stopped it, as a clause that follows when; empty where a person did."""
    subject: str = ""
    """What kept a start from succeeding, as its job reported: a module, a command, a folder; or why its node, or
    those that it waits for, take no jobs."""
    line: str = ""
    """The last line of a job that ended in its start; its user can have it say anything."""
    session_over: bool = False
    """The job reached the time limit that a session of its profile's occasion had set: a planned end."""
    unconfirmed: bool = False
    """The first request to cancel the job failed: Slurm did not answer, or Slurm, sudo or ssh refused it."""
    printed: str = ""
    """What sbatch printed when it refused the job."""
    quoted: Words = NO_WORDS
    """Words in the place of the cause's own: those of an error, of the form, or of an extension that stops a server.

    The sentence of a stop is a clause without its full stop: what became of the job follows it.
    """
    log: str = ""
    """The path of the job's log on the node."""
    lines: str = ""
    """The log's last lines."""
    profile: str = ""
    """The profile's display name, which its card shows; empty where there was none."""
    slug: str = ""
    """The profile's slug; empty where there was none."""

    @property
    def stopped(self) -> bool:
        """A person stopped it, or the hub did."""
        return self.cause.kind in STOPS

    @property
    def failed(self) -> bool:
        """It is that of a start, and nobody stopped it."""
        return self.cause.kind is Kind.START_FAILED

    @property
    def repair(self) -> Repair:
        """Who can do something about it."""
        return REPAIRS.get(self.cause.fault, Repair.ANYBODY)

    @property
    def log_says_more(self) -> bool:
        """The log's last lines may say why it failed, and are more than the line that is shown as the reason."""
        lines = (line.strip() for line in self.lines.splitlines())
        more = (line for line in lines if line not in ("", self.line) and not line.startswith(LOG_MARK))
        return (self.failed or self.cause.kind is Kind.FAILED) and any(more)

    @property
    def has_our_line(self) -> bool:
        """Our script, or the launcher, has written to the log."""
        return any(line.startswith(LOG_MARK) for line in self.lines.splitlines())

    @property
    def served(self) -> bool:
        """The server had been running, and nobody stopped it."""
        return not self.stopped and not self.failed


_ENDING = TypeAdapter(Ending)


def ending_state(ending: Ending) -> dict[str, Any]:
    """The part of a spawner's state that keeps the ending of its last server; each text is cut to its limit."""
    quoted = ending.quoted
    ending = replace(
        ending,
        subject=ending.subject[:TEXT_LIMIT],
        line=ending.line[:TEXT_LIMIT],
        lines=ending.lines[-TEXT_LIMIT:],
        quoted=Words(*(text[:TEXT_LIMIT] for text in (quoted.sentence, quoted.advice, quoted.hint))),
    )
    return {"ending": _ENDING.dump_python(ending, mode="json", exclude_defaults=True)}


def stored_ending(state: Mapping[str, Any]) -> Ending | None:
    """The ending in a spawner's state; None where there is none, or where it cannot be read."""
    document = state.get("ending")
    if not isinstance(document, dict):
        return None
    try:
        return _ENDING.validate_json(json.dumps(document), strict=True)
    except ValidationError:
        return None
