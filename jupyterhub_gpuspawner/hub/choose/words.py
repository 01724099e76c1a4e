"""The page on which a server is chosen."""

from __future__ import annotations

from jupyterhub_gpuspawner.slurm.estimate import Availability, Chance
from jupyterhub_gpuspawner.words import duration, sentence

__all__ = ["sentence"]

CANNOT_START = "{profile} cannot be started: {reason}."
NO_LONGER = "Your last choice is no longer available. {reason} The form shows the defaults instead."
FROM_A_LINK = "This link has filled in the form. Nothing has been started yet: review your choice, then click Start."
NO_PROFILE = "No profile is available to you at the moment. Please contact {contact}."
ALL_CLOSED = "None of these can be started at the moment."
STARTS_NOW = "starts now"
ENDS = "If you start it now, it ends at {time}."
LATER = "later"
FULL = "full"
CANNOT = "cannot start"
NOT_KNOWN = "not known"
NO_GPU = "no GPU"
CLOSED = "not for you"
NOT_YET_OPEN = "not yet"
CANNOT_CHOOSE = " ({reason})"
"""After the name of a choice that the others exclude."""
AT_THE_FIELD = "this choice cannot start"
STAY = {
    (True, True): "cores and memory stay the same",
    (True, False): "the cores stay the same",
    (False, True): "the memory stays the same",
}
"""At a number of GPUs: whether the profile's cores and its memory are not changed by any option."""
NOT_YET = "Not yet: it is available from {time}."
MANY_STARTS = (
    "Many servers are being started at the moment, so yours was not. Your choice is kept below: click Start again in "
    "{time}."
)
MANY_SERVERS = (
    "This hub has as many servers as it is allowed to have, including those that wait for free resources. Try again "
    "in a few minutes; if it goes on like this, contact your administrator."
)
OR_ALSO = "Also accept, whichever comes first"
ALL_MEMORY = "all of a node's memory"
PER_NODE = " on each"
"""After what a job on several nodes gets on each of them."""
NO_LIMIT = "no time limit"
CHECKED = "checked {age} ago"
RECENT = 5
"""Seconds for which the age of what is shown is not mentioned."""


def age(seconds: float) -> str:
    """How long ago Slurm was asked; empty where that is a moment ago."""
    return "" if seconds < RECENT else CHECKED.format(age=duration(seconds))


def start(availability: Availability, now: float) -> str:
    """When a job would start, in a word or a span; empty where nothing is known."""
    if availability.chance is Chance.LATER:
        full = availability.room is not None and not availability.room.free
        return availability.estimate.span(now) or (FULL if full else LATER)
    return {Chance.NOW: STARTS_NOW, Chance.NEVER: CANNOT}.get(availability.chance, "")


def start_of_choice(availability: Availability | None, now: float) -> str:
    """The same after the name of one choice of an option."""
    words = start(availability, now) if availability is not None else ""
    return f": {words}" if words else ""
