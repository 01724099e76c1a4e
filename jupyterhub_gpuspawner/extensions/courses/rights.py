"""The rights of instructors: for each course a JupyterHub group of its people and a role of its instructors.

The role's scopes are filtered by the group, so JupyterHub itself checks every request. They let instructors see the
people and their servers, and use the pages and the REST API of courses, which act on the course's servers alone: no
scope of JupyterHub's for servers knows which of a person's they are. Group and role carry a mark; those of the same
name without it belong to somebody else and are not touched.

JupyterHub deletes roles that are not in its configuration whenever it starts; they are made again when the hub has
started. An authenticator with ``manage_groups`` or ``manage_roles`` sets the groups and roles of a user anew at each
login; :func:`on_changes` tells of that, so that a course's people are back in its group at once.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from jupyterhub import orm
from jupyterhub.app import JupyterHub
from jupyterhub.handlers.base import BaseHandler
from jupyterhub.roles import create_role, delete_role, grant_role, strip_role
from jupyterhub.scopes import define_custom_scopes, has_scope
from sqlalchemy import delete, event, insert, select
from sqlalchemy.orm import Session
from tornado import web
from traitlets import Bool, List, TraitError, Unicode, validate
from traitlets.config import Configurable
from traitlets.log import get_logger

from jupyterhub_gpuspawner.extensions.courses.additions import added_people
from jupyterhub_gpuspawner.extensions.courses.book import HubCourse, HubPeople, RoleStatus, course_book, role_name
from jupyterhub_gpuspawner.extensions.courses.course_profile import group_name
from jupyterhub_gpuspawner.hub.jupyterhub_compat import START_SERVERS, add_user
from jupyterhub_gpuspawner.hub.site.slurm_settings import Count, Seconds
from jupyterhub_gpuspawner.hub.site.tables import in_batches

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
    add_people = Bool(
        default_value=True,
        config=True,
        help="""Whether instructors may add people to their course on its page, within `people` and `groups`: somebody
        whom the hub knows already, or whom the authenticator's `allowed_users` or `allow_all` let in. Instructors can
        start and stop the course's server of everybody on their course, and no other one.""",
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


FRESH = 5.0
"""Seconds after which the courses are read again for a request."""
MARK = "gpuspawner-course"
"""The property of a group that was made here; its value is the course's slug."""
FILE = "gpuspawner-course-file"
"""A property of such a group: the name of the course's file, so that a restarted hub knows whose slug it is."""
SERVICE = "gpuspawner-courses"
"""The hub's own service and its role, with which servers are started and stopped for courses."""
_DELETION = re.compile(f"Deleting role ({SERVICE}|{role_name('[a-z0-9-]+')})")
_OWN = "Instructors of a course (made by jupyterhub-gpuspawner)"
"""The description of a role that was made here."""


TEACH = "custom:gpuspawner:teach"
"""The scope of instructors, filtered by a course's group: to start, stop and extend the servers of that course, and to
show messages. Neither starting nor stopping a server of JupyterHub's own scopes is among theirs."""


def define_scope() -> None:
    """Let JupyterHub know :data:`TEACH`, before it reads roles and tokens."""
    define_custom_scopes({TEACH: {"description": "Start, stop and extend the servers of courses."}})


def instructor_scopes(group: str) -> list[str]:
    """What instructors may do with the users in this group: see them and their servers, and teach."""
    of_group = ("list:users", "read:users:name", "read:users:activity", "read:servers", TEACH)
    return [f"{scope}!group={group}" for scope in of_group]


READING = ("list:users", "read:servers")
STARTING = ("list:users", START_SERVERS)
STOPPING = ("list:users", "delete:servers")


def teaches(parsed_scopes: Mapping[str, Any], slug: str, scopes: Sequence[str] = (*STARTING, *STOPPING)) -> bool:
    """Whether a request with ``parsed_scopes`` may teach a course, or has these for all servers of its people.

    The former holds for its instructors, the latter for administrators; a token needs the scopes, too.
    """

    def of_group(scope: str) -> bool:
        return bool(has_scope(f"{scope}!group={group_name(slug)}", parsed_scopes))

    return of_group(TEACH) or all(map(of_group, scopes))


