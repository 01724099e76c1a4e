"""The rights of instructors: for each course a JupyterHub group of its people and a role of its instructors.

The role's scopes are filtered by the group, so JupyterHub itself checks every request. Group and role carry a mark;
those of the same name without it belong to somebody else and are not touched.

JupyterHub deletes roles that are not in its configuration whenever it starts; they are made again when the hub has
started. An authenticator with ``manage_groups`` or ``manage_roles`` sets the groups and roles of a user anew at each
login; :func:`on_changes` tells of that, so that a course's people are back in its group at once.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from jupyterhub import orm
from jupyterhub.app import JupyterHub
from jupyterhub.handlers.base import BaseHandler
from jupyterhub.roles import create_role, delete_role, grant_role, strip_role
from sqlalchemy import delete, event, insert, select
from sqlalchemy.orm import Session
from traitlets import List, TraitError, Unicode, validate
from traitlets.config import Configurable
from traitlets.log import get_logger

from jupyterhub_gpuspawner.courses.course_profile import group_name
from jupyterhub_gpuspawner.hub.course.book import HubCourse, HubPeople, Standing, role_name
from jupyterhub_gpuspawner.hub.jupyterhub_compat import START_SERVERS, add_user
from jupyterhub_gpuspawner.hub.site.slurm_settings import Count, Seconds

# The admin's bounds for courses: ``c.GPUCourses``.


class GPUCourses(Configurable):
    """Who may be on the roster of a course, and how fast the servers of a course are started."""

    people = Unicode(
        "",
        config=True,
        help="""Regular expression that the whole user name of everybody on a roster must match, such as
        `train[0-9]{3}`. Empty: any name. Administrators of the hub are never on a roster.""",
    )
    groups: List[str] = List(
        Unicode(),
        config=True,
        help="""JupyterHub groups. If there are any, only their members may be on a roster.""",
    )
    every = Seconds(
        1.0,
        low=0.1,
        high=60.0,
        config=True,
        help="""Seconds between two starts where the hub starts the servers of a course, and between two stops. Each
        course has its own turns, and stops do not wait for starts.""",
    )
    at_once = Count(
        20,
        low=1,
        high=500,
        config=True,
        help="""How many starts for courses the hub has under way at the same time, and how many stops.""",
    )

    @validate("people")
    def _valid_people(self, proposal: Any) -> str:
        try:
            re.compile(proposal.value)
        except re.error as error:
            raise TraitError(f"GPUCourses.people: {proposal.value!r} is not a regular expression: {error}.") from None
        return str(proposal.value)


Value = TypeVar("Value", str, int)
_BATCH_SIZE = 200
"""Names in one query; databases limit the number of parameters."""
MARK = "gpuspawner-course"
"""The property of a group that was made here; its value is the course's slug."""
FILE = "gpuspawner-course-file"
"""A property of such a group: the name of the course's file, so that a restarted hub knows whose slug it is."""
_OWN = "Instructors of a course (made by jupyterhub-gpuspawner)"
"""The description of a role that was made here."""


def instructor_scopes(group: str) -> list[str]:
    """What instructors may do with the users in this group: see them and their servers, start and stop these."""
    of_group = ("list:users", "read:users:name", "read:users:activity", "read:servers", START_SERVERS, "delete:servers")
    return [f"{scope}!group={group}" for scope in dict.fromkeys(of_group)]


def _batches(values: Collection[Value]) -> Iterator[list[Value]]:
    """The values in order, for queries."""
    ordered = sorted(values)
    for at in range(0, len(ordered), _BATCH_SIZE):
        yield ordered[at : at + _BATCH_SIZE]


READING = ("list:users", "read:servers")
STARTING = ("list:users", START_SERVERS)
STOPPING = ("list:users", "delete:servers")


def teaches(handler: BaseHandler, slug: str, scopes: Sequence[str] = (*STARTING, "delete:servers")) -> bool:
    """Whether the request comes with these scopes for a course's people: by default all that its instructors have.

    This holds for its instructors, and for administrators; a token needs the scopes, too.
    """
    group = group_name(slug)
    return all(handler.has_scope(f"{scope}!group={group}") for scope in scopes)


