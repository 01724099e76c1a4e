"""What instructors read of an action in their course, and what a card says of a server that nobody opened.

``{time}`` stays in a sentence for a card: the page puts the time there, in the reader's time zone.
"""

from __future__ import annotations

from jupyterhub_gpuspawner.words import counted

GPU = "GPU"

STARTS = "The server is being started."
RUNS = "A server is running or starting already."
STOPS = "The server is being stopped."
NOT_STARTED_YET = "The start that was to come is cancelled."
STOPS_ALREADY = "The server is being stopped already."
NOTHING_RUNS = "No server is running."
NOT_STARTED = "The server did not start."
TOLD = "The message is shown."
NOT_IN_COURSE = "{user} is not on the roster of this course."
OTHER_SERVER = "{user} has another server now: look at the course again."
NOT_KNOWN = "JupyterHub does not know {user} yet: they must sign in once."
EXTENDS = "The server is being given more time."
EXTENDS_ALREADY = "The server is being given more time already."
EXTENDED = "The server has {time} more."
EMPTY_MESSAGE = "A message must have a text."
FROM = "Message from {sender}"
NO_COURSE = "There is no such course."
UNVISITED = "Nobody opened this server after {course} had begun, so it was stopped at {{time}}{released}."


def unvisited(course: str, *, job_id: str, gpus: int) -> str:
    """What the card says of a server that was started ahead and that nobody opened."""
    released = f"; job {job_id} {f'released {counted(gpus, GPU)}' if gpus else 'was cancelled'}" if job_id else ""
    return UNVISITED.format(course=course.replace("{", "(").replace("}", ")"), released=released)