async def courses_taught(handler: BaseHandler, scopes: Sequence[str] = (*STARTING, *STOPPING)) -> tuple[HubCourse, ...]:
    """The courses for which a request has these scopes, read anew where they are old; none in a hub without courses."""
    book = course_book(handler.settings)
    if book is None:
        return ()
    await book.refresh(FRESH)
    return tuple(course for course in book.courses() if teaches(handler.parsed_scopes, course.slug, scopes))


async def course_taught(
    handler: BaseHandler, slug: str, scopes: Sequence[str] = (*STARTING, *STOPPING), *, unknown: str
) -> HubCourse:
    """The course of this name; raises 404 with the sentence ``unknown`` where the request has not these scopes."""
    match = next((course for course in await courses_taught(handler, scopes) if course.slug == slug), None)
    if match is None:
        raise web.HTTPError(404, "%s", unknown)
    return match


def files_of_courses(session: Session) -> dict[str, str]:
    """The file of each course that has a group, the oldest group first; raises SQLAlchemyError."""
    groups = session.query(orm.Group).filter(orm.Group.name.like("course-%")).order_by(orm.Group.id)
    properties = [group.properties or {} for group in groups]
    return {str(file[MARK]): str(file[FILE]) for file in properties if MARK in file and FILE in file}


def people_of_hub(app: JupyterHub, settings: GPUCourses, groups: Collection[str]) -> HubPeople:
    """The users of a hub, and the members of these groups, from its database; raises SQLAlchemyError."""

    def user_name(name: str) -> str | None:
        user: str = app.authenticator.normalize_username(name)
        return user if app.authenticator.validate_username(user) else None

    return HubPeople(
        groups=_members(app.db, {*groups, *settings.groups}),
        admins={*app.authenticator.admin_users, *_admins(app.db)},
        user_name=user_name,
        pattern=settings.people,
        within=settings.groups,
        added=added_people(app.db) if settings.add_people else {},
        add_people=settings.add_people,
    )


def _members(db: Session, names: Collection[str]) -> dict[str, set[str]]:
    """These groups with their members, without those that were made for courses."""
    members: dict[str, set[str]] = {}
    for some in in_batches(names):
        groups = db.query(orm.Group).filter(orm.Group.name.in_(some)).all()
        members.update((group.name, set()) for group in groups if MARK not in (group.properties or {}))
    for some in in_batches(members):
        rows = select(orm.Group.name, orm.User.name).join(orm.Group.users).where(orm.Group.name.in_(some))
        for group, user in db.execute(rows):
            members[group].add(user)
    return members


def _admins(db: Session) -> Iterator[str]:
    """Users who are administrators, or have the role ``admin`` themselves or through a group."""
    users, admin = select(orm.User.name), orm.Role.name == "admin"
    yield from db.scalars(users.where(orm.User.admin))
    yield from db.scalars(users.join(orm.User.roles).where(admin))
    yield from db.scalars(users.join(orm.User.groups).join(orm.Group.roles).where(admin))


async def update_rights(app: JupyterHub, courses: Iterable[HubCourse]) -> dict[str, RoleStatus]:
    """Make, change and delete groups and roles; return how each course stands, by its slug.

    A course whose file has never been good keeps what it has. Raises SQLAlchemyError.
    """
    statuses: dict[str, RoleStatus] = {}
    for course in courses:
        refused = _in_use(app.db, course)
        missing = await _update(app, course) if course.course is not None and not refused else ()
        statuses[course.slug] = RoleStatus(refused, missing)
        await asyncio.sleep(0)
    _remove_all_but(app.db, {slug for slug, status in statuses.items() if not status.refused})
    return statuses


def _in_use(db: Session, course: HubCourse) -> str:
    """Why the names of group and role are somebody else's; empty where they are not."""
    group, role = orm.Group.find(db, course.group), orm.Role.find(db, course.role)
    if group is not None and (group.properties or {}).get(MARK) != course.slug:
        kind, name = "group", course.group
    elif role is not None and role.description != _OWN:
        kind, name = "role", course.role
    else:
        return ""
    return (
        f"The hub has a {kind} {name} that was not made for this course, so nobody can teach it: "
        f"an administrator must rename or delete that {kind}, or rename the course's file."
    )


