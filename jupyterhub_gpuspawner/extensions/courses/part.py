"""What the card of a server and the document of its session say of the course that it is for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jupyterhub_gpuspawner.extensions.courses.offers import occasion
from jupyterhub_gpuspawner.hub.extension import Place, ServerPart
from jupyterhub_gpuspawner.hub.spawners.server import Server
from jupyterhub_gpuspawner.profiles.offered import Occasion
from jupyterhub_gpuspawner.slurm.estimate import utc


@dataclass(frozen=True)
class CourseNow:
    """The course of a server, as its user sees it."""

    title: str
    session_ends: float | None = None
    """When the session ends that is under way or open, in seconds since the epoch; None where none is."""


def course_now(course: Occasion, now: float) -> CourseNow:
    """What a server's user sees of the course at ``now``, in seconds since the epoch."""
    session = next((session for session in course.sessions if now < session.end), None)
    is_open = session is not None and min(session.opens, session.start) <= now
    return CourseNow(course.title, session.end if session is not None and is_open else None)


def parts_of(spawner: Any, server: Server) -> Iterator[ServerPart]:
    """The part of any server: it says over REST that it is for no course, and is then not on the card."""
    of_course = occasion(spawner.user.settings, server.profile)
    now = course_now(of_course, time.time()) if of_course is not None else None
    yield ServerPart(
        "course",
        Place.HEADING,
        "course_card.html" if now is not None else "",
        now,
        repr(now),
        document={
            "course": now.title if now is not None else "",
            "session_ends_at": utc(now.session_ends) if now is not None and now.session_ends is not None else None,
        },
    )
