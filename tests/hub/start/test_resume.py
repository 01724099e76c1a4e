"""A start that a killed hub left behind, as the next hub's handlers see it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from jupyterhub_gpuspawner.errors import SubmitRejected
from jupyterhub_gpuspawner.hub.ending.failure import spawn_failure
from jupyterhub_gpuspawner.hub.start import resume
from jupyterhub_gpuspawner.hub.start.resume import interrupted, take_up


class Known:
    """A stand-in for the spawner that JupyterHub knows, in the hub's check after a restart."""

    def __init__(self) -> None:
        self._check_pending = True
        self._spawn_pending = False
        self._spawn_future: asyncio.Future[None] | None = None
        self.server: Any = SimpleNamespace(port=54321)
        self.name = "second"
        self.routes: list[tuple[object, str]] = []
        self.user = SimpleNamespace(settings={"proxy": self})

    async def add_user(self, user: object, server_name: str) -> None:
        self.routes.append((user, server_name))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resume, "LOOK", 0.001)


async def settle() -> None:
    await asyncio.sleep(0.02)


CHECKED: dict[str, tuple[dict[str, Any], int, bool]] = {
    "its start was under way": ({}, 0, True),
    "it had reported, and the hub had not stored it": ({}, 20001, True),
    "the hub had stored where it serves": ({}, 54321, False),
    "the hub does not check it": ({"_check_pending": False}, 0, False),
    "it was never started": ({"server": None}, 0, False),
    "it has been taken up": ({"_spawn_future": object()}, 0, False),
}


@pytest.mark.parametrize(("changed", "port", "expected"), CHECKED.values(), ids=CHECKED.keys())
def test_whether_a_start_was_interrupted(changed: dict[str, Any], port: int, expected: bool) -> None:
    """By what the hub has stored, and what it does."""
    known = Known()
    vars(known).update(changed)

    assert interrupted(known, port) is expected


async def test_a_start_that_goes_well_is_pending_until_the_hub_has_checked_it_and_then_gets_its_route() -> None:
    """Progress may be read all the while; poll() says that it runs."""
    known, gate = Known(), asyncio.Event()
    answer = asyncio.create_task(take_up(known, gate.wait()))  # type: ignore[arg-type]
    await settle()

    assert (known._spawn_pending, answer.done()) == (True, False)

    gate.set()
    await settle()

    assert (known._spawn_pending, answer.result(), known.routes) == (True, None, [])

    known._check_pending = False  # the server has answered the hub
    await settle()

    assert (known._spawn_pending, known._spawn_future, known.routes) == (False, None, [(known.user, "second")])


async def test_a_start_that_fails_is_told_and_the_hub_stops_it() -> None:
    """poll() says that it has ended; the error stays for the page."""
    known = Known()

    async def fail() -> None:
        raise spawn_failure(SubmitRejected("The job never starts."))

    assert await take_up(known, fail()) == 1
    assert known._spawn_pending is False
    assert known._spawn_future is not None
    assert getattr(known._spawn_future.exception(), "jupyterhub_message", "") == "The job never starts."


async def test_a_person_may_stop_it() -> None:
    """The hub cancels the start's future: the check no longer stands in the way, and waits until the server is gone."""
    known = Known()
    answer = asyncio.create_task(take_up(known, asyncio.Event().wait()))  # type: ignore[arg-type]
    await settle()
    assert known._spawn_future is not None
    known._spawn_future.cancel()
    await settle()

    assert (known._spawn_pending, known._check_pending, answer.done()) == (False, False, False)

    known.server = None
    await settle()

    assert answer.result() == 1


async def test_a_server_that_does_not_answer_the_hub_is_told() -> None:
    """It listened, but the hub's own check gave it up."""
    known = Known()

    async def arrive() -> None:
        return

    assert await take_up(known, arrive()) is None
    start = known._spawn_future
    assert start is not None
    known.server, known._check_pending = None, False
    await settle()

    assert getattr(start.exception(), "jupyterhub_message", "") == (
        "The server was started, but did not answer the hub."
    )
