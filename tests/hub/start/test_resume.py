"""A start that was interrupted by a restart of the hub, as JupyterHub's handlers see it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from jupyterhub.spawner import SimpleLocalProcessSpawner
from tornado.httpclient import HTTPError

from jupyterhub_gpuspawner.errors import SubmitRejected
from jupyterhub_gpuspawner.hub.job.failed_start import spawn_failure
from jupyterhub_gpuspawner.hub.start import readiness
from jupyterhub_gpuspawner.hub.start.readiness import interrupted, resume


class Spawner(SimpleLocalProcessSpawner):  # type: ignore[misc]
    """The spawner that JupyterHub knows, in the hub's check after a restart."""

    name = "second"
    contact = "the help desk"

    def __init__(self, *, checked: bool = True, port: int | None = 54321, started: bool = False) -> None:
        """``port`` is the stored one; ``started``: the hub has started the server, or taken its start up."""
        super().__init__()
        self.server = None if port is None else SimpleNamespace(port=port)
        self.routes: list[tuple[object, str]] = []
        self.user = SimpleNamespace(name="ann", settings={"proxy": self})
        self._check_pending = checked
        if started:
            self._spawn_future = asyncio.get_running_loop().create_future()

    async def add_user(self, user: object, server_name: str) -> None:
        """The proxy's route."""
        self.routes.append((user, server_name))

    def check_is_over(self) -> None:
        """The server has answered the hub, or was given up."""
        self._check_pending = False

    def cancel_start(self) -> None:
        """As the handler of a stop does it."""
        self._spawn_future.cancel()

    @property
    def failure(self) -> str:
        """What the page says of the last start; empty unless it failed."""
        start = self._spawn_future
        return str(getattr(start.exception(), "jupyterhub_message", "")) if start is not None else ""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "HUB_POLL_SECONDS", 0.001)


async def settle() -> None:
    await asyncio.sleep(0.02)


CHECKED: dict[str, tuple[dict[str, Any], int, bool]] = {
    "its start was under way": ({}, 0, True),
    "it had reported, and the hub had not stored it": ({}, 20001, True),
    "the hub had stored where it serves": ({}, 54321, False),
    "the hub does not check it": ({"checked": False}, 0, False),
    "it was never started": ({"port": None}, 0, False),
    "it has been taken up": ({"started": True}, 0, False),
}


@pytest.mark.parametrize(("stored", "port", "expected"), CHECKED.values(), ids=CHECKED.keys())
async def test_whether_a_start_was_interrupted(stored: dict[str, Any], port: int, expected: bool) -> None:
    """By what the hub has stored, and what it does."""
    assert interrupted(Spawner(**stored), port) is expected


async def test_a_start_that_goes_well_is_pending_until_the_hub_has_checked_it_and_then_gets_its_route() -> None:
    """Progress may be read all the while; poll() says that it runs."""
    spawner, gate = Spawner(), asyncio.Event()
    answer = asyncio.create_task(resume(spawner, gate.wait()))  # type: ignore[arg-type]
    await settle()

    assert (spawner.pending, answer.done()) == ("spawn", False)

    gate.set()
    await settle()

    assert (spawner.pending, answer.result(), spawner.routes) == ("spawn", None, [])

    spawner.check_is_over()
    await settle()

    assert (spawner.pending, spawner.failure, spawner.routes) == (None, "", [(spawner.user, "second")])


async def test_a_proxy_that_takes_no_route_yet_is_no_failure_of_the_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The server runs, and JupyterHub's next check of routes adds its own."""

    async def refuse(*_: object) -> None:
        raise HTTPError(403)

    spawner = Spawner()
    monkeypatch.setattr(spawner, "add_user", refuse)

    assert await resume(spawner, asyncio.sleep(0)) is None

    spawner.check_is_over()
    await settle()

    warning = "The proxy has no route to ann's server yet; JupyterHub adds it"
    assert (spawner.pending, spawner.failure, caplog.messages[-1]) == (None, "", warning)


async def test_a_start_that_fails_is_told_and_the_hub_stops_it() -> None:
    """poll() says that it has ended; the error stays for the page."""
    spawner = Spawner()

    async def fail() -> None:
        raise spawn_failure(SubmitRejected("x", for_user="The job never starts."))

    assert await resume(spawner, fail()) == 1
    assert (spawner.pending, spawner.failure[:22]) == ("check", "The job never starts. ")


async def test_a_person_may_stop_it() -> None:
    """The hub cancels the start's future: the check ends once the server is gone."""
    spawner = Spawner()
    answer = asyncio.create_task(resume(spawner, asyncio.Event().wait()))  # type: ignore[arg-type]
    await settle()
    spawner.cancel_start()
    await settle()

    assert (spawner.pending, answer.done()) == (None, False)

    spawner.server = None
    await settle()

    assert answer.result() == 1


async def test_a_server_that_does_not_answer_the_hub_is_told() -> None:
    """It listened, but did not answer the hub's own check."""
    spawner = Spawner()

    async def arrive() -> None:
        return

    assert await resume(spawner, arrive()) is None
    spawner.server = None
    spawner.check_is_over()
    await settle()

    assert spawner.failure.startswith("The server was started but did not respond to the hub in time. Start again.")
