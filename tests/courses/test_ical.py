"""A course's sessions in a calendar."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from icalendar import Calendar

from jupyterhub_gpuspawner.courses.ical import calendar
from tests.courses.test_course import DEEP_LEARNING, course

NOW = datetime(2026, 2, 1, tzinfo=timezone.utc)


def test_each_session_is_an_event_in_its_own_zone() -> None:
    """With the instructor's message and the reservation; the zone's rules are part of the file."""
    found = Calendar.from_ical(calendar("deep", course(DEEP_LEARNING), hub="hub.example.org", now=NOW))
    events = [
        (
            str(each["uid"]),
            each.decoded("dtstart").isoformat(),
            each.decoded("dtend") - each.decoded("dtstart"),
            str(each["description"]),
        )
        for each in found.walk("VEVENT")
    ]

    assert events[:2] == [
        (
            "deep-2026-03-02@hub.example.org",
            "2026-03-02T09:00:00+01:00",
            timedelta(hours=8),
            "Bring your own questions.\nSlurm reservation: ml-hpc-1",
        ),
        (
            "deep-2026-03-03@hub.example.org",
            "2026-03-03T13:30:00+01:00",
            timedelta(hours=3, minutes=30),
            "Bring your own questions.",
        ),
    ]
    assert [str(zone["tzid"]) for zone in found.walk("VTIMEZONE")] == ["Europe/Brussels"]
