"""A mail as text. Pure.

What it says of a server is its name: mails are read on shared screens, and kept elsewhere.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, make_msgid
from textwrap import fill

_ADDRESS = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*")
"""One address, without a name beside it: RFC 5321's dot-string at a host, of ASCII."""
_SUBJECT_LENGTH = 150
_BODY = """{text}

{link}

--
Mails of {hub}. End or allow them: {settings}
"""


def is_address(text: object) -> bool:
    """Whether this is one address, and nothing beside it, so that it can be a header."""
    return isinstance(text, str) and len(text) <= 254 and _ADDRESS.fullmatch(text) is not None


def one_line(text: str) -> str:
    """A text of users or authors as one line without control characters."""
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())


def mail(*, sender: str, to: str, subject: str, text: str, hub: str, link: str, at: float) -> EmailMessage:
    """The mail; ``hub`` is the public address that ends in ``/hub/``, ``link`` a path below it, ``at`` its time."""
    message = EmailMessage(policy=SMTP)
    settings = f"{hub}gpuspawner/mail"
    message["From"], message["To"] = sender, to
    message["Subject"] = one_line(subject)[:_SUBJECT_LENGTH]
    message["Date"] = format_datetime(datetime.fromtimestamp(at, timezone.utc))
    message["Message-ID"] = make_msgid(domain=sender.partition("@")[2])
    message["Auto-Submitted"] = "auto-generated"  # so that nobody's absence is answered to the hub
    message["List-Unsubscribe"] = f"<{settings}>"
    body = fill(one_line(text), 76, break_long_words=False, break_on_hyphens=False)
    message.set_content(_BODY.format(text=body, link=f"{hub}{link}", hub=hub, settings=settings))
    return message
