"""The update of the courses' groups and roles, without a hub."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jupyterhub import orm
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from jupyterhub_gpuspawner.hub.courses.book import CourseBook
from jupyterhub_gpuspawner.hub.courses.enrolment import HubPeople
from jupyterhub_gpuspawner.hub.courses.rights import MARK
from jupyterhub_gpuspawner.hub.courses.service_account import ServiceAccount
from jupyterhub_gpuspawner.hub.courses.starts import KEPT, CourseStart, CourseStarts, Stage
from jupyterhub_gpuspawner.hub.courses.upkeep import CourseUpkeep


@pytest.fixture
def session() -> Iterator[Session]:
    """A hub's database with the group of a course."""
    engine = create_engine("sqlite://")
    orm.Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(orm.Group(name="course-deep", properties={MARK: "deep"}))
        session.commit()
        yield session
    engine.dispose()


def update(session: Session, courses_dir: Path) -> None:
    """The first update of a hub that has just been started."""
    app: Any = SimpleNamespace(db=session)
    directory: Any = SimpleNamespace(people=lambda _groups: HubPeople({}))
    book = CourseBook(str(courses_dir), directory)
    asyncio.run(CourseUpkeep(app, book, ServiceAccount(app)).update())


def test_the_group_of_a_course_that_is_gone_is_deleted(session: Session, tmp_path: Path) -> None:
    """The folder is there, and the course's file is not."""
    update(session, tmp_path)

    assert orm.Group.find(session, "course-deep") is None


def test_groups_stay_while_the_folder_cannot_be_read(session: Session, tmp_path: Path) -> None:
    """As when a hub starts before its file system is mounted: the courses are unknown, and not gone."""
    update(session, tmp_path / "not-mounted")

    assert orm.Group.find(session, "course-deep") is not None


def test_old_starts_are_forgotten(session: Session, tmp_path: Path) -> None:
    """They name people, and are kept for thirty days."""
    now, starts = time.time(), CourseStarts(session)
    new = CourseStart("ben", Stage.STARTED, asked_at=now)
    for start in (CourseStart("ada", Stage.STARTED, asked_at=now - KEPT - 60), new):
        starts.keep("deep", "2026-03-02", start)

    update(session, tmp_path)

    assert starts.find("deep", "2026-03-02") == {"ben": new}
