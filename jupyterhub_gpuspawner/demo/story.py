"""What goes on in the demo when somebody signs in: servers of its people, which it starts over the hub's REST API."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import requests

from jupyterhub_gpuspawner.demo.hub import HubProcess, server_path

SLUG = "deep-learning"
"""The course's name on the command line and in addresses."""
TRIES, PAUSE_SECONDS = 5, 1.0
"""How often a start is tried, and the time between two: the hub may not have read the course's file yet."""


class Start(NamedTuple):
    """A server that somebody of the demo starts."""

    user: str
    options: Mapping[str, str]
    server: str = ""


IN_COURSE = tuple(Start(f"student{number}", {"profile": f"course-{SLUG}"}) for number in (1, 2, 3))
"""One participant has not come yet."""
FOUR_P100 = {"profile": "p100x4"}
ON_CLUSTER = (Start("bob", FOUR_P100), Start("teacher", FOUR_P100), Start("bob", FOUR_P100, server="next"))
"""The first two have all P100, so the last one waits."""


def begin_story(hub: HubProcess, starts: tuple[Start, ...], say: Callable[[str], None]) -> None:
    """Start these one after the other; what the hub refuses is said, and the others go on, until there is no hub."""
    for start in starts:
        try:
            fault = _fault_of(hub, start)
        except requests.RequestException:  # it has ended, and whoever waits for it says so; its proxy answers with HTML
            return
        if fault:
            say(f"The server of {start.user} was not started: {fault}")


def _fault_of(hub: HubProcess, start: Start) -> str:
    """Start a server; returns why the hub refuses it, empty if it does not."""
    hub.api("POST", f"/users/{start.user}")
    fault = ""
    for _ in range(TRIES):
        answer = hub.api("POST", server_path(start.user, start.server), dict(start.options))
        if answer.ok:
            return ""
        fault = answer.json().get("message", answer.text)
        time.sleep(PAUSE_SECONDS)
    return str(fault)
