"""Who takes a course and who teaches it."""

from __future__ import annotations

from typing import Any

import pytest

from jupyterhub_gpuspawner.courses.course import parse_course
from jupyterhub_gpuspawner.hub.courses.enrolment import Enrolment, HubPeople, enrolment

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

    assert enrolment(course, listed, hub) == found
