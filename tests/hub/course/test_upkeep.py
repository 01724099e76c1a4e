"""The update of the courses' groups and roles, without a hub."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jupyterhub import orm
from jupyterhub.auth import Authenticator
from sqlalchemy.orm import Session

from jupyterhub_gpuspawner.courses.folder import COURSES_LIMIT
from jupyterhub_gpuspawner.hub.course.actions import ServiceAccount
from jupyterhub_gpuspawner.hub.course.ahead import update_courses
from jupyterhub_gpuspawner.hub.course.book import CourseBook, HubPeople
from jupyterhub_gpuspawner.hub.course.rights import MARK, files_of_courses
from tests.fixtures.databases import hub_session


@pytest.fixture
def session() -> Iterator[Session]:
    """A hub's database with the group of a course."""
    with hub_session() as session:
        session.add(orm.Group(name="course-deep", properties={MARK: "deep"}))
        session.commit()
        yield session


def update(session: Session, courses_dir: Path) -> dict[str, str]:
    """The first update of a hub that has just been started: the title of each course."""
    app: Any = SimpleNamespace(db=session, authenticator=Authenticator())
    book = CourseBook(str(courses_dir), lambda _groups: HubPeople({}), owners=files_of_courses(session))
    asyncio.run(update_courses(app, book, ServiceAccount(app, 20)))
    return {course.slug: course.title for course in book.courses()}


def test_the_group_of_a_course_that_is_gone_is_deleted(session: Session, tmp_path: Path) -> None:
    """The folder is there, and the course's file is not."""
    update(session, tmp_path)

    assert orm.Group.find(session, "course-deep") is None


def test_groups_stay_while_the_folder_cannot_be_read(session: Session, tmp_path: Path) -> None:
    """As when a hub starts before its file system is mounted: the courses are unknown, and not gone."""
    update(session, tmp_path / "not-mounted")

    assert orm.Group.find(session, "course-deep") is not None


COURSE = """
name: {title}
instructors: {{groups: staff}}
roster: {{groups: physics}}
profile: light
sessions: [{{date: 2999-03-04, from: 9:00, to: 17:00}}]
"""


@pytest.mark.parametrize("intruder", ["deep.yaml", "deep.yml"])
def test_a_course_stays_that_of_its_file_when_the_hub_starts_again(
    intruder: str, session: Session, tmp_path: Path
) -> None:
    """Also if its instructor has edited it since, so that the other file is older."""
    own = tmp_path / ("deep.yml" if intruder == "deep.yaml" else "deep.yaml")
    own.write_text(COURSE.format(title="Mine"))
    first = update(session, tmp_path)
    (tmp_path / intruder).write_text(COURSE.format(title="Theirs"))
    own.write_text(COURSE.format(title="Mine, edited"))

    assert (first, update(session, tmp_path)) == ({"deep": "Mine"}, {"deep": "Mine, edited"})


def test_courses_beyond_the_limit_displace_none_when_the_hub_starts_again(session: Session, tmp_path: Path) -> None:
    """Those that have a group come first, whatever the others are called."""
    (tmp_path / "zoology.yaml").write_text(COURSE.format(title="Zoology"))
    update(session, tmp_path)
    for number in range(COURSES_LIMIT):
        (tmp_path / f"a{number}.yaml").write_text("x")
    (tmp_path / "zoology.yaml").write_text(COURSE.format(title="Zoology II"))
    courses = update(session, tmp_path)

    assert (len(courses), courses["zoology"]) == (COURSES_LIMIT, "Zoology II")
