"""The table of starts that courses have asked for."""

from __future__ import annotations

import time

import pytest
from sqlalchemy.exc import IntegrityError

from jupyterhub_gpuspawner.hub.course.participants import RETENTION_SECONDS, CourseStart, CourseStarts, Stage
from tests.fixtures.databases import hub_session

ASKED = {name: CourseStart(name, Stage.ASKED, 1, 1000.0) for name in ("ada", "bob")}


def test_starts_are_written_in_the_place_of_those_before() -> None:
    """Those of other people and of other sessions stay."""
    with hub_session() as session:
        starts = CourseStarts(session)
        starts.keep_all("deep", "monday", ASKED.values())
        starts.keep("deep", "tuesday", ASKED["ada"])
        begun = {name: CourseStart(name, Stage.STARTED, 1, 1000.0, 1100.0) for name in ("ada", "eve")}

        starts.keep_all("deep", "monday", begun.values())
        starts.keep_all("deep", "monday", [])

        assert starts.find("deep", "monday") == {**ASKED, **begun}
        assert starts.find("deep", "tuesday") == {"ada": ASKED["ada"]}


def test_the_sessions_in_which_starts_are_under_way() -> None:
    """The hub looks at no others."""
    with hub_session() as session:
        starts = CourseStarts(session)
        starts.keep_all("deep", "monday", ASKED.values())
        starts.keep("deep", "tuesday", CourseStart("ada", Stage.STARTED))
        starts.keep("maths", "-", ASKED["bob"])

        assert starts.under_way() == {("deep", "monday"), ("maths", "-")}


def test_of_starts_that_cannot_all_be_written_none_is() -> None:
    """Those of before are still there, and the session can be used."""
    with hub_session() as session:
        starts = CourseStarts(session)
        starts.keep_all("deep", "monday", ASKED.values())
        without_time = CourseStart("eve", Stage.LEFT, asked_at=None)  # type: ignore[arg-type]

        with pytest.raises(IntegrityError):
            starts.keep_all("deep", "monday", [CourseStart("ada", Stage.VISITED), without_time])

        assert starts.find("deep", "monday") == ASKED


def test_old_starts_are_forgotten() -> None:
    """They name people, and are kept for thirty days."""
    with hub_session() as session:
        now, starts = time.time(), CourseStarts(session)
        new = CourseStart("ben", Stage.STARTED, asked_at=now)
        starts.keep_all(
            "deep", "monday", [CourseStart("ada", Stage.STARTED, asked_at=now - RETENTION_SECONDS - 60), new]
        )
        starts.forget_old()

        assert starts.find("deep", "monday") == {"ben": new}
