"""What courses add to a hub."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jupyterhub.app import JupyterHub

from jupyterhub_gpuspawner.extensions.courses import additions, api, offers, page, participants, view
from jupyterhub_gpuspawner.extensions.courses.ahead import begin_courses
from jupyterhub_gpuspawner.extensions.courses.book import course_book
from jupyterhub_gpuspawner.extensions.courses.evening import letters
from jupyterhub_gpuspawner.extensions.courses.part import parts_of
from jupyterhub_gpuspawner.extensions.courses.rights import TEACH, GPUCourses, define_scope, is_no_deletion
from jupyterhub_gpuspawner.extensions.messages.store import Audience, Kind, messages_of
from jupyterhub_gpuspawner.hub.extension import HubExtension, Link, Notice, ProfilesOf


def notices_to(user: Any, _spawner: Any = None) -> Iterator[Notice]:
    """What instructors tell this user now: to everybody in a course of theirs, or to them alone."""
    messages, book = messages_of(user.db), course_book(user.settings)
    if book is None or not messages.shown():
        return
    for course in book.courses_of(user.name):
        audiences = (Audience(Kind.COURSE, course.slug, to) for to in ("", user.name))
        for message in messages.shown_to(audiences):
            yield Notice(message.text, message.sender, message.at, of=course.title)


def prepare(app: JupyterHub) -> None:
    """Let the hub know the scope of instructors before it reads roles, and not warn of theirs that it deletes then."""
    define_scope()
    app.log.addFilter(is_no_deletion)


PROFILES = ProfilesOf(
    offered=offers.courses_offered,
    refresh=offers.refresh_courses,
    errors=offers.course_faults,
    refusal=offers.refusal,
    occasion=offers.occasion,
    lead_scope=TEACH,
    started_for_others="the profile of a course that you teach",
)
HUB = HubExtension(
    settings=(GPUCourses,),
    tables=(page.RECENT_ACTIONS_TABLE, additions.TABLE, participants.TABLE),
    configured=(prepare,),
    begin=(begin_courses,),
    api=tuple(api.HANDLERS),
    pages=(
        (r"/gpuspawner/courses", page.CoursesPage),
        (r"/gpuspawner/course/([^/]+)", page.CoursePage),
        (r"/gpuspawner/course/([^/]+)/check", page.CourseCheckPage),
        (r"/gpuspawner/course/([^/]+)/people", page.CoursePeoplePage),
        (r"/gpuspawner/course/([^/]+)/events", page.CourseEvents),
    ),
    links=(Link("Courses", "gpuspawner/courses", page.teaches_any),),
    notices=notices_to,
    letters=letters,
    profiles_of=PROFILES,
    parts_of=parts_of,
    page_tools={"course": view},
)
