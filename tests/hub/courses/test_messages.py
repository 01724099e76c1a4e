"""Messages of instructors to participants."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from jupyterhub_gpuspawner.courses.folder import CourseFile
from jupyterhub_gpuspawner.courses.sessions import Session as CourseSession
from jupyterhub_gpuspawner.hub.courses.book import HubCourse
from jupyterhub_gpuspawner.hub.courses.messages import Message, Messages, clean_text, shown_until


def at(day: int, hour: int) -> datetime:
    """A full hour of March 2026."""
    return datetime(2026, 3, day, hour, tzinfo=timezone.utc)


SESSIONS = (CourseSession(at(2, 9), at(2, 12), "2026-03-02"), CourseSession(at(3, 9), at(3, 12), "2026-03-03"))
COURSE = HubCourse("deep", CourseFile("deep"), ("ada", "bob"), sessions=SESSIONS)
EXPIRES = {
    "in a session": (at(2, 10), at(2, 12)),
    "before the first session": (at(1, 10), at(2, 12)),
    "between two sessions": (at(2, 13), at(3, 12)),
    "after the last session": (at(3, 12), at(4, 12)),
}


@pytest.mark.parametrize(("now", "until"), EXPIRES.values(), ids=EXPIRES.keys())
def test_a_message_expires_with_the_session(now: datetime, until: datetime) -> None:
    """It is shown to the end of the session under way, else of the next one, else for a day."""
    assert shown_until(COURSE, now.timestamp()) == until.timestamp()


TEXTS = {
    "lines": (" Save now.\r\n\n We end at 12. ", "Save now.\nWe end at 12."),
    "control characters": ("a\x1b[31mb\x00\u202ec", "a[31mbc"),
    "markup is text": ("<b>x</b>", "<b>x</b>"),
    "too long": ("x" * 1000, "x" * 500),
    "nothing": ("\n \t", ""),
}


@pytest.mark.parametrize(("text", "kept"), TEXTS.values(), ids=TEXTS.keys())
def test_a_message_is_plain_text(text: str, kept: str) -> None:
    """Lines stay; what is not printable goes."""
    assert clean_text(text) == kept


def test_the_last_message_for_everybody_and_for_one_person_is_shown() -> None:
    """Messages outlive the hub's process; a new one takes the place of the last to the same people; old ones go."""
    with Session(create_engine("sqlite://")) as session:
        first = Message("deep", "", "ada", "First", at=1.0, until=9e9)
        everybody = Message("deep", "", "carl", "To all", at=2.0, until=9e9)
        alone = Message("deep", "bob", "carl", "To bob", at=3.0, until=9e9)
        over = Message("deep", "eve", "carl", "Over", at=1.0, until=5.0)
        messages = Messages(session)
        messages.keep([first, over])
        messages.keep([everybody])
        messages.keep([alone])

        again = Messages(session)

        assert again.shown_to("bob", [COURSE], now=4.0) == (alone, everybody)
        assert again.shown_to("ada", [COURSE], now=4.0) == (everybody,)
        assert again.shown_to("eve", [COURSE], now=6.0) == (everybody,)
        assert again.shown_to("bob", [], now=4.0) == ()
