"""The limit on one reader's event streams: the oldest ends, and its page goes on."""

from __future__ import annotations

import json
import threading
from contextlib import ExitStack, suppress
from typing import Any

import pytest
import requests

from jupyterhub_gpuspawner.demo.hub import server_path
from jupyterhub_gpuspawner.hub.server.waiting import LIMIT, OpenStreams
from tests.hub.conftest import StartHub
from tests.hub.visitor import Visitor, events

WAITS = """
- display_name: Waits
  slug: waits
  slurm: {partition: batch, cpus: 1, memory: 100M, time: "0:10:00"}
  environment: {setup: "sleep 600"}
  command: [/bin/true]
"""
TABS = 30


async def test_beyond_the_cap_the_oldest_ends_and_only_the_readers_own() -> None:
    """A stream that has ended no longer counts."""
    streams = OpenStreams(2)
    with ExitStack() as stack:
        others = stack.enter_context(streams.one("ben"))
        first, second = stack.enter_context(streams.one("ann")), stack.enter_context(streams.one("ann"))
        with streams.one("ann"):
            ended = [each.done() for each in (first, second)]
        third = stack.enter_context(streams.one("ann"))

        assert ended == [True, False]
        assert [each.done() for each in (others, first, second, third)] == [False, True, False, False]


@pytest.mark.slurm
@pytest.mark.hub
def test_a_start_that_is_open_in_thirty_tabs(start_light_hub: StartHub) -> None:
    """Ten streams end with a message; the newest twenty and another user's go on; every tab can show the page."""
    hub = start_light_hub(profiles=WAITS)
    for user in ("ann", "ben"):
        hub.api("POST", f"/users/{user}")
        assert hub.api("POST", f"/users/{user}/server", {"profile": "waits"}).status_code in (201, 202)
    other = events(hub, "ben")
    next(other)
    ended: dict[int, Any] = {}

    def read(tab: int, answer: requests.Response) -> None:
        with suppress(requests.RequestException):  # it ends with the test
            for line in answer.iter_lines(chunk_size=1):
                if line.startswith(b"data: ") and json.loads(line[6:]).get("elsewhere"):
                    ended[tab] = json.loads(line[6:])

    readers, answers = [], []
    for tab in range(TABS):
        answer = requests.get(
            f"{hub.url}/hub/api{server_path('ann', '')}/progress",
            headers={"Authorization": f"token {hub.token}"},
            stream=True,
            timeout=60,
        )
        answers.append(answer)
        readers.append(threading.Thread(target=read, args=(tab, answer), daemon=True))
        readers[-1].start()
    for reader in readers[: TABS - LIMIT]:
        reader.join(30)

    assert sorted(ended) == list(range(TABS - LIMIT))
    assert all(reader.is_alive() for reader in readers[TABS - LIMIT :])
    assert [document["message"] for document in ended.values()] == [
        f"This page is open in more than {LIMIT} tabs. This tab now updates less often."
    ] * len(ended)
    assert next(other)
    assert "spawn-pending" in Visitor(hub, "ann").pending().url
    assert "Traceback" not in hub.log.read_text()

    for user in ("ann", "ben"):
        hub.end(user)
    for reader in readers:
        reader.join(30)
