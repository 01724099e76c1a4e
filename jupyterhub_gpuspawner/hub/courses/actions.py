"""What an instructor does for the people of a course: start, stop, message and extend.

The same functions serve the REST API, the course's page and the start ahead of a session. Each answers for every person
with an :class:`Outcome`; nothing is raised for one person's sake.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.courses.course import Course


class Result(str, Enum):
    """What became of an action for one person."""

    DONE = "done"
    """It was done, or is under way."""
    UNCHANGED = "unchanged"
    """There was nothing to do: the server runs already, or none does."""
    REFUSED = "refused"
    """It cannot be done; the sentence says why."""


@dataclass(frozen=True)
class Outcome:
    """What became of an action for one person."""

    user: str
    result: Result
    sentence: str = ""
    """For the instructor."""


def user_options(course: Course) -> dict[str, Any]:
    """The user options with which a participant's server of this course is started."""
    return {"profile": course.profile.slug, **course.profile.options}
