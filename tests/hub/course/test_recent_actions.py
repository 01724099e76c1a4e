"""What instructors did on a course's page is kept in the hub's database."""

from __future__ import annotations

import time

from jupyterhub_gpuspawner.hub.course.page import RecentActions
from jupyterhub_gpuspawner.hub.course.participants import RETENTION_SECONDS
from tests.fixtures.databases import session_of


def test_the_last_actions_of_a_course_outlive_the_hub() -> None:
    """Newest first, also of those done at one time; what is a month old goes, and other courses have their own."""
    now = time.time()
    with session_of() as session:
        actions = RecentActions(session)
        actions.keep("deep", ["ada is starting 3 servers."], now - RETENTION_SECONDS - 60)
        actions.keep("deep", ["ada stopped 2 servers.", "1 server cannot be stopped."], now - 60)
        actions.keep("maths", ["carl sent a message to 1 person."], now - 30)
        actions.keep("deep", ["ada sent a message to 2 people."], now)

        again = RecentActions(session)

        assert again.latest("deep", 6) == (
            ("ada sent a message to 2 people.", now),
            ("1 server cannot be stopped.", now - 60),
            ("ada stopped 2 servers.", now - 60),
        )
        assert again.latest("deep", 1) == (("ada sent a message to 2 people.", now),)
        assert again.latest("other", 6) == ()
