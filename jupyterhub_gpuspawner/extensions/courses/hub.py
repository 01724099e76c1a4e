"""What courses add to a hub."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jupyterhub_gpuspawner.extensions.messages.store import Audience, Kind, messages_of
from jupyterhub_gpuspawner.hub.course import offers
from jupyterhub_gpuspawner.hub.course.book import course_book
from jupyterhub_gpuspawner.hub.extensions import HubExtension, Notice, ProfilesOf


def notices_to(user: Any, _spawner: Any = None) -> Iterator[Notice]:
    """What instructors tell this user now: to everybody in a course of theirs, or to them alone."""
    messages, book = messages_of(user.db), course_book(user.settings)
    if book is None or not messages.shown():
        return
    for course in book.courses_of(user.name):
        audiences = (Audience(Kind.COURSE, course.slug, to) for to in ("", user.name))
        for message in messages.shown_to(audiences):
            yield Notice(message.text, message.sender, message.at, of=course.title)


PROFILES = ProfilesOf(
    offered=offers.courses_offered,
    refresh=offers.refresh_courses,
    errors=offers.course_faults,
    refusal=offers.refusal,
    occasion=offers.occasion,
)
HUB = HubExtension(notices=notices_to, profiles_of=PROFILES)
