"""The tag that every job carries as its comment: it names hub, user and server, so that a job can be found again."""

from __future__ import annotations

from urllib.parse import quote, unquote

PREFIX = "jupyterhub-gpuspawner"


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
