"""The idle policy for each profile of a hub, and when the courses of its servers are in session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jupyterhub_gpuspawner.courses.course_profile import slug_of
from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.courses.upkeep import course_book
from jupyterhub_gpuspawner.hub.spawners.server import with_profiles
from jupyterhub_gpuspawner.profiles.idle import Idle, idle_rule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jupyterhub_gpuspawner.hub.courses.book import HubCourse
    from jupyterhub_gpuspawner.profiles.idle import IdleRule


class Rules:
    """The policy for each profile of a hub, and the sessions of its courses, as they are now."""

    def __init__(self, site: Idle, profiles: Mapping[str, Idle | None], courses: Mapping[str, HubCourse]) -> None:
        """``profiles`` by slug; ``courses`` by the slugs of their profiles."""
        self._site = idle_rule(None, site)
        self._rules = {slug: idle_rule(idle, site) for slug, idle in profiles.items()}
        self._courses = courses

    def rule(self, profile: str) -> IdleRule:
        """The policy for the servers of a profile; the site's for one that is offered no longer."""
        course = self._courses.get(profile)
        slug = course.course.profile.slug if course is not None and course.course is not None else profile
        return self._rules.get(slug, self._site)

    def session(self, profile: str, now: float) -> tuple[bool, float]:
        """Whether a session of the profile's course is under way, and when its last one has ended; 0: never."""
        course = self._courses.get(profile)
        sessions = course.sessions if course is not None else ()
        times = [(each.start.timestamp(), each.end.timestamp()) for each in sessions]
        ended = max((end for _, end in times if end <= now), default=0.0)
        return any(start <= now < end for start, end in times), ended

    @property
    def ask_for_activity(self) -> bool:
        """Whether one of them depends on JupyterHub's times of activity."""
        return any(rule.kernel is not None for rule in (self._site, *self._rules.values()))


def rules_of(site: Any, settings: Mapping[str, Any]) -> Rules:
    """The policy of a hub, whose tornado settings are ``settings``; ``site`` is a spawner without a user."""
    offering = with_profiles(site)
    try:
        profiles = {each.slug: each.idle for each in offering.source.profiles()} if offering is not None else {}
    except ConfigError:  # told where the profiles are read
        profiles = {}
    book = course_book(settings)
    courses = {slug_of(course.slug): course for course in book.courses()} if book is not None else {}
    return Rules(Idle(**site.slurm_site().idle), profiles, courses)
