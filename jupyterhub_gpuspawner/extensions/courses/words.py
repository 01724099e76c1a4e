"""The instructors' pages: the list of courses, and the page of one with its participants.

``{time}`` stays in a sentence: the page puts the time there, in the reader's time zone.
"""

from __future__ import annotations

from collections.abc import Sequence

from jupyterhub_gpuspawner.words import counted, people

_REASONS = 3
"""Different reasons of refusals that are told, at most."""

NO_SUCH_COURSE = "There is no such course, or you do not teach it."

ELSEWHERE = "Their own server, which is not of this course, is in the way: only they can stop it."
TOO_LATE = "That is after the session."
START_FAILED = "The server failed to start."
STUCK = "Waiting does not help."
QUEUED = "It is started when its turn comes."
STOP_QUEUED = "It is stopped when its turn comes."
SUBMITTING = "Submitting the job"
NEXT = "next in line"
EXPECTED = "expected start: {words}"
ENDED_AT = "It ended at {time}."

NO_ADDITIONS = "People cannot be added to this course on its page."
NO_NAME = "Enter a user name."
ADD_STRANGE = "{user} cannot be the name of a user of this hub."
ADD_ADMIN = "{user} is an administrator of the hub; administrators are not on courses."
ADD_OUTSIDE = "{user} may not be on a course of this hub. Its administrators decide who may."
ADD_UNKNOWN = "JupyterHub does not know {user}: check the name, or ask them to sign in once."
ADD_TOO_MANY = "At most {limit} people can be added here: add others to the course's file."
ALREADY_ON = "{user} is on the course already."

ACTIONS = {"start": "Start", "message": "Message", "extend": "Extend", "stop": "Stop"}
TEXT_MISSING = "Write a message."
MINUTES_WRONG = "Enter a whole number of minutes from 1 to {limit}."
NO_ACTION = "There is no such action."


def unvisited(title: str) -> str:
    """Why the server of a course was stopped, with ``{time}``; what became of its job follows."""
    return f"Nobody opened this server after {title} had begun, so it was stopped at {{time}}"


def ahead(others: int, position: int) -> str:
    """A participant's place in the queue; nobody is ahead of themselves."""
    if others:
        return f"{people(others)} ahead"
    return NEXT if position <= 1 else "their own job is ahead"


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


def refused(action: str, number: int, sentences: Sequence[str]) -> str:
    """For whom an action could not be done; ``sentences`` are the different reasons."""
    shown = f"{' '.join(sentences[:_REASONS])}{' …' if len(sentences) > _REASONS else ''}"
    return f"{ACTIONS[action]} was refused for {people(number)}: {shown}"


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
