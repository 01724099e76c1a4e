"""Addresses of a server's pages, and a choice as a query of the form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

UNUSED_LINK = "link"
"""Query parameter: the choice of a link that was not used, since a server was there, as a query of the form."""


def as_query(options: Mapping[str, object]) -> str:
    """User options as the query that fills in the form; what is no plain value is left out."""
    plain = {name: str(value) for name, value in options.items() if isinstance(value, (str, int, float))}
    return urlencode({f"opt-{name}": value for name, value in plain.items()})


def parse_choice_query(query: str) -> dict[str, str]:
    """The user options in what :func:`as_query` made."""
    pairs = parse_qsl(query)
    return {name.removeprefix("opt-"): value for name, value in pairs if name.startswith("opt-")}


def form_url(base_url: str, user: Any, server_name: str) -> str:
    """The address of the form that starts a server."""
    return f"{base_url}spawn/{user.escaped_name}/{quote(server_name, safe='')}".rstrip("/")


def pending_url(base_url: str, user: Any, server_name: str) -> str:
    """The address of the page of a server that is starting, stopping, or not running."""
    return f"{base_url}spawn-pending/{user.escaped_name}/{quote(server_name, safe='')}".rstrip("/")
