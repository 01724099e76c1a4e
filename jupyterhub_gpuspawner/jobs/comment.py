"""The tag that every job carries as its comment: it names hub, user and server, so that a job can be found again."""

from __future__ import annotations

import hashlib
import hmac
from urllib.parse import quote, unquote

PREFIX = "jupyterhub-gpuspawner"
START = "{start}"
"""Stands in the setting for a job's name for the start's own id."""


def hub_mark(cookie_secret: bytes) -> str:
    """Return eight hexadecimal digits that tell this hub from another one of the same name; empty without a secret."""
    return hmac.new(cookie_secret, PREFIX.encode(), hashlib.sha256).hexdigest()[:8] if cookie_secret else ""


def tag(hub: str, user: str, server: str) -> str:
    """``jupyterhub-gpuspawner/<hub>/<user>/<server>``, each percent-encoded; the server's name may be empty.

    It has no blank, comma, ``|``, ``#``, quote or control character, whatever the names hold.
    """
    return "/".join((PREFIX, *(quote(part, safe="") for part in (hub, user, server))))


def parse_tag(text: str) -> tuple[str, str, str] | None:
    """Hub, user and server of a job's comment; None where it is no tag. What follows a ``#`` is not looked at."""
    match text.strip().partition("#")[0].split("/"):
        case [head, hub, user, server] if head == PREFIX:
            return unquote(hub), unquote(user), unquote(server)
    return None


def start_of(text: str) -> str:
    """The id of one start of the server, which follows the ``#`` of its tag; empty where there is none."""
    return text.strip().partition("#")[2] if parse_tag(text) else ""


def job_name(template: str, start_id: str) -> str:
    """The job's name of one start: ``template`` with the start's id in it; without the id for a job that is a trial."""
    if start_id:
        return template.replace(START, start_id)
    return template.replace(START, "").strip("-_. ") or "jupyterhub"


def start_of_name(template: str, name: str) -> str:
    """The start's id in a job's name that :func:`job_name` made; empty for any other name."""
    before, placeholder, after = template.partition(START)
    fits = placeholder and name.startswith(before) and name.endswith(after)
    return name[len(before) : len(name) - len(after)] if fits and len(name) > len(before) + len(after) else ""
