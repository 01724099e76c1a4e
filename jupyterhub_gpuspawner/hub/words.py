"""What pages, cards and REST say of a server: the home page, the waiting page and its log.

``{time}`` stays in a sentence: the page puts the time there, in the reader's time zone. Administrators, instructors,
and those with whom a server is shared open its pages, too: :func:`words_for` has the sentences for them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from jupyterhub_gpuspawner.hub.times import parse_time, silence
from jupyterhub_gpuspawner.slurm.gpu_model import device_model
from jupyterhub_gpuspawner.wire.documents import PlacedGpu
from jupyterhub_gpuspawner.words import duration, people

STATES = {
    "running": "running",
    "waiting": "waiting in line",
    "starting": "starting",
    "stopping": "stopping",
    "stopped": "not running",
    "ended": "ended",
    "over": "session over",
    "failed": "did not start",
}
ENDED_AT = "It ended at {time}."
SESSION_OVER = "The session is over."
FILES_KEPT = "Your files are kept as you last saved them."
LESS = "less than a minute"
NO_TIME = "no time"
ENDS_SOON = "It ends soon. Save your work."
ENDS_VERY_SOON = "It ends in a few minutes. Save your work now."
TIME_IS_OVER = "Time is up: Slurm may end the server at any moment."
STOPPING = "Slurm is ending the job and releasing its GPUs. This takes a few seconds."
START_FAILED = "The server failed to start."
WROTE = 'It wrote: "{line}"'
NOT_MORE = "You have {number} of at most {limit} named servers. Delete one before you start another."
OF_USER = "{title} of {owner}"


def title(name: str, display_name: str, profile: str = "") -> str:
    """A card's heading: ``K80``, ``K80 (server lab)``, ``My server``, ``Server lab``."""
    if profile:
        return f"{profile} (server {display_name})" if name else profile
    return f"Server {display_name}" if name else MY_SERVER


MY_SERVER = "My server"


def job_in(job_id: str, partition: str, cluster: str) -> str:
    """A job, with its partition and its cluster as far as they have a name."""
    parts = (job_id, f"partition {partition}" if partition else "", f"cluster {cluster}" if cluster else "")
    return ", ".join(filter(None, parts))


def gpus(devices: Iterable[PlacedGpu]) -> tuple[str, ...]:
    """Such as ``("2 x K80, 12 GB",)``, as the form says it: one text for each kind of GPU."""
    kinds = Counter(str(device_model(gpu.name, gpu.mig, gpu.memory_mib)) for gpu in devices)
    return tuple(f"{number} \N{MULTIPLICATION SIGN} {kind}" for kind, number in kinds.items())


def time_left(seconds: float) -> str:
    """``2 h 30 min``, ``14 min``, ``less than a minute``: in full minutes, rounded down."""
    if seconds <= 0:
        return NO_TIME
    return LESS if seconds < 60 else duration(seconds)


WAITING = "Waiting in line"
STARTING = "Starting"
CHECKING = "Checking on your server"
ASKING = "Submitting the job to Slurm."
WAITING_FOR_SLURM = "Waiting for Slurm"
FOR_LATER = "Slurm does not answer at the moment. Your server is kept for later, and starts when Slurm is back."
FOR_LATER_UNTIL = "If Slurm does not answer by {time}, the start is given up."
SUBMITTED_AS = "Submitted as job {job_id}."
ABOUT_JOB = "Job {job_id}: {text}"
SERVER_STARTING = "The server is starting."
STAGES = {
    "submitted": "Submitted",
    "queued": "In line",
    "allocated": "Node",
    "starting": "Starting",
    "ready": "Ready",
}
TOOK = "took {duration}"
LASTS = "for {duration}"
EXPECTED = "Expected start: {when}"
BESIDE = "{profile} is free. A job for it was submitted as well: whichever starts first runs the server."
UNLESS = "That holds if nobody with a higher priority comes."
KEPT = "We keep your place in line until you stop this server."
KEPT_UNTIL = "We keep your place in line until {time}."
BOOTING = "Slurm is powering on node {node} for your server. That may take up to {time}."
SETTLING = "What you chose is free: it starts in a moment."
BEING_STOPPED = "The server is being stopped."


