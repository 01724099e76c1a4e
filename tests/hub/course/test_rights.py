"""Groups and roles of courses in JupyterHub's database."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from jupyterhub import orm, roles
from jupyterhub.auth import Authenticator
from sqlalchemy import event

from jupyterhub_gpuspawner.courses.course import parse_course
from jupyterhub_gpuspawner.courses.folder import CourseFile
from jupyterhub_gpuspawner.hub.course.book import HubCourse, RoleStatus, with_people
from jupyterhub_gpuspawner.hub.course.rights import (
    GPUCourses,
    instructor_scopes,
    on_changes,
    people_of_hub,
    update_rights,
)
from jupyterhub_gpuspawner.hub.jupyterhub_compat import START_SERVERS
from tests.fixtures.databases import hub_session

pytestmark = pytest.mark.oldest


@pytest.fixture
def app() -> Iterator[Any]:
    """What is needed of a hub: a database with the default roles, and an authenticator that lets everybody in."""
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
    found = orm.Role.find(app.db, role)
    return sorted(user.name for user in found.users) if found is not None else []


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
    """They are all filtered by the group; without start:servers in JupyterHub, servers stands for it."""
    of_all = {"list:users", "read:users:name", "read:users:activity", "read:servers", "delete:servers", START_SERVERS}

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

    found = people_of_hub(app, GPUCourses(people="[a-z_]+"), {"course-deep", "boss", "nobody"})

    assert found.groups == {"boss": {"by_group"}}
    assert found.admins == {"root", "by_role", "by_group"}
    assert (found.user_name("ADA"), found.user_name("")) == ("ada", None)
    assert found.pattern == "[a-z_]+"


def test_a_course_without_rights_has_no_people(app: Any) -> None:
    """So nobody can act on them, and the instructor reads why."""
    hub = people_of_hub(app, GPUCourses(), ())

    found = with_people(course("deep", ["ada"]).file, hub, RoleStatus(refused="Somebody else's group."))
    missing = with_people(course("deep", ["ada"]).file, hub, RoleStatus(unknown=("ada",)))

    assert (found.people, found.instructors, found.faults) == ((), (), ("Somebody else's group.",))
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