async def _update(app: JupyterHub, course: HubCourse) -> tuple[str, ...]:
    """Bring the course's group and role up to date; return the people whom the hub does not know."""
    db = app.db
    group = orm.Group.find(db, course.group)
    if group is None:
        group = orm.Group(name=course.group, properties={})
        db.add(group)
    properties = {**(group.properties or {}), MARK: course.slug, FILE: course.file.name}
    if group.properties != properties:
        group.properties = properties
        db.commit()
    by_name = _existing(db, course.people)
    for name in course.people:
        if name not in by_name and _may_add(app, name):
            add_user(app, name)
            by_name.add(name)
            await asyncio.sleep(0)  # each is written by itself, and a course may have hundreds
    _fill(db, group.id, by_name)
    role = orm.Role.find(db, course.role)
    scopes = instructor_scopes(course.group)
    if role is None or role.scopes != scopes:
        role = create_role(db, {"name": course.role, "description": _OWN, "scopes": scopes})
    _grant(db, role, orm.User, _existing(db, course.instructors))
    _grant(db, role, orm.Group, course.instructor_groups)
    return tuple(name for name in course.people if name not in by_name)


def _existing(db: Session, names: Collection[str]) -> set[str]:
    """Those of ``names`` that are users of the hub."""
    queries = (select(orm.User.name).where(orm.User.name.in_(some)) for some in in_batches(names))
    return {name for query in queries for name in db.scalars(query)}


def _fill(db: Session, group_id: int, names: Collection[str]) -> None:
    """Have exactly the users of these names in a group; writes the table itself, as a course may have hundreds."""
    table = orm.user_group_map
    rows = select(orm.User.name, orm.User.id).join(orm.User.groups).where(orm.Group.id == group_id)
    members: dict[str, int] = dict(db.execute(rows).all())
    gone = [user_id for name, user_id in members.items() if name not in names]
    new = set(names) - set(members)
    for some in in_batches(gone):
        db.execute(delete(table).where(table.c.group_id == group_id, table.c.user_id.in_(some)))
    for names_of_new in in_batches(new):
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


def _may_add(app: JupyterHub, name: str) -> bool:
    """Whether a user who has never signed in may be added: not where that alone would let them in.

    With ``allow_existing_users`` JupyterHub admits every user in its database.
    """
    authenticator = app.authenticator
    if name in authenticator.blocked_users:
        return False
    return bool(
        authenticator.allow_all or name in authenticator.allowed_users or not authenticator.allow_existing_users
    )


def _grant(db: Session, role: Any, kind: Any, names: Collection[str]) -> None:
    """Have exactly the users, or groups, of these names hold the role; those that do not exist are left out."""
    holders = set(db.scalars(select(kind.name).join(kind.roles).where(orm.Role.id == role.id)))
    for name in sorted(set(names) - holders):
        entity = kind.find(db, name)
        if entity is not None:
            grant_role(db, entity, role)
    for name in sorted(holders - set(names)):
        strip_role(db, kind.find(db, name), role)


def _remove_all_but(db: Session, remaining: Collection[str]) -> None:
    """Delete the groups and roles that were made here for courses which are gone."""
    for role in db.query(orm.Role).filter(orm.Role.description == _OWN).all():
        if role.name not in map(role_name, remaining):
            delete_role(db, role.name)
    for group in db.query(orm.Group).filter(orm.Group.name.like("course-%")).all():
        slug = (group.properties or {}).get(MARK)
        if slug is not None and group.name == group_name(slug) and slug not in remaining:
            get_logger().info("The group %s is deleted with its course", group.name)
            db.delete(group)
            db.commit()


def is_no_deletion(record: logging.LogRecord) -> bool:
    """A filter of the hub's log, without JupyterHub's warning at each start that it deletes roles which were made here.

    They are not in its configuration, and are made again when the hub has started.
    """
    return not _DELETION.fullmatch(record.getMessage())


def on_changes(act: Callable[[], None]) -> None:
    """Call ``act`` whenever the groups or roles of a user change, or a user is added, in this process."""

    def changed(*_: object) -> None:
        act()

    for relation in (orm.User.groups, orm.User.roles):
        event.listen(relation, "append", changed)
        event.listen(relation, "remove", changed)
    event.listen(orm.User, "after_insert", changed)