SUSPENDED = (
    "Slurm has suspended the server, for a job with higher priority or at an administrator's request. It does not "
    "answer until Slurm resumes it, and then goes on where it was."
)
SILENT = "Slurm is not responding at the moment. Your server is not affected."
LAST_ANSWER = silence(since_the_start=False, more="Your server is not affected.")
NO_ANSWER_YET = silence(since_the_start=True, more="Your server is not affected.")

NO_ESTIMATE = "Slurm has no estimate yet."

FAILED = "Your server did not start"
CONTACT = "your administrator"
"""Whom to ask, unless the site says so."""


def took(seconds: int | None) -> str:
    """How long a stage took; empty where that is unknown, or less than a second."""
    return TOOK.format(duration=duration(seconds)) if seconds else ""


def lasts(since: str, *, now: float | None = None) -> str:
    """How long a stage has lasted that began at ``since`` (ISO 8601); empty below a second."""
    seconds = (time.time() if now is None else now) - parse_time(since).timestamp()
    return LASTS.format(duration=duration(seconds)) if seconds >= 1 else ""


def people_ahead(others: int, position: int) -> str:
    """``You are next``, or such as ``2 people ahead of you``; nobody is ahead of themselves."""
    if others:
        return f"{people(others)} ahead of you"
    return "You are next" if position <= 1 else "Your own job is ahead"


def ran_for(seconds: float, said: str = "") -> str:
    """``It ran for 25 min.``, with what else is said of it, as a clause."""
    return "; ".join(filter(None, [f"It ran for {duration(seconds)}", said])) + "."


def uses(left: int) -> str:
    """How often one can do something, such as ``You can do this twice.``."""
    return f"You can do this {({1: 'once', 2: 'twice'}).get(left) or f'{left} times'}."


CONTACT_OF_ANOTHER = "the administrator"
TOLD = "What {owner} is told: {advice}"
"""Advice is for the user, and reaches the one who may help."""
_NOT_AFFECTED = "The server is not affected."


def _people_ahead_of_another(others: int, position: int) -> str:
    if others:
        return f"{people(others)} ahead of it"
    return "It is next" if position <= 1 else "Another job of its user is ahead"


_OF_ANOTHER: dict[str, Any] = {
    "CHECKING": "Checking on the server",
    "FOR_LATER": "Slurm does not answer at the moment. The server is kept for later, and starts when Slurm is back.",
    "KEPT": "Its place in line is kept until somebody stops it.",
    "KEPT_UNTIL": "Its place in line is kept until {time}.",
    "BOOTING": "Slurm is powering on node {node} for the server. That may take up to {time}.",
    "SETTLING": "What was chosen is free: it starts in a moment.",
    "SILENT": f"Slurm is not responding at the moment. {_NOT_AFFECTED}",
    "LAST_ANSWER": silence(since_the_start=False, more=_NOT_AFFECTED),
    "NO_ANSWER_YET": silence(since_the_start=True, more=_NOT_AFFECTED),
    "FAILED": "The server did not start",
    "CONTACT": CONTACT_OF_ANOTHER,
    "people_ahead": _people_ahead_of_another,
}


_OWN = SimpleNamespace(**{name: value for name, value in globals().items() if not name.startswith("_")})
_ANOTHERS = SimpleNamespace(**{**vars(_OWN), **_OF_ANOTHER})


def words_for(*, own: bool) -> Any:
    """The words of pages for the server's user, or for somebody else; by the names of those in this module."""
    return _OWN if own else _ANOTHERS


def title_of_another(title: str) -> str:
    """The title of a server (:func:`title`) that is somebody else's."""
    return "Server" if title == MY_SERVER else title


def of_its_user(sentence: str) -> str:
    """What Slurm's reasons and a changed estimate say to the user, for somebody else."""
    return sentence.replace("your own jobs", "its user's own jobs").replace("ahead of you", "ahead of it")