def files_of_courses(session: Session) -> dict[str, str]:
    """The file of each course that has a group, the oldest group first; raises SQLAlchemyError."""
    groups = session.query(orm.Group).filter(orm.Group.name.like("course-%")).order_by(orm.Group.id)
    properties = [group.properties or {} for group in groups]
    return {str(file[MARK]): str(file[FILE]) for file in properties if MARK in file and FILE in file}


class HubDirectory:
    """The users and groups in a hub's database."""

    def __init__(self, app: JupyterHub, settings: GPUCourses) -> None:
        self._app = app
        self._settings = settings

    def people(self, groups: Collection[str]) -> HubPeople:
        """See :class:`.book.Directory`."""
        return HubPeople(
            groups=self._members({*groups, *self._settings.groups}),
            admins=self._admins(),
            user_name=self._user_name,
            pattern=self._settings.people,
            within=self._settings.groups,
        )

    def _members(self, names: Collection[str]) -> dict[str, set[str]]:
        """These groups with their members, without those that were made for courses."""
        db = self._app.db
        members: dict[str, set[str]] = {}
        for some in _batches(names):
            groups = db.query(orm.Group).filter(orm.Group.name.in_(some)).all()
            members.update((group.name, set()) for group in groups if MARK not in (group.properties or {}))
        for some in _batches(members):
            rows = select(orm.Group.name, orm.User.name).join(orm.Group.users).where(orm.Group.name.in_(some))
            for group, user in db.execute(rows):
                members[group].add(user)
        return members

    def _admins(self) -> set[str]:
        """Users who are administrators, or have the role ``admin`` themselves or through a group."""
        db = self._app.db
        flagged = select(orm.User.name).where(orm.User.admin)
        by_role = select(orm.User.name).join(orm.User.roles).where(orm.Role.name == "admin")
        by_group = select(orm.User.name).join(orm.User.groups).join(orm.Group.roles).where(orm.Role.name == "admin")
        named: Iterable[str] = self._app.authenticator.admin_users
        return {*named, *(name for rows in (flagged, by_role, by_group) for name in db.scalars(rows))}

    def _user_name(self, name: str) -> str | None:
        authenticator = self._app.authenticator
        user: str = authenticator.normalize_username(name)
        return user if authenticator.validate_username(user) else None


