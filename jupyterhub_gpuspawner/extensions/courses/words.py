"""The instructors' pages: the list of courses, and the page of one with its participants.

``{time}`` stays in a sentence: the page puts the time there, in the reader's time zone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jupyterhub_gpuspawner.extensions.courses.report import SessionReport, fit_in_words
from jupyterhub_gpuspawner.words import counted, people

_REASONS = 3
"""Different reasons of refusals that are told, at most."""

NO_SUCH_COURSE = "There is no such course, or you do not teach it."

STATES = {
    "running": "running",
    "starting": "starting",
    "waiting": "waiting in line",
    "stopping": "stopping",
    "failed": "did not start",
    "ended": "ended",
    "over": "session over",
    "absent": "no server",
    "elsewhere": "another server",
}
"""On a tile."""
_TOTALS = {**STATES, "waiting": "waiting", "absent": "without a server", "elsewhere": "with another server"}
ELSEWHERE = "Their own server, which is not of this course, is in the way: only they can stop it."
TOO_LATE = "That is after the session."
STOPS_OF_COURSE = "Other servers of these people go on."
START_FAILED = "The server failed to start."
STUCK = "Waiting does not help."
QUEUED = "It is started when its turn comes."
STOP_QUEUED = "It is stopped when its turn comes."
SUBMITTING = "Submitting the job"
NEXT = "next in line"
EXPECTED = "expected start: {words}"
ENDED_AT = "It ended at {time}."

SESSION_NOW = "Session now, until {time}"
SESSION_NEXT = "Next session: {time}"
UNTIL = "until {time}"
NO_SESSION = "There is no further session."
AHEAD = "Servers are started from {time} on."
LAST_VALID = "Until they are corrected, the last version without a mistake is used."
NEVER_VALID = "There is no earlier version without a mistake, so the course is not offered."
NO_ADDITIONS = "People cannot be added to this course on its page."
NO_NAME = "Enter a user name."
ADD_STRANGE = "{user} cannot be the name of a user of this hub."
ADD_ADMIN = "{user} is an administrator of the hub; administrators are not on courses."
ADD_OUTSIDE = "{user} may not be on a course of this hub. Its administrators decide who may."
ADD_UNKNOWN = "JupyterHub does not know {user}: check the name, or ask them to sign in once."
ADD_TOO_MANY = "At most {limit} people can be added here: add others to the course's file."
ALREADY_ON = "{user} is on the course already."
SEATS_UNKNOWN = "How many more servers fit is not known at the moment."

ACTIONS = {"start": "Start", "message": "Message", "extend": "Extend", "stop": "Stop"}
NOBODY_SELECTED = "You have selected nobody. Select participants by their boxes, or use the buttons for everybody."
NOBODY_CONCERNED = "There is nothing to do: this concerns none of the participants."
TEXT_MISSING = "Write a message."
MINUTES_WRONG = "Enter a whole number of minutes from 1 to {limit}."
NO_ACTION = "There is no such action."
NOT_CHECKED = "The seats of the next session have not been counted yet."
CHECK_FAILED = "The seats of the next session could not be counted. The hub's log says why."
CHECKING = "The seats of the next session are being counted."


def unvisited(title: str) -> str:
    """Why the server of a course was stopped, with ``{time}``; what became of its job follows."""
    return f"Nobody opened this server after {title} had begun, so it was stopped at {{time}}"


def totals(counts: Mapping[str, int]) -> str:
    """``31 running, 4 starting, 2 waiting, 3 did not start, 10 without a server``."""
    return ", ".join(f"{number:,} {_TOTALS[state]}" for state, number in counts.items())


def on_course(number: int) -> str:
    """In the place of the states of servers, before there are any."""
    return f"{people(number)} on the course"


EVERYBODY = "Everybody has a server."
EVERYBODY_SOON = "Everybody has a server, or one that starts or waits in line."


def seats_left(fit: int, missing: int) -> str:
    """How many more servers fit in the session, beside the number of people who have none."""
    if fit >= missing:
        return f"By estimate there is room for all who have no server ({counted(missing, 'more server')})."
    if not fit:
        return f"By estimate there is no room for more servers; {people(missing)} {_has(missing)} none."
    return f"By estimate there is room for {counted(fit, 'more server')}; {people(missing)} {_has(missing)} none."


def _has(number: int) -> str:
    return "has" if number == 1 else "have"


def too_late(number: int) -> str:
    """People who wait until after the session."""
    get = "gets" if number == 1 else "get"
    return f"By estimate {number:,} of those who wait {get} no server before the session ends."


def stuck(number: int) -> str:
    """People who wait for what does not come by itself."""
    return f"{people(number)} {'waits' if number == 1 else 'wait'} for something that does not pass by itself."


def elsewhere(seats: Mapping[str, int]) -> str:
    """The seats that other profiles of the course have for those who wait too long, by the profile's name."""
    each = ", ".join(f"{number:,} with profile {name}" for name, number in seats.items())
    number = counted(sum(seats.values()), "more server")
    return f"There is room for {number} now ({each}): stop the servers of those who wait, and start them again."


