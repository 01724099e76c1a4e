"""People whom instructors add to a course on its page."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jupyterhub import orm, roles
from jupyterhub.auth import Authenticator
from sqlalchemy.orm import Session

from jupyterhub_gpuspawner.extensions.courses.additions import (
    ADDED_LIMIT,
    added_people,
    drop_additions,
    drop_additions_of_others,
    keep_additions,
    may_sign_in,
    refusal_of,
)
from jupyterhub_gpuspawner.extensions.courses.book import (
    CourseBook,
    HubCourse,
    HubPeople,
    as_users,
)
from jupyterhub_gpuspawner.extensions.courses.folder import CourseFile
from jupyterhub_gpuspawner.extensions.courses.offers import occasion
from jupyterhub_gpuspawner.extensions.courses.part import CourseNow, course_now
from jupyterhub_gpuspawner.extensions.courses.rights import GPUCourses, define_scope, people_of_hub, update_rights
from tests.extensions.courses.test_course_card import settings_with
from tests.fixtures.databases import hub_session

FILE = """
name: A course
instructors: carl
roster: [ada]
profile: light
sessions: [{date: 2999-03-04, from: 9:00, to: 17:00}]
"""


@pytest.fixture
def session() -> Iterator[Session]:
    """A hub's database with the default roles."""
    define_scope()
    with hub_session() as session:
        for role in roles.get_default_roles():
            roles.create_role(session, role)
        yield session


def book_of(session: Session, folder: Path, settings: GPUCourses) -> tuple[Any, CourseBook]:
    """A hub that lets everybody in, and its courses."""
    app = SimpleNamespace(db=session, authenticator=Authenticator(allow_all=True))
    return app, CourseBook(str(folder), partial(people_of_hub, app, settings))


async def test_whoever_is_added_is_on_the_course_at_once_and_until_removed(session: Session, tmp_path: Path) -> None:
    """Without the file being read again; their group follows, and a restarted hub knows them."""
    (tmp_path / "deep.yaml").write_text(FILE)
    app, book = book_of(session, tmp_path, GPUCourses())
    await book.refresh(0)
    enrolments = []

    def record_enrolment() -> None:
        (course,) = book.courses()
        enrolments.append((course.people, course.added, course.file.listed))

    keep_additions(session, "deep", ["zoe"], by="carl")
    record_enrolment()
    book.people_changed()
    record_enrolment()
    await update_rights(app, book.courses())
    group = orm.Group.find(session, "course-deep")
    assert sorted(user.name for user in group.users) == ["ada", "zoe"]
    drop_additions(session, "deep", ["zoe"])
    book.people_changed()
    record_enrolment()

    assert enrolments == [(("ada",), (), ()), (("ada", "zoe"), ("zoe",), ("zoe",)), (("ada",), (), ())]


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"people": "a.*"}, ("The roster names people whom this hub does not allow on courses: zoe.",)),
        ({"groups": ["staff"]}, ("The roster names people whom this hub does not allow on courses: ada, zoe.",)),
        ({"add_people": False}, ()),
    ],
)
async def test_the_admins_bounds_hold_for_those_who_were_added_before(
    settings: dict[str, Any], fault: tuple[str, ...], session: Session, tmp_path: Path
) -> None:
    """A bound may be set later."""
    (tmp_path / "deep.yaml").write_text(FILE)
    _app, book = book_of(session, tmp_path, GPUCourses(**settings))
    keep_additions(session, "deep", ["zoe"], by="carl")
    await book.refresh(0)

    (course,) = book.courses()
    assert (set(course.people) - {"ada"}, course.added, course.faults) == (set(), (), fault)


def test_a_later_course_of_the_same_name_does_not_get_the_people_of_one_that_is_gone(session: Session) -> None:
    """They are forgotten once the course is missing at two looks; one whose file was replaced meanwhile keeps them."""
    for course in ("deep", "gone"):
        keep_additions(session, course, ["zoe", "kim"], by="carl")

    missed = drop_additions_of_others(session, [], ())
    first = missed, set(added_people(session))
    missed = drop_additions_of_others(session, ["deep"], missed)
    second = missed, set(added_people(session))
    third = drop_additions_of_others(session, [], missed), set(added_people(session))

    assert (first, second, third) == (({"deep", "gone"}, {"deep", "gone"}), (set(), {"deep"}), ({"deep"}, {"deep"}))