class CourseRights:
    """Keeps groups and roles in step with the courses, through JupyterHub's session."""

    def __init__(self, app: JupyterHub) -> None:
        self._app = app

    async def update(self, courses: Iterable[HubCourse]) -> dict[str, Standing]:
        """Make, change and delete groups and roles; return how each course stands, by its slug.

        A course whose file has never been good keeps what it has. Raises SQLAlchemyError.
        """
        standings: dict[str, Standing] = {}
        for course in courses:
            refused = self._in_use(course)
            missing = await self._update(course) if course.course is not None and not refused else ()
            standings[course.slug] = Standing(refused, missing)
            await asyncio.sleep(0)
        self._remove({slug for slug, standing in standings.items() if not standing.refused})
        return standings

    def _in_use(self, course: HubCourse) -> str:
        """Why the names of group and role are somebody else's; empty where they are not."""
        group = orm.Group.find(self._app.db, course.group)
        if group is not None and (group.properties or {}).get(MARK) != course.slug:
            return (
                f"The hub has a group {course.group} that was not made for this course, so nobody can teach it: "
                "an administrator must rename or delete that group, or rename the course's file."
            )
        role = orm.Role.find(self._app.db, course.role)
        if role is not None and role.description != _OWN:
            return (
                f"The hub has a role {course.role} that was not made for this course, so nobody can teach it: "
                "an administrator must rename or delete that role, or rename the course's file."
            )
        return ""

    async def _update(self, course: HubCourse) -> tuple[str, ...]:
        """Bring the course's group and role up to date; return the people whom the hub does not know."""
        db = self._app.db
        group = orm.Group.find(db, course.group)
        if group is None:
            group = orm.Group(name=course.group, properties={})
            db.add(group)
        properties = {**(group.properties or {}), MARK: course.slug, FILE: course.file.name}
        if group.properties != properties:
            group.properties = properties
            db.commit()
        by_name = self._existing(course.people)
        for name in course.people:
            if name not in by_name and self.may_add(name):
                add_user(self._app, name)
                by_name.add(name)
                await asyncio.sleep(0)  # each is written by itself, and a course may have hundreds
        self._fill(group.id, by_name)
        role = orm.Role.find(db, course.role)
        scopes = instructor_scopes(course.group)
        if role is None or role.scopes != scopes:
            role = create_role(db, {"name": course.role, "description": _OWN, "scopes": scopes})
        self._grant(role, orm.User, self._existing(course.instructors))
        self._grant(role, orm.Group, course.instructor_groups)
        return tuple(name for name in course.people if name not in by_name)

    def _existing(self, names: Collection[str]) -> set[str]:
        """Those of ``names`` that are users of the hub."""
        return {
            name
            for some in _batches(names)
            for name in self._app.db.scalars(select(orm.User.name).where(orm.User.name.in_(some)))
        }

    def _fill(self, group_id: int, names: Collection[str]) -> None:
        """Have exactly the users of these names in a group; writes the table itself, as a course may have hundreds."""
        db, table = self._app.db, orm.user_group_map
        rows = select(orm.User.name, orm.User.id).join(orm.User.groups).where(orm.Group.id == group_id)
        members: dict[str, int] = dict(db.execute(rows).all())
        gone = [user_id for name, user_id in members.items() if name not in names]
        new = set(names) - set(members)
        for some in _batches(gone):
            db.execute(delete(table).where(table.c.group_id == group_id, table.c.user_id.in_(some)))
        for names_of_new in _batches(new):
            ids = db.scalars(select(orm.User.id).where(orm.User.name.in_(names_of_new))).all()
            db.execute(insert(table), [{"group_id": group_id, "user_id": user_id} for user_id in ids])
        if gone or new:
            db.commit()
            # JupyterHub keeps what it has read beyond a commit
            for row in list(db.identity_map.values()):
                if isinstance(row, orm.User):
                    db.expire(row, ["groups"])
                elif isinstance(row, orm.Group):
                    db.expire(row, ["users"])

    def may_add(self, name: str) -> bool:
        """Whether a user who has never signed in may be added: not where that alone would let them in.

        With ``allow_existing_users`` JupyterHub admits every user in its database.
        """
        authenticator = self._app.authenticator
        if name in authenticator.blocked_users:
            return False
        return bool(
            authenticator.allow_all or name in authenticator.allowed_users or not authenticator.allow_existing_users
        )

    def _grant(self, role: Any, kind: Any, names: Collection[str]) -> None:
        """Have exactly the users, or groups, of these names hold the role; those that do not exist are left out."""
        db = self._app.db
        holders = set(db.scalars(select(kind.name).join(kind.roles).where(orm.Role.id == role.id)))
        for name in sorted(set(names) - holders):
            entity = kind.find(db, name)
            if entity is not None:
                grant_role(db, entity, role)
        for name in sorted(holders - set(names)):
            strip_role(db, kind.find(db, name), role)

    def _remove(self, remaining: Collection[str]) -> None:
        """Delete the groups and roles that were made here for courses which are gone."""
        db = self._app.db
        for role in db.query(orm.Role).filter(orm.Role.description == _OWN).all():
            if role.name not in map(role_name, remaining):
                delete_role(db, role.name)
        for group in db.query(orm.Group).filter(orm.Group.name.like("course-%")).all():
            slug = (group.properties or {}).get(MARK)
            if slug is not None and group.name == group_name(slug) and slug not in remaining:
                get_logger().info("The group %s is deleted with its course", group.name)
                db.delete(group)
                db.commit()


def on_changes(act: Callable[[], None]) -> None:
    """Call ``act`` whenever the groups or roles of a user change, or a user is added, in this process."""

    def changed(*_: object) -> None:
        act()

    for relation in (orm.User.groups, orm.User.roles):
        event.listen(relation, "append", changed)
        event.listen(relation, "remove", changed)
    event.listen(orm.User, "after_insert", changed)
