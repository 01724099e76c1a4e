"""The steps of a start until its job is submitted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jupyterhub.spawner import SimpleLocalProcessSpawner
from sqlalchemy.exc import IntegrityError, OperationalError
from traitlets.config import Config

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.site.database import StoredState
from jupyterhub_gpuspawner.hub.spawners import slurm
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.hub.start.attempt import Attempt
from jupyterhub_gpuspawner.tasks import in_background
from tests.fixtures.databases import hub_session, new_database

AWAY = OperationalError("SELECT", {}, Exception("the database system is shutting down"))


class Spawner(GPUSlurmSpawner):
    """A spawner whose rows cannot be read while the database is away."""

    name = "lab"

    def __init__(self, session: Any) -> None:
        self.away = False
        self.jobs_of: list[str] = []
        super().__init__(exec_prefix="", dangerously_run_servers_as_root=True)
        self.row = Stored(session)

    @property
    def user(self) -> Any:
        if self.away:
            raise AWAY
        return SimpleNamespace(name="ann", settings={})

    async def account(self, _settings: object = None, _connection: object = None) -> Any:
        self.away = True

    def batch_job(self, _account: object) -> Any:
        self.jobs_of.append(self.user.name)
        raise ConfigError("that is all of it")


class Stored(StoredState):
    """The state in a database of this session."""

    def __init__(self, session: Any) -> None:
        self._session = session

    @property
    def session(self) -> Any:
        return self._session


async def test_a_database_that_goes_away_while_the_account_is_looked_up_costs_no_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of which the job is made are read when it is there again."""

    async def nobody_is_root(_name: str) -> None: ...

    monkeypatch.setattr("jupyterhub_gpuspawner.hub.site.database.PAUSES", (0.01,))
    monkeypatch.setattr(slurm, "refuse_root", nobody_is_root)
    with hub_session(new_database(tmp_path)) as session:
        spawner = Spawner(session)
        commit, failures = session.commit, [AWAY, AWAY]

        def commit_later() -> None:
            if failures:
                raise failures.pop()
            commit()
            spawner.away = False

        monkeypatch.setattr(session, "commit", commit_later)
        with pytest.raises(Exception, match="it is not set up correctly"):
            await spawner.start()

    assert spawner.jobs_of == ["ann"]


# --- What Slurm makes of a deadline ---


class WithDeadline(GPUSlurmSpawner):
    """One whose job has a deadline, by which it has to begin at second 1,000."""

    def __init__(self, fault: Exception | None) -> None:
        super().__init__(config=Config())
        self.asked, self.may_answer, self.stored = asyncio.Event(), asyncio.Event(), 0
        self.row = SimpleNamespace(store_soon=partial(self.store, fault))  # type: ignore[assignment]

    def connection(self, _settings: object = None) -> Any:
        return SimpleNamespace(client=self)

    async def job(self, _job_id: str) -> Any:
        self.asked.set()
        await self.may_answer.wait()
        return SimpleNamespace(latest_start=1000.0)

    def store(self, fault: Exception | None) -> None:
        self.stored += 1
        if fault is not None:
            raise fault

    async def read(self, *, over: bool) -> float | None:
        """Ask for the deadline of a start, which may be over when the answer comes; return when it has to begin."""
        attempt = self.attempt = Attempt(start_id="1")
        task = in_background(self._read_deadline("12", attempt))
        await self.asked.wait()
        if over:
            self.attempt = Attempt()
        self.may_answer.set()
        await asyncio.wait({task})
        return attempt.latest


@pytest.mark.parametrize(("over", "latest", "stored"), [(False, 1000.0, 1), (True, None, 0)])
async def test_a_deadline_that_is_read_when_the_start_is_over_is_not_written(
    over: bool, latest: float | None, stored: int
) -> None:
    """The state would be that of a server that has gone, or of the next start."""
    spawner = WithDeadline(None)

    assert (await spawner.read(over=over), spawner.stored) == (latest, stored)


async def test_a_deadline_that_cannot_be_written_is_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever the fault; the start goes on."""
    await WithDeadline(IntegrityError("UPDATE", {}, Exception("NOT NULL"))).read(over=False)

    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("ERROR", "Work in the background failed")
    ]
    assert "NOT NULL" in caplog.text


# --- Whether a server still runs: only what is known ends it ---

FAULT = RuntimeError("can't start new thread")


class BrokenSlurm(GPUSlurmSpawner):
    """One that cannot ask."""

    def connection(self, _settings: object = None) -> Any:
        raise FAULT


class BrokenProfiles(GPUProfilesSpawner):
    """One that cannot ask, with profiles."""

    def connection(self, _settings: object = None) -> Any:
        raise FAULT


class BrokenOther(SimpleLocalProcessSpawner):  # type: ignore[misc]
    """Of another package, with a fault in its poll."""

    async def poll(self) -> int | None:
        raise FAULT


def stored(kind: str, child: dict[str, Any], **more: str) -> GPUProfilesSpawner:
    """The spawner of a restarted hub with this server."""
    spawner = BrokenProfiles(config=Config())
    spawner.load_state({"kind": kind, "child": child, **more})
    return spawner


def alone(spawner: Any, state: dict[str, Any]) -> Any:
    """A spawner of a hub without profiles, after a restart."""
    spawner.load_state(state)
    return spawner


SERVERS: dict[str, Callable[[], Any]] = {
    "a job": lambda: alone(BrokenSlurm(), {"job_id": "7"}),
    "a job of a profile": lambda: stored("slurm", {"job_id": "7"}),
    "another package's": lambda: stored("other", {"pid": 7}, **{"class": f"{__name__}.BrokenOther"}),
}


@pytest.mark.parametrize("kind", SERVERS)
async def test_a_server_runs_while_nothing_else_is_known(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever goes wrong in a poll is logged; JupyterHub would stop the server after a restart."""
    assert await SERVERS[kind]().poll() is None
    assert "could not be determined, and it is kept" in caplog.text
    assert "can't start new thread" in caplog.text


async def test_a_poll_can_be_cancelled() -> None:
    """As any other work of the hub's."""
    spawner = stored("local", {"pid": 7})
    spawner.child_spawner.poll = asyncio.Event().wait
    poll = asyncio.ensure_future(spawner.poll())
    await asyncio.sleep(0)
    poll.cancel()

    with pytest.raises(asyncio.CancelledError):
        await poll
