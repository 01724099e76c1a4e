"""Groups and roles of courses in JupyterHub's database."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from jupyterhub import orm, roles
from jupyterhub.auth import Authenticator
from sqlalchemy import event
from sqlalchemy.orm import Session
from traitlets import TraitError

from jupyterhub_gpuspawner.extensions.courses.actions import ServiceAccount
from jupyterhub_gpuspawner.extensions.courses.ahead import update_courses
from jupyterhub_gpuspawner.extensions.courses.book import (
    CROWDED,
    NAMES_LIMIT,
    CourseBook,
    HubCourse,
    HubPeople,
    RoleStatus,
    enrolled,
    too_many,
    with_people,
)
from jupyterhub_gpuspawner.extensions.courses.course import parse_course
from jupyterhub_gpuspawner.extensions.courses.folder import COURSES_LIMIT, CourseFile
from jupyterhub_gpuspawner.extensions.courses.rights import (
    MARK,
    GPUCourses,
    define_scope,
    files_of_courses,
    instructor_scopes,
    on_changes,
    people_of_hub,
    update_rights,
)
from tests.fixtures.databases import hub_session

pytestmark = pytest.mark.oldest


@pytest.fixture
def app() -> Iterator[Any]:
    """What is needed of a hub: a database with the default roles, and an authenticator that lets everybody in."""
    define_scope()
    with hub_session() as session:
        for role in roles.get_default_roles():
            roles.create_role(session, role)
        yield SimpleNamespace(db=session, authenticator=Authenticator(allow_all=True))


def course(slug: str, people: Sequence[str], instructors: Sequence[str] = ("carl",)) -> HubCourse:
    """A course with these people, resolved already."""
    session = {"date": "2026-03-02", "from": "9:00", "to": "12:00"}
    file = {"name": slug, "profile": "light", "sessions": [session], "roster": list(people), "instructors": "carl"}
    return HubCourse(slug, CourseFile(slug, parse_course(file, str)), tuple(people), tuple(instructors))


def add(app: Any, *names: str, admin: bool = False) -> None:
    """Users who have signed in before."""
    for name in names:
        user = orm.User(name=name, admin=admin)
        app.db.add(user)
        roles.assign_default_roles(app.db, entity=user)
    app.db.commit()


def members(app: Any) -> dict[str, list[str]]:
    """All groups with their users."""
    return {group.name: sorted(user.name for user in group.users) for group in app.db.query(orm.Group)}


def holders(app: Any, role: str) -> list[str]:
    """The users with a role; empty where there is none."""
    row = orm.Role.find(app.db, role)
    return sorted(user.name for user in row.users) if row is not None else []


async def test_group_and_role_follow_the_course(app: Any) -> None:
    """People and instructors come and go; without the course there is nothing."""
    add(app, "carl", "dora", "bob", "eve")
    bob, eve = (orm.User.find(app.db, name) for name in ("bob", "eve"))  # as the hub has them in memory
    before = [[group.name for group in user.groups] for user in (bob, eve)]

    assert await update_rights(app, [course("deep", ["ada", "bob"])]) == {"deep": RoleStatus()}
    assert (members(app), holders(app, "course-deep-instructors")) == ({"course-deep": ["ada", "bob"]}, ["carl"])
    assert orm.Role.find(app.db, "course-deep-instructors").scopes == instructor_scopes("course-deep")
    await update_rights(app, [course("deep", ["bob", "eve"], ["dora", "stranger"])])
    assert (members(app), holders(app, "course-deep-instructors")) == ({"course-deep": ["bob", "eve"]}, ["dora"])
    after = [[group.name for group in user.groups] for user in (bob, eve)]
    assert (before, after) == ([[], []], [["course-deep"], ["course-deep"]])
    eve.groups = []
    app.db.commit()
    await update_rights(app, [course("deep", ["bob", "eve"], ["dora", "stranger"])])
    assert [group.name for group in eve.groups] == ["course-deep"]
    await update_rights(app, [])
    assert (members(app), orm.Role.find(app.db, "course-deep-instructors")) == ({}, None)


def test_the_scopes_of_an_instructor() -> None:
    """They are all filtered by the group; none starts or stops servers, of which a person may have others."""
    of_all = {"list:users", "read:users:name", "read:users:activity", "read:servers", "custom:gpuspawner:teach"}

    assert set(instructor_scopes("course-deep")) == {f"{scope}!group=course-deep" for scope in of_all}


@pytest.mark.parametrize("kind", ["group", "role"])
async def test_a_group_or_role_of_somebody_elses_is_not_taken_over(kind: str, app: Any) -> None:
    """The course gets neither, what was there is as it was, and a sentence says what an administrator can do."""
    add(app, "carl", "zoe")
    if kind == "group":
        app.db.add(orm.Group(name="course-deep", users=[orm.User.find(app.db, "zoe")]))
        app.db.commit()
    else:
        roles.create_role(app.db, {"name": "course-deep-instructors", "scopes": ["self"]})
    before = members(app)

    standing = (await update_rights(app, [course("deep", ["ada"])]))["deep"]

    assert standing.refused.startswith(f"The hub has a {kind} course-deep")
    assert (members(app), holders(app, "course-deep-instructors")) == (before, [])


LETS_IN = {
    "everybody may sign in": ({"allow_all": True, "allow_existing_users": True}, True),
    "those who are known do not get in by that": ({"allowed_users": {"zoe"}, "allow_existing_users": False}, True),
    "those who are known get in": ({"allowed_users": {"zoe"}}, False),
    "they may sign in by name": ({"allowed_users": {"ada"}}, True),
    "they are kept out": ({"allow_all": True, "blocked_users": {"ada"}}, False),
}


@pytest.mark.parametrize(("settings", "added"), LETS_IN.values(), ids=LETS_IN.keys())
async def test_only_those_are_added_whom_that_does_not_let_in(settings: dict[str, Any], added: bool, app: Any) -> None:
    """Where JupyterHub admits every user that it knows, a roster must not make users."""
    app.authenticator = Authenticator(**settings)

    standing = (await update_rights(app, [course("deep", ["ada"])]))["deep"]

    assert standing == RoleStatus(unknown=() if added else ("ada",))
    assert members(app) == {"course-deep": ["ada"] if added else []}
    assert "ada" not in app.authenticator.allowed_users or settings["allowed_users"] == {"ada"}


async def test_a_roster_cannot_take_over_the_people_of_another_course(app: Any) -> None:
    """Groups that were made for courses do not count; administrators are known by flag, role and group."""
    add(app, "carl", "ada", "by_role", "by_group")
    add(app, "root", admin=True)
    roles.grant_role(app.db, orm.User.find(app.db, "by_role"), rolename="admin")
    boss = orm.Group(name="boss", users=[orm.User.find(app.db, "by_group")])
    app.db.add(boss)
    app.db.commit()
    roles.grant_role(app.db, boss, rolename="admin")
    await update_rights(app, [course("deep", ["ada"])])

    hub = people_of_hub(app, GPUCourses(people="[a-z_]+"), {"course-deep", "boss", "nobody"})

    assert hub.groups == {"boss": {"by_group"}}
    assert hub.admins == {"root", "by_role", "by_group"}
    assert (hub.user_name("ADA"), hub.user_name("")) == ("ada", None)
    assert hub.pattern == "[a-z_]+"


def test_a_course_without_rights_has_no_people(app: Any) -> None:
    """So nobody can act on them, and the instructor reads why."""
    hub = people_of_hub(app, GPUCourses(), ())

    refused = with_people(course("deep", ["ada"]).file, hub, RoleStatus(refused="Somebody else's group."))
    missing = with_people(course("deep", ["ada"]).file, hub, RoleStatus(unknown=("ada",)))

    assert (refused.people, refused.instructors, refused.faults) == ((), (), ("Somebody else's group.",))
    assert (missing.people, missing.unknown) == (("ada",), ("ada",))
    assert missing.faults[0].startswith("JupyterHub does not know these people yet")


async def test_a_login_that_sets_groups_or_roles_anew_is_noticed(app: Any) -> None:
    """In the process of the hub, whichever way JupyterHub sets them."""
    add(app, "ada")
    await update_rights(app, [course("deep", ["ada"])])
    changed = asyncio.Event()
    on_changes(changed.set)
    user = orm.User.find(app.db, "ada")

    for change in (
        lambda: setattr(user, "groups", []),
        lambda: roles.strip_role(app.db, user, rolename="user"),
        lambda: add(app, "new"),
    ):
        changed.clear()
        change()
        assert changed.is_set()


async def test_instructors_whom_nobody_knows_cost_no_query_each(app: Any) -> None:
    """They are looked for again at each look, in the hub's loop."""

    async def statements(instructors: Sequence[str]) -> int:
        run: list[str] = []
        event.listen(app.db.bind, "before_cursor_execute", lambda *arguments: run.append(arguments[2]))
        await update_rights(app, [course("deep", ["ben"], instructors)])
        return len(run)

    add(app, "ben", "carl")
    await statements(["carl"])

    assert await statements(["carl", *(f"g{number}" for number in range(100))]) == await statements(["carl"])


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


