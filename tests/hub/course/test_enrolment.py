"""Who takes a course and who teaches it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from jupyterhub_gpuspawner.courses.course import parse_course
from jupyterhub_gpuspawner.courses.folder import CourseFile
from jupyterhub_gpuspawner.hub.course.book import (
    CROWDED,
    NAMES_LIMIT,
    CourseBook,
    HubPeople,
    enrolled,
    too_many,
)

FILE = """
name: A course
instructors: carl
roster: {roster}
profile: light
sessions: [{{date: 2999-03-04, from: 9:00, to: 17:00}}]
"""


class Enrolment(NamedTuple):
    """The people of a course, and what is wrong."""

    people: tuple[str, ...] = ()
    instructors: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


HUB = HubPeople(
    groups={"physics": ["ada", "root", "zoe"], "staff": ["carl"], "empty": []},
    admins={"root"},
    user_name=lambda name: None if name.startswith(".") else name.lower(),
)
CASES: dict[str, tuple[dict[str, Any], tuple[str, ...], HubPeople, Enrolment]] = {
    "names, a range, a group and a file": (
        {"roster": {"names": ["Bob", "t[1-2]"], "groups": ["physics"]}, "instructors": "carl"},
        ("eve", "ada"),
        HubPeople(HUB.groups, (), HUB.user_name),
        Enrolment(("bob", "t1", "t2", "ada", "root", "zoe", "eve"), ("carl",)),
    ),
    "administrators, named and in a group": (
        {"roster": {"names": ["root", "bob"], "groups": ["physics"]}, "instructors": "carl"},
        (),
        HUB,
        Enrolment(
            ("bob", "ada", "zoe"),
            ("carl",),
            faults=("The roster names administrators of the hub, who are left out: root.",),
        ),
    ),
    "names beyond the admin's pattern": (
        {"roster": "[bob, t1, t2, t3, t4, t5, t6]".strip("[]").split(", "), "instructors": "carl"},
        (),
        HubPeople(HUB.groups, (), HUB.user_name, pattern="[a-z]+"),
        Enrolment(
            ("bob",),
            ("carl",),
            faults=("The roster names people whom this hub does not allow on courses: t1, t2, t3, t4, t5 and 1 more.",),
        ),
    ),
    "a pattern is for the whole name": (
        {"roster": ["bob", "bobby"], "instructors": "carl"},
        (),
        HubPeople(HUB.groups, (), HUB.user_name, pattern="bob"),
        Enrolment(
            ("bob",), ("carl",), faults=("The roster names people whom this hub does not allow on courses: bobby.",)
        ),
    ),
    "people outside the admin's groups": (
        {"roster": ["ada", "bob"], "instructors": "carl"},
        (),
        HubPeople(HUB.groups, (), HUB.user_name, within=("physics", "missing")),
        Enrolment(
            ("ada",), ("carl",), faults=("The roster names people whom this hub does not allow on courses: bob.",)
        ),
    ),
    "groups of instructors, and unknown ones": (
        {"roster": {"names": ["bob"], "groups": ["nobody"]}, "instructors": {"groups": ["staff", "elsewhere"]}},
        (),
        HUB,
        Enrolment(
            ("bob",),
            (),
            ("staff",),
            faults=(
                "The roster names groups that JupyterHub does not have: nobody.",
                "The instructors include groups that JupyterHub does not have: elsewhere.",
            ),
        ),
    ),
    "names that no user can have": (
        {"roster": [".bob", "eve"], "instructors": ["carl", ".dan"]},
        (),
        HUB,
        Enrolment(
            ("eve",),
            ("carl",),
            faults=(
                "The roster names people who cannot be users of this hub: .bob.",
                "The instructors include names that cannot be users of this hub: .dan.",
            ),
        ),
    ),
}


@pytest.mark.parametrize(("file", "listed", "hub", "found"), CASES.values(), ids=CASES.keys())
def test_people_are_resolved_against_the_hub(
    file: dict[str, Any], listed: tuple[str, ...], hub: HubPeople, found: Enrolment
) -> None:
    """Whoever may not be on a course is left out, and a sentence says so."""
    session = {"date": "2026-03-02", "from": "9:00", "to": "12:00"}
    course = parse_course({"name": "C", "profile": "light", "sessions": [session], **file}, str)

    seen = enrolled(course, CourseFile("c", course, listed=listed), hub)
    assert Enrolment(seen.people, seen.instructors, seen.instructor_groups, seen.faults) == found


def course_file(slug: str, roster: dict[str, Any]) -> CourseFile:
    """The file of a course with this roster and one instructor."""
    session = {"date": "2026-03-02", "from": "9:00", "to": "12:00"}
    fields = {"name": slug, "profile": "light", "sessions": [session], "roster": roster, "instructors": "carl"}
    return CourseFile(slug, parse_course(fields, str))


def test_the_names_of_all_courses_are_limited_and_the_first_courses_stay() -> None:
    """Members of groups count for each course, since each of them is looked up for each; smaller courses still fit."""
    groups = {"all": [f"u{number}" for number in range(NAMES_LIMIT - 10)]}
    first = course_file("first", {"names": ["t[1-9]"]})
    large, small = course_file("large", {"groups": ["all"]}), course_file("small", {"names": ["ada"]})

    assert too_many([first, large, small], groups) == {"large"}
    assert too_many([large, first, small], groups) == {"first"}


async def test_a_course_beyond_the_limit_is_left_out_and_its_instructors_read_why(tmp_path: Path) -> None:
    """Its group and role stay as they are, as for a file that has never been good."""
    for slug, roster in (("large", "{groups: all}"), ("small", "[ada]")):
        (tmp_path / f"{slug}.yaml").write_text(FILE.format(roster=roster))
    hub = HubPeople({"all": [f"u{number}" for number in range(NAMES_LIMIT)]})
    book = CourseBook(str(tmp_path), lambda _groups: hub)

    await book.refresh(0)

    assert [(each.slug, each.course is None, each.people, each.faults) for each in book.courses()] == [
        ("large", True, (), (CROWDED,)),
        ("small", False, ("ada",), ()),
    ]
