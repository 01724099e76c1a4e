"""What a hub checks its courses against."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from jupyterhub_gpuspawner.extensions.courses.book import CourseBook, HubPeople
from jupyterhub_gpuspawner.extensions.courses.check import CourseInputs, plans, plans_beside
from jupyterhub_gpuspawner.extensions.courses.evening import inputs_of
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles
from tests.extensions.courses.test_course_card import settings_with
from tests.snapshots import cluster, node

PROFILES = parse_profiles(
    [
        {
            "display_name": "K80",
            "slug": "k80",
            "allow": {"groups": ["course-ada", "course-deep"]},
            "slurm": {"partition": "gpu", "gpus": 1, "cpus": 2, "memory": "4G", "time": "24:00:00"},
        }
    ]
)
COURSE = """
name: Deep learning
instructors: grace
roster: {names: [T1, t2, root, kim], groups: [missing]}
profile: k80
zone: UTC
sessions: [{date: 2030-03-04, from: 10:00, to: 12:00}]
"""
HUB = HubPeople({}, admins={"root"}, user_name=str.lower, pattern="t[0-9]")


async def book_of(folder: Path, hub: HubPeople, **courses: str) -> CourseBook:
    """The courses of a hub, by slug."""
    for slug, text in courses.items():
        (folder / f"{slug}.yaml").write_text(text)

    def people_of(named: Collection[str]) -> HubPeople:
        return replace(hub, groups={group: members for group, members in hub.groups.items() if group in named})

    book = CourseBook(str(folder), people_of)
    await book.refresh()
    return book


async def inputs_for(slug: str, book: CourseBook) -> CourseInputs:
    """What a course of the hub is checked against."""

    async def recent(_max_age: float) -> Any:
        return cluster(node("g0", "gpu:k80:4"))

    connection = SimpleNamespace(view=SimpleNamespace(recent=recent), silent=False)
    spawner: Any = SimpleNamespace(
        connections=lambda: {"": connection}, offered=lambda: PROFILES, defaults=lambda: None
    )
    course = book.get(slug)
    assert course is not None
    inputs = await inputs_of(course, spawner, settings_with(book))
    assert inputs is not None
    return inputs


async def test_a_session_is_planned_for_those_whom_the_hub_has_enrolled(tmp_path: Path) -> None:
    """By their names as users, without whom it leaves out; of the course itself, and of those at the same time."""
    book = await book_of(tmp_path, HUB, ada=COURSE, deep=COURSE)
    ada, deep = book.courses()
    inputs = await inputs_for("deep", book)

    own = plans(deep.file, inputs)
    planned = (*own, *plans_beside(own, [ada.file], inputs))

    assert [(plan.course, plan.people, dict(plan.excluded), plan.remarks) for plan in planned] == [
        ("deep", ("t1", "t2"), {}, ()),
        ("ada", ("t1", "t2"), {}, ()),
    ]


async def test_a_course_may_be_taught_by_a_group_alone(tmp_path: Path) -> None:
    """Its members can open the page, so nothing is wrong."""
    taught = COURSE.replace("instructors: grace", "instructors: {groups: [teachers]}")
    book = await book_of(tmp_path, replace(HUB, groups={"teachers": {"grace"}}), deep=taught)
    (deep,) = book.courses()
    (plan,) = plans(deep.file, await inputs_for("deep", book))

    assert plan.remarks == ()