@pytest.mark.parametrize(("file", "listed", "hub", "enrolment"), CASES.values(), ids=CASES.keys())
def test_people_are_resolved_against_the_hub(
    file: dict[str, Any], listed: tuple[str, ...], hub: HubPeople, enrolment: Enrolment
) -> None:
    """Whoever may not be on a course is left out, and a sentence says so."""
    session = {"date": "2026-03-02", "from": "9:00", "to": "12:00"}
    course = parse_course({"name": "C", "profile": "light", "sessions": [session], **file}, str)

    hub_course = enrolled(course, CourseFile("c", course, listed=listed), hub)
    assert (
        Enrolment(hub_course.people, hub_course.instructors, hub_course.instructor_groups, hub_course.faults)
        == enrolment
    )


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

    assert [(course.slug, course.course is None, course.people, course.faults) for course in book.courses()] == [
        ("large", True, (), (CROWDED,)),
        ("small", False, ("ada",), ()),
    ]


@pytest.fixture
def session() -> Iterator[Session]:
    """A hub's database with the group of a course."""
    define_scope()
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


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "no expression": ({"people": "train["}, "GPUCourses.people: 'train[' is not a regular expression: "),
    "no pause": ({"every": 0}, "every: 0 must be from 0.1 to 60 seconds."),
    "no start": ({"at_once": 0}, "at_once: 0 must be a whole number from 1 to 500."),
}


@pytest.mark.parametrize(("settings", "fault"), FAULTS.values(), ids=FAULTS.keys())
def test_a_wrong_setting_is_refused(settings: dict[str, Any], fault: str) -> None:
    """The hub does not start with it; the message names the setting and its bounds."""
    with pytest.raises(TraitError) as raised:
        GPUCourses(**settings)
    assert str(raised.value).startswith(fault)
