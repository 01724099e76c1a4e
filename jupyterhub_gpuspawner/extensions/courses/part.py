"""What the card of a server and the document of its session say of the course that it is for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from jupyterhub_gpuspawner.extensions.courses.offers import occasion
from jupyterhub_gpuspawner.hub.extensions import Place, ServerPart
from jupyterhub_gpuspawner.hub.spawners.server import Server
from jupyterhub_gpuspawner.slurm.estimate import utc


def parts_of(spawner: Any, server: Server) -> Iterator[ServerPart]:
    """The part of any server: it says over REST that it is for no course, and is then not on the card."""
    of_course = occasion(spawner.user.settings, server.profile)
    now = of_course.at(time.time()) if of_course is not None else None
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