COURSE = HubCourse("deep", CourseFile("deep"), takes_additions=True)
HUB = HubPeople({"staff": {"zoe"}}, admins=("root",))
REFUSALS: dict[str, tuple[HubCourse, str, HubPeople, bool, str]] = {
    "nothing": (COURSE, "zoe", HUB, True, ""),
    "the admin does not want it": (
        HubCourse("deep", CourseFile("deep")),
        "zoe",
        HUB,
        True,
        "People cannot be added to this course on its page.",
    ),
    "an administrator": (
        COURSE,
        "root",
        HUB,
        True,
        "root is an administrator of the hub; administrators are not on courses.",
    ),
    "outside the pattern": (
        COURSE,
        "zoe",
        HubPeople({}, pattern="train.*"),
        True,
        "zoe may not be on a course of this hub. Its administrators decide who may.",
    ),
    "outside the groups": (
        COURSE,
        "kim",
        HubPeople({"staff": {"zoe"}}, within=("staff",)),
        True,
        "kim may not be on a course of this hub. Its administrators decide who may.",
    ),
    "nobody whom the hub would let in": (
        COURSE,
        "zeo",
        HUB,
        False,
        "JupyterHub does not know zeo: check the name, or ask them to sign in once.",
    ),
    "too many": (
        HubCourse("deep", CourseFile("deep"), added=("x",) * ADDED_LIMIT, takes_additions=True),
        "zoe",
        HUB,
        True,
        "At most 200 people can be added here: add others to the course's file.",
    ),
}


@pytest.mark.parametrize(("course", "name", "hub", "allowed", "refusal"), REFUSALS.values(), ids=REFUSALS.keys())
def test_why_somebody_cannot_be_added(
    course: HubCourse, name: str, hub: HubPeople, allowed: bool, refusal: str
) -> None:
    """The instructor reads the reason, and what can be done."""
    assert refusal_of(name, course, hub, may_sign_in=allowed) == refusal


def test_no_more_can_be_added_at_once_than_one_after_the_other() -> None:
    """The last one for whom there is room is added."""
    course = HubCourse("deep", CourseFile("deep"), added=("x",) * (ADDED_LIMIT - 2), takes_additions=True)

    refusals = [refusal_of("zoe", course, HUB, may_sign_in=True, number=number) for number in (2, 3)]

    assert refusals == ["", "At most 200 people can be added here: add others to the course's file."]


@pytest.mark.parametrize(
    ("settings", "allowed"),
    [
        ({"allow_all": True}, {"ada", "zoe"}),
        ({"allowed_users": {"zoe"}}, {"ada", "zoe"}),
        ({"allow_existing_users": True}, {"ada"}),
        ({"allow_all": True, "blocked_users": {"ada"}}, {"zoe"}),
    ],
)
def test_only_who_may_sign_in_can_be_added(settings: dict[str, Any], allowed: set[str], session: Session) -> None:
    """Ada has signed in before, and zoe has not."""
    session.add(orm.User(name="ada"))
    session.commit()
    authenticator = Authenticator(**settings)

    assert {name for name in ("ada", "zoe") if may_sign_in(session, authenticator, name)} == allowed


def test_several_names_may_be_typed() -> None:
    """With commas or spaces; what cannot be a user's name is told apart."""
    hub = HubPeople({}, user_name=lambda name: None if name.startswith(".") else name.lower())

    assert as_users(["Zoe", "kim", ".x", "zoe"], hub) == (("zoe", "kim"), (".x",))


@pytest.mark.parametrize(
    ("hour", "session_ends"),
    [(7, None), (8, 12), (10, 12), (12, None)],
    ids=["before it", "when servers are started ahead", "in the session", "after it"],
)
async def test_the_course_and_the_session_of_a_server(hour: int, session_ends: int | None, tmp_path: Path) -> None:
    """Of a course's profile alone."""
    (tmp_path / "deep.yaml").write_text(
        FILE.replace("2999-03-04, from: 9:00, to: 17:00", "2026-03-04, from: 9:00, to: 12:00")
        + "zone: UTC\nstart_ahead: 1h\n"
    )
    book = CourseBook(str(tmp_path), lambda _groups: HubPeople({}))
    await book.refresh(0)

    def at(hour: int) -> float:
        return datetime(2026, 3, 4, hour, tzinfo=timezone.utc).timestamp()

    deep, *others = (occasion(settings_with(book), slug) for slug in ("course-deep", "course-x", "light"))
    assert deep is not None
    assert course_now(deep, at(hour)) == CourseNow("A course", at(session_ends) if session_ends else None)
    assert others == [None, None]
