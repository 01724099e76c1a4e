"""The page of a server that starts, and of one that did not, or has ended.

``{time}`` stays in a sentence: the page puts the time there, in the zone of who reads it.
"""

from __future__ import annotations

from jupyterhub_gpuspawner.hub.pages.text import _

STARTING = _("Your server is starting")
STARTING_NAMED = _("Server {name} is starting")
CHECKING = _("Your server is being looked up")
CHECKING_WHY = _("The hub was restarted and asks what has become of it. This takes a moment.")
ASKING = _("Asking Slurm for a job.")
SUBMITTED_AS = _("Submitted as job {job_id}.")
SERVER_STARTING = _("The server is starting.")
STAGES = {
    "submitted": _("Submitted"),
    "queued": _("In the queue"),
    "allocated": _("Node allocated"),
    "starting": _("Server starting"),
    "ready": _("Ready"),
}
STAGE_STATES = {"done": _("done"), "current": _("now"), "coming": _("to come")}
HOW_FAR = _("How far it is")
IN_LINE = _("Place in line")
EXPECTED = _("Expected start")
CLOSE = _("You can close this page: the start goes on, and the hub's home page leads back here.")
NOTIFY = _("Tell me when it is ready")
NOTIFY_ON = _("You will be told when it is ready")
NOTIFY_DENIED = _("Your browser allows no notices from here. The title of this tab will tell.")
READY = _("Your server is ready")
STOP = _("Stop this server")
STOPPING = _("The server is being stopped.")
STOPPED = _("The server is stopped.")
NOT_STOPPED = _("The server could not be stopped. This page looks again in a moment.")
NO_SCRIPT = _("This page looks for news every 10 seconds. The hub's home page can stop the server.")
HUB_AWAY = _("The hub does not answer at the moment, your server goes on. This page tries again by itself.")

SILENT = _("Slurm does not answer at the moment, your server goes on.")
HIDDEN = _("The hub cannot see your job in Slurm. Your server appears here once it runs.")
UNCONFIRMED = _("The hub cannot see this job in Slurm. These details come from the node's own report.")
CLOSED = _("Your server has ended: nothing answers at its address any more.")
CLOSED_ADVICE = _("Start again. The last lines of its log may say why it ended.")
LAST_ANSWER = _("Slurm's last answer was at {time}. {told}")
NO_ANSWER_YET = _("Slurm has not answered this hub yet.")

AT_THE_LATEST = _("Slurm expects it to start at {time} at the latest, unless more urgent jobs come.")
NOT_BEFORE = _("It starts at {time}, not before.")
OVERDUE = _("Slurm expected it to start at {time}; it should not be long.")
NO_ESTIMATE = _("Slurm has no estimate yet.")

STOP_HEADING = _("Your server is stopping")
STOP_HEADING_NAMED = _("Server {name} is stopping")
STOP_WHY = _("Slurm ends its job and frees its GPUs. This takes some seconds; then you can start a new one.")
LOOK_AGAIN = _("Look again")

FAILED = _("Your server did not start")
FAILED_NAMED = _("Server {name} did not start")
ENDED = _("Your last server has ended")
ENDED_NAMED = _("Server {name} has ended")
NOT_RUNNING = _("Your server is not running")
NOT_RUNNING_NAMED = _("Server {name} is not running")
NOTHING_RUNS = _("Nothing of yours is running here, and nothing is kept waiting.")
IMPLICIT = _("It is started again in a few seconds, without a click.")
ENDED_AT = _("It ended at {time}.")
TIME_LIMIT = _("The job reached its time limit of {time}.")
UNKNOWN_FAILURE = _("The hub does not know why. Its log may tell your administrator.")
ELSEWHERE = _("This page is open in more than {limit} tabs. This tab now checks for news from time to time.")
NO_ANSWER = _("The server was started, but did not answer the hub in time.")
NO_ANSWER_ADVICE = _("Start again. If it happens again, tell your administrator.")
WHAT_TO_DO = _("What you can do")
FOR_ADMIN = _("For your administrator: {hint}")
LOG = _("Its log")
TRY_LATER = _("Try again in a minute. Servers that run already go on.")
REFUSED = _("Choose something else, or something smaller: Slurm would refuse the same choice again.")
ASK = _("Tell your administrator: this cannot be mended from here.")
LAST_LINES = _("The last lines of its log")
AGAIN = _("Start again with the same choice")
CHOOSE = _("Choose something else")
START = _("Start a server")
FILLED_IN = _("The form comes filled in; nothing starts before you have looked it over.")


def heading(plain: str, named: str, name: str) -> str:
    """``named`` with the server's name in it, or ``plain`` for the default server."""
    return named.format(name=name) if name else plain


def job(job_id: str, told: str) -> str:
    """``told`` of that job, as the progress stream says it."""
    return _("Job {job_id}: {told}").format(job_id=job_id, told=told)


def place(position: int, of: int, partition: str) -> str:
    """Such as ``3rd of 7 waiting in partition gpu``."""
    return _("{ordinal} of {of} waiting in partition {partition}").format(
        ordinal=ordinal(position), of=of, partition=partition
    )


def ordinal(number: int) -> str:
    """``1st``, ``2nd``, ``11th``; a translation may have a form of its own for ``{number}th``."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return {
        "st": _("{number}st"),
        "nd": _("{number}nd"),
        "rd": _("{number}rd"),
        "th": _("{number}th"),
    }[ending].format(number=number)


def span(seconds: int) -> str:
    """Such as ``1 h 30 min``; to the minute."""
    hours, minutes = divmod(max(1, round(seconds / 60)), 60)
    return " ".join(
        [_("{hours} h").format(hours=hours)] * bool(hours)
        + [_("{minutes} min").format(minutes=minutes)] * bool(minutes)
    )
