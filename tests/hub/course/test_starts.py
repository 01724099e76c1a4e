"""The tables of starts that courses have asked for, and of what instructors did."""

from __future__ import annotations

import time

import pytest
from sqlalchemy.exc import IntegrityError

from jupyterhub_gpuspawner.hub.course.page import keep_actions, latest_actions
from jupyterhub_gpuspawner.hub.course.participants import RETENTION_SECONDS, CourseStart, CourseStarts, Stage
from tests.fixtures.databases import hub_session

ASKED = {name: CourseStart(name, Stage.ASKED, 1, 1000.0) for name in ("ada", "bob")}


def test_starts_are_written_in_the_place_of_those_before() -> None:
    """Those of other people and of other sessions stay."""
    with hub_session() as session:
        starts = CourseStarts(session)
        starts.keep("deep", "monday", *ASKED.values())
        starts.keep("deep", "tuesday", ASKED["ada"])
        begun = {name: CourseStart(name, Stage.STARTED, 1, 1000.0, 1100.0) for name in ("ada", "eve")}

        starts.keep("deep", "monday", *begun.values())
        starts.keep("deep", "monday")

        assert starts.find("deep", "monday") == {**ASKED, **begun}
        assert starts.find("deep", "tuesday") == {"ada": ASKED["ada"]}


def test_of_starts_that_cannot_all_be_written_none_is() -> None:
    """Those of before are still there, and the session can be used."""
    with hub_session() as session:
        starts = CourseStarts(session)
        starts.keep("deep", "monday", *ASKED.values())
        without_time = CourseStart("eve", Stage.LEFT, asked_at=None)  # type: ignore[arg-type]

        with pytest.raises(IntegrityError):
            starts.keep("deep", "monday", CourseStart("ada", Stage.VISITED), without_time)

        assert starts.find("deep", "monday") == ASKED


def test_old_starts_are_forgotten() -> None:
    """They name people, and are kept for thirty days."""
    with hub_session() as session:
        now, starts = time.time(), CourseStarts(session)
        new = CourseStart("ben", Stage.STARTED, asked_at=now)
        starts.keep("deep", "monday", CourseStart("ada", Stage.STARTED, asked_at=now - RETENTION_SECONDS - 60), new)
        starts.forget_old()

        assert starts.find("deep", "monday") == {"ben": new}


def test_the_last_actions_of_a_course_outlive_the_hub() -> None:
    """Newest first, also of those done at one time; what is a month old goes, and other courses have their own."""
    now = time.time()
    with hub_session() as session:
        keep_actions(session, "deep", ["ada is starting 3 servers."], now - RETENTION_SECONDS - 60)
        keep_actions(session, "deep", ["ada stopped 2 servers.", "1 server cannot be stopped."], now - 60)
        keep_actions(session, "maths", ["carl sent a message to 1 person."], now - 30)
        keep_actions(session, "deep", ["ada sent a message to 2 people."], now)

        assert latest_actions(session, "deep") == (
            ("ada sent a message to 2 people.", now),
            ("1 server cannot be stopped.", now - 60),
            ("ada stopped 2 servers.", now - 60),
        )
        assert latest_actions(session, "other") == ()
