"""People whom instructors add to a course on its page: a second list beside the course's file, in the hub's database.

It has the bounds of a roster (``c.GPUCourses.people`` and ``groups``), and takes only people who may sign in.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable

from jupyterhub import orm
from jupyterhub.auth import Authenticator
from sqlalchemy import Column, MetaData, String, Table, Unicode, delete, insert, inspect, select
from sqlalchemy.orm import Session

from jupyterhub_gpuspawner.extensions.courses.book import HubCourse, HubPeople
from jupyterhub_gpuspawner.hub.site.database import transaction
from jupyterhub_gpuspawner.hub.site.tables import SECONDS

ADDED_LIMIT = 200
"""Maximum number of people who are added to one course."""
TABLE = Table(
    "gpuspawner_course_people",
    MetaData(),
    Column("course", String(64), primary_key=True),
    Column("user", Unicode(255), primary_key=True),
    Column("added_by", Unicode(255), nullable=False),
    Column("at", SECONDS, nullable=False),
)


def added_people(session: Session) -> dict[str, tuple[str, ...]]:
    """Everybody who was added, by course, in the order in which they were; raises SQLAlchemyError."""
    people: dict[str, tuple[str, ...]] = {}
    for course, user in session.execute(select(TABLE.c.course, TABLE.c.user).order_by(TABLE.c.at, TABLE.c.user)):
        people[course] = (*people.get(course, ()), user)
    return people


def added_people_if_any(session: Session) -> dict[str, tuple[str, ...]]:
    """As :func:`added_people`, also of a database that no hub with this table has used yet."""
    return added_people(session) if inspect(session.connection()).has_table(TABLE.name) else {}


def keep_additions(session: Session, course: str, users: Iterable[str], *, by: str) -> None:
    """Add people to a course, all or none; raises SQLAlchemyError."""
    now = time.time()
    rows = [{"course": course, "user": user, "added_by": by, "at": now} for user in users]
    with transaction(session):
        _remove(session, course, [str(row["user"]) for row in rows])
        if rows:
            session.execute(insert(TABLE), rows)


def drop_additions(session: Session, course: str, users: Collection[str]) -> None:
    """Take people off the list of those who were added; raises SQLAlchemyError."""
    with transaction(session):
        _remove(session, course, users)


def drop_additions_of_others(session: Session, courses: Collection[str], missed: Collection[str]) -> set[str]:
    """Forget who was added to courses that are gone; raises SQLAlchemyError.

    ``courses`` are all that there are now, and ``missed`` those that were missing at the last call. A course is gone
    if it is missing at two: its file may be replaced just now, or its folder not be mounted. Returns what is missing.
    """
    missing = set(session.scalars(select(TABLE.c.course).distinct())) - set(courses)
    gone = missing.intersection(missed)
    if gone:
        with transaction(session):
            session.execute(delete(TABLE).where(TABLE.c.course.in_(gone)))
    return missing - gone


def _remove(session: Session, course: str, users: Collection[str]) -> None:
    session.execute(delete(TABLE).where(TABLE.c.course == course, TABLE.c.user.in_(users)))


def may_sign_in(session: Session, authenticator: Authenticator, name: str) -> bool:
    """Whether the hub knows this user already, or its authenticator's settings let them in."""
    if name in authenticator.blocked_users:
        return False
    is_user = orm.User.find(session, name) is not None
    return bool(is_user or authenticator.allow_all or name in authenticator.allowed_users)


def refusal_of(name: str, course: HubCourse, hub: HubPeople, *, may_sign_in: bool, number: int = 1) -> str:
    """Why this user cannot be added to a course: a sentence that quotes the name; empty where they can.

    ``number`` is their place among those who are added at once, from 1.
    """
    if not course.takes_additions:
        return "People cannot be added to this course on its page."
    if name in hub.admins:
        return f"{name} is an administrator of the hub; administrators are not on courses."
    if hub.outside(name):
        return f"{name} may not be on a course of this hub. Its administrators decide who may."
    if not may_sign_in:
        return f"JupyterHub does not know {name}: check the name, or ask them to sign in once."
    if len(course.added) + number > ADDED_LIMIT:
        return f"At most {ADDED_LIMIT} people can be added here: add others to the course's file."
    return ""
