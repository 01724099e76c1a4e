"""The page of a server that is starting, of one that did not start, and of one that has ended.

``{time}`` stays in a sentence: the page puts the time there, in the reader's time zone.
"""

from __future__ import annotations

import time

from jupyterhub_gpuspawner.hub.text.silence import silence
from jupyterhub_gpuspawner.hub.text.times import parse_time
from jupyterhub_gpuspawner.words import duration, people

WAITING = "Waiting in line"
STARTING = "Starting"
STARTED = "Ready"
CHECKING = "Checking on your server"
CHECKING_WHY = "The hub was restarted and is checking whether your server is still running. This takes a moment."
ASKING = "Submitting the job to Slurm."
SUBMITTED_AS = "Submitted as job {job_id}."
SERVER_STARTING = "The server is starting."
STAGES = {
    "submitted": "Submitted",
    "queued": "In line",
    "allocated": "Node allocated",
    "starting": "Server starting",
    "ready": "Ready",
}
STAGE_STATES = {"done": "done", "current": "current", "coming": "upcoming"}
PROGRESS = "Progress"
TOOK = "took {duration}"
LASTS = "for {duration}"
POSITION = "Your place"
EXPECTED = "Expected start"
JOB = "Slurm job"
CLOSE = "You can close this page. The home page leads back here."
NOTIFY = "Notify me when it is ready"
NOTIFY_ON = "You will be notified when it is ready"
NOTIFY_DENIED = "Your browser blocks notifications from this page. Watch the title of this tab instead."
READY = "Your server is ready"
STOP = "Stop this server"
STOPPING = "The server is being stopped."
STOPPED = "Your server is stopped"
STOPPED_NAMED = "Server {name} is stopped"
NOT_STOPPED = "The server could not be stopped. This page will refresh in a moment."
NO_SCRIPT = "This page refreshes every 10 seconds."
HUB_AWAY = "The hub is not responding at the moment. Your server is not affected, and this page will reconnect."

INSTEAD = "Free now"
SWITCH = "Switch"
SWITCHING = "Switching. This takes a few seconds."
GIVES_UP_PLACE = "If you switch, you give up your place in line."
NOT_FREE = "That choice is no longer free. You have kept your place in line."
GAVE_UP = "You gave up your place in line for {profile}."
BACK_TO = "Choose {profile} again"

SILENT = "Slurm is not responding at the moment. Your server is not affected."
LAST_ANSWER = silence(since_the_start=False, more="Your server is not affected.")
NO_ANSWER_YET = silence(since_the_start=True, more="Your server is not affected.")

KEPT = "We keep your place in line until you stop this server."
KEPT_UNTIL = "We keep your place in line until {time}."
AT_THE_LATEST = "{time} at the latest, unless jobs with a higher priority are submitted."
NOT_BEFORE = "{time} at the earliest."
OVERDUE = "It was expected {time}; it should start soon."
NO_ESTIMATE = "Slurm has no estimate yet."

STOP_HEADING = "Your server is stopping"
STOP_HEADING_NAMED = "Server {name} is stopping"
STOP_WHY = "Slurm is ending the job and releasing its GPUs. This takes a few seconds; then you can start a new server."
REFRESH = "Refresh"

FAILED = "Your server did not start"
FAILED_NAMED = "Server {name} did not start"
ENDED = "Your last server has ended"
ENDED_NAMED = "Server {name} has ended"
NOTHING_RUNS = "You have no running server"
NOT_RUNNING = "Your server is not running"
NOT_RUNNING_NAMED = "Server {name} is not running"
IMPLICIT = "It will start again automatically in a few seconds."
ENDED_AT = "It ended at {time}."
TIME_LIMIT = "The job reached its time limit of {time}."
UNKNOWN_FAILURE = "The reason is unknown. Your administrator may find it in the hub's log."
ELSEWHERE = "This page is open in more than {limit} tabs. This tab now updates less often."
TIMED_OUT = (
    "Your server did not start within {time} after Slurm had started its job, so the start was cancelled. "
    "Last known state: {known}"
)
TIMED_OUT_ADVICE = "Start again. If it happens again, contact {contact}."
NOT_SUBMITTED = "Slurm did not accept the job within {time}, so the start was cancelled."
WAITED = "You waited {time} in the queue, which is the limit here; the start was cancelled, and your place given up."
WAITED_ADVICE = "Start again, or choose fewer resources: a smaller job may start sooner."
WAITED_HINT = "The limit is queue_timeout, of the profile or of c.GPUSlurmSpawner."
UNANSWERED = "Your server was started but did not respond to the hub within {time}."
UNREACHABLE = "Your server was started, but the hub cannot reach it."
NO_ANSWER = "The server was started but did not respond to the hub in time."
NO_ANSWER_ADVICE = "Start again. If it happens again, contact {contact}."
FOR_ADMIN = "For administrators"
LOG = "Log file"
TRY_LATER = (
    "Try again in a minute; if it still fails, contact {contact}. Servers that are already running are not affected."
)
REFUSED = "Choose something else, or something smaller; if that does not help, contact {contact}."
CONTACT = "your administrator"
"""Whom to ask, unless the site says so."""
ASK = "Please contact {contact}."
LAST_LINES = "Last lines of the log"
DOWNLOAD = "Download"
AGAIN = "Start again with the same choice"
CHOOSE = "Choose something else"
START = "Start a server"
FILLED_IN = "You can review your choice first."


def heading(plain: str, named: str, name: str) -> str:
    """``named`` with the server's name in it, or ``plain`` for the default server."""
    return named.format(name=name) if name else plain


def titled(headline: str, name: str) -> str:
    """``Waiting in line``, or ``Waiting in line: second`` for a named server."""
    return f"{headline}: {name}" if name else headline


def switch_to(profile: str) -> str:
    """The rest of a button's name, for screen readers."""
    return f"to {profile}"


def took(seconds: int | None) -> str:
    """How long a stage took; empty where that is unknown, or less than a second."""
    return TOOK.format(duration=duration(seconds)) if seconds else ""


def lasts(since: str, *, now: float | None = None) -> str:
    """How long a stage has lasted that began at ``since`` (ISO 8601); empty below a second."""
    seconds = (time.time() if now is None else now) - parse_time(since).timestamp()
    return LASTS.format(duration=duration(seconds)) if seconds >= 1 else ""


def job_in(job_id: str, partition: str) -> str:
    """A job and its partition."""
    return f"{job_id}, partition {partition}" if partition else job_id


def job(job_id: str, told: str) -> str:
    """``told`` about that job, as the progress stream says it."""
    return f"Job {job_id}: {told}"


def place(people_ahead: int) -> str:
    """``You are next``, or such as ``2 people ahead of you``."""
    return f"{people(people_ahead)} ahead of you" if people_ahead else "You are next"


def span(seconds: int) -> str:
    """Such as ``1 h 30 min``."""
    return duration(seconds)
