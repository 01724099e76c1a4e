"""The asyncio functions lose neither a cancellation nor a task."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from unittest.mock import ANY

import pytest
from jupyterhub import orm
from sqlalchemy.orm import Session

from jupyterhub_gpuspawner import tasks
from jupyterhub_gpuspawner.errors import SlurmUnavailable
from jupyterhub_gpuspawner.hub.site import background
from jupyterhub_gpuspawner.hub.site.background import every
from jupyterhub_gpuspawner.tasks import Ended, connected, contained, first_of, open_connection
from tests.fixtures.databases import hub_session
from tests.fixtures.postgres import about_sqlite


async def test_the_first_wait_ends_it_and_the_others_are_cancelled() -> None:
    """No task is left running."""
    ended: list[str] = []

    async def wait(name: str, seconds: float) -> None:
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            ended.append(f"{name} cancelled")
            raise
        ended.append(name)

    await first_of(wait("short", 0), wait("long", 60))

    assert ended == ["short", "long cancelled"]


async def test_the_others_have_ended_when_the_first_wait_is_over() -> None:
    """What one does when it is cancelled is done before the caller goes on."""
    ended: list[str] = []

    async def wait() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            for _ in range(3):
                await asyncio.sleep(0)
            ended.append("ended")

    await first_of(asyncio.sleep(0), wait())

    assert ended == ["ended"]


class Died(Exception):
    """The job has ended."""


class TooLong(Exception):
    """The limit is reached."""


IN_ORDER: tuple[type[Exception], ...] = (Died, TooLong)


@pytest.mark.parametrize("order", [IN_ORDER, IN_ORDER[::-1]])
async def test_of_two_that_fail_at_once_the_first_is_raised_and_the_other_logged(
    order: tuple[type[Exception], ...], caplog: pytest.LogCaptureFixture
) -> None:
    """In the order in which they are waited for, not in that of a set."""

    async def fail(fault: type[Exception]) -> None:
        await asyncio.sleep(0)
        raise fault(fault.__name__)

    for _ in range(20):
        caplog.clear()
        with pytest.raises(order[0]):
            await first_of(*map(fail, order))
        assert [record.args for record in caplog.records] == [(ANY,)]
        assert order[1].__name__ in caplog.text


async def test_what_fails_when_it_is_cancelled_does_not_undo_the_first(caplog: pytest.LogCaptureFixture) -> None:
    """The first wait was done; the failure of another one is logged, and not lost."""

    async def fail() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            raise Died("in its end")

    await first_of(asyncio.sleep(0), fail())

    assert "in its end" in caplog.text


async def test_a_cancelled_waiter_is_cancelled_and_its_waits_too() -> None:
    """CancelledError is raised."""
    started = asyncio.Event()
    ended: list[str] = []

    async def wait() -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("ended")

    task = asyncio.ensure_future(first_of(wait(), wait()))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)

    assert ended == ["ended", "ended"]


@pytest.mark.parametrize("seconds", [0.01, None])
async def test_what_goes_on_when_it_is_cancelled_holds_nobody_up(
    seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a site's hook that tries again whatever it catches: neither the limit nor a user's cancelling waits."""
    monkeypatch.setattr(tasks, "_GRACE", 0.05)
    goes_on, over = asyncio.Event(), asyncio.Event()

    async def tries_again() -> None:
        while not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                goes_on.set()

    waiting = asyncio.ensure_future(contained(tries_again, seconds=seconds))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    if seconds is None:
        waiting.cancel()
    await asyncio.wait({waiting}, timeout=5)

    assert (waiting.done(), goes_on.is_set()) == (True, True)
    over.set()
    with pytest.raises(Ended if seconds else asyncio.CancelledError):
        await waiting


async def test_a_hub_that_ends_does_not_wait_for_what_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """At its end JupyterHub cancels all tasks that asyncio knows of, and waits for each of them without a limit."""
    monkeypatch.setattr(tasks, "_GRACE", 0.05)
    over = asyncio.Event()

    async def tries_again() -> None:
        while not over.is_set():
            with suppress(asyncio.CancelledError):
                await over.wait()

    waiting = asyncio.ensure_future(contained(tries_again))
    for _ in range(3):
        await asyncio.sleep(0)
    known = asyncio.all_tasks() - {asyncio.current_task()}
    for task in known:
        task.cancel()
    _, left = await asyncio.wait(known, timeout=5)
    over.set()

    assert (known, left) == ({waiting}, set())


async def test_a_server_that_begins_to_listen_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused connections are tried again until one is accepted."""
    refused = 0

    async def connect(host: str, port: int) -> asyncio.StreamWriter:
        nonlocal refused
        try:
            return await open_connection(host, port)
        except ConnectionRefusedError:
            refused += 1
            if refused == 2:
                server.listen()
            raise

    monkeypatch.setattr(tasks, "open_connection", connect)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        await connected(*server.getsockname())

    assert refused == 2


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A hub that has started, with a real database; what fails is repeated at once."""
    monkeypatch.setattr(background, "RETRY_SECONDS", 0.0)
    with hub_session() as session:
        yield SimpleNamespace(db=session, http_server=object())