def checked(report: SessionReport) -> str:
    """What the last check of the next session counted; ``{time}`` stands for when that was."""
    return f"Counted {{time}} for the next session: {people(report.wanted)}, {fit_in_words(report)}."


def stage(title: str, node: str) -> str:
    """How far a start is."""
    return f"{title}: {node}" if node else title


def ahead(others: int, position: int) -> str:
    """A participant's place in the queue; nobody is ahead of themselves."""
    if others:
        return f"{people(others)} ahead"
    return NEXT if position <= 1 else "their own job is ahead"


def question(action: str, users: Sequence[str], everybody: bool) -> str:
    """The heading of the page that asks before an action."""
    if not users:
        return ACTIONS[action]
    whom = users[0] if len(users) == 1 else f"{'all ' if everybody else ''}{people(len(users))}"
    return {
        "start": f"Start {'a server' if len(users) == 1 else 'servers'} for {whom}?",
        "stop": f"Stop the {'server' if len(users) == 1 else 'servers'} of {whom}?",
        "message": f"Send a message to {whom}",
        "extend": f"Give {whom} more time",
    }[action]


def confirm(action: str, number: int) -> str:
    """The button that does it."""
    return {
        "start": f"Start {counted(number, 'server')}",
        "stop": f"Stop {counted(number, 'server')}",
        "message": f"Send to {people(number)}",
        "extend": f"Extend {counted(number, 'server')}",
    }[action]


def stops_running(number: int, *, jupyter: bool = True) -> str:
    """What is lost with servers that run; ``jupyter``: all of them are Jupyter's."""
    running = "running kernels" if jupyter else "running processes"
    if number == 1:
        return f"1 server is running: its unsaved work and {running} are lost. Files stay."
    return f"{number:,} servers are running: their unsaved work and {running} are lost. Files stay."


def stops_others(number: int) -> str:
    """What is lost with servers that do not run yet."""
    if number == 1:
        return "1 server is starting or waiting in line: its start is cancelled, and its place given up."
    return f"{number:,} servers are starting or waiting in line: their starts are cancelled, and their places given up."


def left_out(action: str, number: int) -> str:
    """Those among the selected whom an action does not concern."""
    they = "1 of the selected people" if number == 1 else f"{number:,} of the selected people"
    has, is_ = ("has", "is") if number == 1 else ("have", "are")
    why = {"start": "a server, or a start under way,", "extend": "no server that runs"}.get(action, "no server to stop")
    return f"{they} {has} {why} and {is_} left out."


def other_server(number: int) -> str:
    """Those among the selected whose tile was about another server when they were selected."""
    they, have = ("1 of the selected people", "has") if number == 1 else (f"{number:,} of the selected people", "have")
    return f"{they} {have} another server now than when you selected them: look at the course again."


def done(action: str, by: str, count: int) -> str:
    """What an instructor did."""
    if not count:
        return f"{by}: {ACTIONS[action]}. There was nothing to do."
    what = {
        "start": f"is starting {counted(count, 'server')}",
        "stop": f"is stopping {counted(count, 'server')}",
        "message": f"sent a message to {people(count)}",
        "extend": f"gave {counted(count, 'server')} more time",
    }[action]
    return f"{by} {what}."


def added(by: str, users: Sequence[str]) -> str:
    """Whom an instructor added."""
    return f"{by} added {', '.join(users)}."


def removed(by: str, users: Sequence[str]) -> str:
    """Whom an instructor took off the list of those who were added."""
    return f"{by} removed {', '.join(users)}."


def refused(action: str, number: int, sentences: Sequence[str]) -> str:
    """For whom an action could not be done; ``sentences`` are the different reasons."""
    shown = f"{' '.join(sentences[:_REASONS])}{' …' if len(sentences) > _REASONS else ''}"
    return f"{ACTIONS[action]} was refused for {people(number)}: {shown}"


def and_more(number: int) -> str:
    """Names that are not listed."""
    return f"and {number:,} more"


def faults(number: int) -> str:
    """In the list of courses."""
    return f"{counted(number, 'mistake')} in its file"


STARTS = "The server is being started."
RUNS = "A server is running or starting already."
RUNS_ELSEWHERE = (
    "{user} has another server, which is not of this course: they must stop it before the course's can be started."
)
STOPS = "The server is being stopped."
NOT_STARTED_YET = "The start that was to come is cancelled."
STOPS_ALREADY = "The server is being stopped already."
NOTHING_RUNS = "No server is running."
NOT_READY = "The hub has just been started and is not ready for that yet."
NOT_STARTED = "The server did not start."
MESSAGE_SENT = "The message is shown."
NOT_IN_COURSE = "{user} is not on the roster of this course."
OTHER_SERVER = "{user} has another server now: look at the course again."
NOT_SIGNED_IN = "JupyterHub does not know {user} yet: they must sign in once."
EXTENDS = "The server is being given more time."
EXTENDS_ALREADY = "The server is being given more time already."
EXTENDED = "The server has {time} more."
EMPTY_MESSAGE = "A message must have a text."
UNKNOWN_COURSE = "There is no such course."
