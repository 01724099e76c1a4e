"""Messages of instructors and administrators, and to whom they are shown."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.extensions.messages.store import (
    EVERYBODY,
    Audience,
    Kind,
    Message,
    Messages,
    clean_text,
    messages_of,
)
from tests.fixtures.databases import session_of

TEXTS = {
    "lines": (" Save now.\r\n\n We end at 12. ", "Save now.\nWe end at 12."),
    "control characters": ("a\x1b[31mb\x00\u202ec", "a[31mbc"),
    "markup is text": ("<b>x</b>", "<b>x</b>"),
    "too long": ("x" * 1000, "x" * 500),
    "nothing": ("\n \t", ""),
}


@pytest.mark.parametrize(("text", "plain"), TEXTS.values(), ids=TEXTS.keys())
def test_a_message_is_plain_text(text: str, plain: str) -> None:
    """Lines stay; what is not printable goes."""
    assert clean_text(text) == plain


def in_course(user: str = "") -> Audience:
    return Audience(Kind.COURSE, "deep", user)


def test_the_last_message_to_each_audience_is_shown() -> None:
    """Messages outlive the hub's process; a new one takes the place of the last to the same people; old ones go."""
    with session_of() as session:
        first = Message(in_course(), "ada", "First", at=1.0, until=9e9)
        everybody = Message(in_course(), "carl", "To all", at=2.0, until=9e9)
        alone = Message(in_course("bob"), "carl", "To bob", at=3.0, until=9e9)
        over = Message(in_course("eve"), "carl", "Over", at=1.0, until=5.0)
        messages = Messages(session)
        messages.keep([first, over])
        messages.keep([everybody])
        messages.keep([alone])

        reread = Messages(session)

        assert reread.shown_to([in_course(), in_course("bob")], now=4.0) == (alone, everybody)
        assert reread.shown_to([in_course(), in_course("ada")], now=4.0) == (everybody,)
        assert reread.shown_to([in_course(), in_course("eve")], now=6.0) == (everybody,)
        assert reread.shown_to([], now=4.0) == ()
        assert reread.shown(now=4.0) == (alone, everybody)


def test_audiences_of_the_same_name_are_not_the_same() -> None:
    """A node, a profile and a course may be called alike; the message to a node is read there alone."""
    node = Audience(Kind.NODE, "deep")
    with session_of() as session:
        messages = messages_of(session)
        notices = [Message(to, "admin", "Down at 12.", at=1.0, until=9e9) for to in (node, EVERYBODY)]
        messages.keep(notices)

        assert messages.shown_to([Audience(Kind.PROFILE, "deep"), in_course()], now=2.0) == ()
        assert messages.shown_to([node, node], now=2.0) == (notices[0],)
        assert messages_of(session) is messages


def test_a_message_that_is_withdrawn_is_gone() -> None:
    """Also from the database; withdrawing it again says that there was none."""
    with session_of() as session:
        messages = Messages(session)
        messages.keep([Message(EVERYBODY, "admin", "Down at 12.", at=1.0, until=9e9)])

        assert (messages.withdraw(EVERYBODY), messages.withdraw(EVERYBODY)) == (True, False)
        assert messages.shown(now=2.0) == Messages(session).shown(now=2.0) == ()


def test_messages_that_have_expired_are_not_kept_in_memory() -> None:
    """They go with the next message, as those in the database do."""
    with session_of() as session:
        messages = Messages(session)
        messages.keep([Message(in_course("eve"), "carl", "Over", at=1.0, until=5.0)])
        messages.keep([everybody := Message(EVERYBODY, "carl", "To all", at=2.0, until=9e9)])

        assert messages.shown(now=4.0) == (everybody,)
