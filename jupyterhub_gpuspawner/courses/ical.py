"""The sessions of a course as iCalendar (RFC 5545), for instructors' and participants' calendars. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icalendar import Calendar, Event

if TYPE_CHECKING:
    from datetime import datetime

    from jupyterhub_gpuspawner.courses.course import Course


def calendar(slug: str, course: Course, *, hub: str, now: datetime) -> str:
    """One event for each session; ``hub`` names the hub, so that two hubs' events are not taken for the same.

    ``now`` is the time of the file. An event keeps its UID when its times change, so that a calendar replaces it.
    """
    found = Calendar()
    found.add("prodid", "-//jupyterhub-gpuspawner//courses//EN")
    found.add("version", "2.0")
    found.add("name", course.name)
    for session in course.calendar():
        event = Event()
        event.add("uid", f"{slug}-{session.name}@{hub}")
        event.add("dtstamp", now)
        event.add("dtstart", session.start)
        event.add("dtend", session.end)
        event.add("summary", course.name)
        about = [course.message] if course.message else []
        if session.reservation:
            about.append(f"Slurm reservation: {session.reservation}")
        if about:
            event.add("description", "\n".join(about))
        found.add_component(event)
    found.add_missing_timezones()
    text: str = found.to_ical().decode()
    return text