def break_session(session: Session) -> None:
    """A failed flush, after which JupyterHub's session cannot be used until it is rolled back."""
    session.add_all((orm.User(name="ann"), orm.User(name="ann")))
    session.flush()


FAULTS = {
    "the database": (break_session, "(sqlite3.IntegrityError) UNIQUE constraint failed: users.name"),
    "Slurm": (SlurmUnavailable("squeue got no answer."), "squeue got no answer."),
    "no thread can be started": (RuntimeError("can't start new thread"), "can't start new thread"),
    "what wants to end the hub": (SystemExit(3), "SystemExit: 3"),
    "what somebody else has cancelled": (asyncio.CancelledError(), "CancelledError: "),
    "a name that is not UTF-8": (UnicodeEncodeError("utf-8", "\udcff", 0, 1, "surrogates"), None),
}


@about_sqlite
@pytest.mark.parametrize(("fault", "message"), FAULTS.values(), ids=FAULTS.keys())
async def test_whatever_fails_in_the_background_is_logged_once_and_goes_on(
    app: Any, caplog: pytest.LogCaptureFixture, fault: Any, message: str | None
) -> None:
    """Three failures in a row are one line of the log; JupyterHub's session can be used after each."""
    users: list[object] = []

    async def work() -> float | None:
        users.append(app.db.query(orm.User).all())
        if len(users) in (1, 2, 3, 5):
            if isinstance(fault, BaseException):
                raise fault
            fault(app.db)
        return 0.0 if len(users) < 6 else None

    caplog.set_level("INFO")
    await every(app, 0, work, "The look")

    assert users == [[]] * 6
    failed = f"The look failed and is repeated: {fault if message is None else message}"
    logged = [record.getMessage() for record in caplog.records if record.getMessage().startswith("The look")]
    assert logged == [failed, "The look works again", failed, "The look works again"]


async def test_another_fault_is_logged_beside_the_first(app: Any, caplog: pytest.LogCaptureFixture) -> None:
    """An admin who mends the first has to know of the second."""
    faults = [RuntimeError("one"), RuntimeError("two")]

    def work() -> None:
        if faults:
            raise faults.pop(0)

    await every(app, 0, work, "The look")

    assert [record.getMessage().rpartition(" ")[2] for record in caplog.records if record.levelname == "ERROR"] == [
        "one",
        "two",
    ]


async def test_background_work_begins_when_the_hub_listens_and_ends_with_its_task(
    app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cancellation is not taken for a fault."""
    monkeypatch.setattr(background, "_START_POLL_SECONDS", 0.0)
    app.http_server, begun, runs = None, asyncio.Event(), 0

    async def work() -> None:
        nonlocal runs
        runs += 1
        begun.set()
        await asyncio.Event().wait()

    task = every(app, 60.0, work, "The look")
    for _ in range(10):
        await asyncio.sleep(0)
    assert runs == 0
    app.http_server = object()
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert runs == 1


async def test_a_pause_ends_when_something_has_changed(app: Any) -> None:
    """An hour is not waited for."""
    changed, runs = asyncio.Event(), asyncio.Queue[None]()
    task = every(app, 3600.0, lambda: runs.put_nowait(None), "The look", wake=changed)
    for _ in range(3):
        await runs.get()
        changed.set()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


PROGRAM = """
import asyncio, gc, json, sys
from types import SimpleNamespace
from jupyterhub.app import JupyterHub
from traitlets.config import Config
from jupyterhub_gpuspawner.hub.site import background
from jupyterhub_gpuspawner.hub.site.background import every
from jupyterhub_gpuspawner.hub.site.event_loop import begin_garbage
from jupyterhub_gpuspawner.hub.site.metrics import ServersWithJobs
from jupyterhub_gpuspawner.hub.site.state import KEY, HubState
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner

background._START_POLL_SECONDS = 0.01
state = HubState()
STORED = {"version": 2, "kind": "slurm", "profile": "light", "job_id": "7"}
loaded = gc.get_freeze_count()  # Python 3.12 has set some aside itself

def restored():
    spawner = GPUProfilesSpawner(user=SimpleNamespace(name="ada", settings={KEY: state}), config=Config())
    spawner.load_state(STORED)
    return spawner

async def hub():
    app = JupyterHub()
    app.db = None
    begin_garbage(app)  # JupyterHub restores its servers next, and listens then
    servers = [restored() for _ in range(200)]
    listening, app.http_server = asyncio.Event(), object()
    every(app, 0, listening.set, "The test's own look")
    await listening.wait()
    aside, left, there = gc.get_freeze_count() - loaded, len(gc.get_objects()), len(state.of(ServersWithJobs))
    servers.clear()
    gc.collect()
    print(json.dumps([aside, left, there, len(state.of(ServersWithJobs)), sys.getswitchinterval()]))

asyncio.run(hub())
"""


def test_the_objects_of_a_hub_are_set_aside_and_its_restored_servers_are_not() -> None:
    """Nearly all that it has loaded; of 200 servers that it restores next, each is freed when it has ended."""
    answer = subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM], capture_output=True, text=True, check=True)
    aside, left, restored, kept, switch_seconds = json.loads(answer.stdout)

    assert (restored, kept) == (200, 0)
    assert aside > left
    assert switch_seconds == pytest.approx(0.001)  # a thread that reads a large answer gives way
