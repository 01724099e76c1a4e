"""What visitors send is a part of a line of the hub's log: none of it begins a line, moves a cursor or turns text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from typing import Any
from urllib.parse import quote

import pytest
import requests

from jupyterhub_gpuspawner.demo.hub import HubProcess
from tests.fixtures.extensions import API, PAGES
from tests.hub.visitor import Visitor
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

FORGED = "[I 2026-03-02 10:00:00.000 JupyterHub log:192] 200 GET /hub/home (forged@127.0.0.1)"
CHARACTERS = {
    "newline": "\n",
    "carriage return": "\r\n",
    "vertical tab": "\v",
    "ESC": "\x1b[2K",
    "CSI of C1": "\x9b2K",
    "next line of C1": "\x85",
    "line separator": "\u2028",
    "right-to-left override": "\u202e",
}
TEXTS = {name: f"ann{character}{FORGED}" for name, character in CHARACTERS.items()}
ALL = "".join(TEXTS.values())
REPLACED = (
    "/home",
    "/spawn/([^/]+)",
    "/spawn/([^/]+)/([^/]+)",
    "/spawn-pending/([^/]+)",
    "/spawn-pending/([^/]+)/([^/]+)",
    "/user/([^/]+)/(.*)",
    "/api/users/([^/]+)/server",
    "/api/users/([^/]+)/servers/([^/]*)",
    "/api/users/([^/]+)/server/progress",
)
"""The paths of JupyterHub's own handlers that ours replace."""
PATTERNS = [*(path for path, *_ in (*API, *PAGES)), *REPLACED]
_GROUP = re.compile(r"\((?:\[\^/\][+*]|\.\*)\)")
_NAMES = ("profile", "text", "minutes", "user", "users", "server", "name", "cluster", "part", "version", "next")


def addresses(pattern: str, text: str) -> Iterator[str]:
    """The paths of a route with the text in the place of each parameter, and of the last one of a server of ann's."""
    for first in (text, "ann"):
        values = iter((first, text, text))
        yield _GROUP.sub(lambda _: quote(next(values), safe=""), pattern)  # noqa: B023 - called at once


def ask(hub: HubProcess, method: str, path: str, token: str, **more: Any) -> int:
    """The status of the hub's own answer; a stream is not waited for."""
    headers = {**more.pop("headers", {}), **({"Authorization": f"token {token}"} if token else {})}
    url = f"http://127.0.0.1:{hub.ports[1]}/hub{path}"
    answer = requests.request(method, url, headers=headers, allow_redirects=False, stream=True, timeout=60, **more)
    answer.close()
    return answer.status_code


def new_lines(hub: HubProcess, before: int) -> str:
    """What the hub has logged since, when it has logged everything."""
    mark = f"the-last-line-{before}"
    hub.api("GET", f"/users/{mark}")
    wait_until(lambda: mark.encode() in hub.log.read_bytes()[before:], hub.log_end)
    lines = hub.log.read_bytes()[before:].decode(errors="surrogateescape").split("\n")
    return "\n".join(line for line in lines if " [ConfigProxy] " not in line)  # the proxy's have colours


def unseen(log: str) -> set[str]:
    """The characters of a log that nobody sees, beside those that end and indent lines."""
    return {character for character in log if not character.isprintable()} - {"\n", "\t"}


@pytest.mark.parametrize("text", [ALL, *(pytest.param(text, marks=pytest.mark.nightly) for text in TEXTS.values())])
def test_no_route_of_ours_lets_a_visitor_write_a_line(light_hub: HubProcess, text: str) -> None:
    """Addresses, queries, forms and documents, of an administrator, a user, and nobody who has signed in."""
    tokens = [Visitor(light_hub, "admin").token(), Visitor(light_hub, "ben").token(), ""]
    fields = dict.fromkeys(_NAMES, text)
    before = len(light_hub.log.read_bytes())

    for pattern in PATTERNS:
        for path, token in product(addresses(pattern, text), tokens):
            ask(light_hub, "GET", path, token, params=fields)
            ask(light_hub, "POST", path, token, json=fields)
            ask(light_hub, "POST", path, token, data=fields)

    log = new_lines(light_hub, before)
    asked = len(tokens) * sum(len(list(addresses(pattern, text))) for pattern in PATTERNS)
    assert len(re.findall(r"(?m)^\[\w .*/hub/.*%5BI%202026", log)) >= asked
    assert [line for line in log.split("\n") if line.lstrip().startswith(FORGED)] == []
    assert unseen(log) == set()


@pytest.mark.parametrize("header", ["User-Agent", "Referer", "X-Forwarded-For", "X-Forwarded-Proto", "Origin", "Host"])
def test_no_header_lets_a_visitor_write_a_line(light_hub: HubProcess, header: str) -> None:
    """One character at a time: tornado refuses most of them, and logs the header."""
    token = Visitor(light_hub, "ben").token()
    before = len(light_hub.log.read_bytes())

    for text in TEXTS.values():
        value = re.sub(r"[\r\n]", "", text).encode()  # no client sends a header of several lines
        for path in ("/home", "/api/gpuspawner/cluster", "/gpuspawner/log/ann"):
            ask(light_hub, "GET", path, token, headers={header: value})

    log = new_lines(light_hub, before)
    assert [line for line in log.split("\n") if line.lstrip().startswith(FORGED)] == []
    assert unseen(log) == set()
