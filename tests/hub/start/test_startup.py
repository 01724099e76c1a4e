"""The steps of a start until its job is submitted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jupyterhub.spawner import SimpleLocalProcessSpawner
from sqlalchemy.exc import OperationalError
from traitlets.config import Config

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.site.database import StoredState
from jupyterhub_gpuspawner.hub.spawners import slurm
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from tests.fixtures.databases import hub_session, new_database

AWAY = OperationalError("SELECT", {}, Exception("the database system is shutting down"))


class Spawner(GPUSlurmSpawner):
    """A spawner whose rows cannot be read while the database is away."""

    name = "lab"

    def __init__(self, session: Any) -> None:
        self.away = False
        self.jobs_of: list[str] = []
        super().__init__(exec_prefix="")
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


# --- Whether a server still runs: only what is known ends it ---

FAULT = RuntimeError("can't start new thread")


class BrokenSlurm(GPUSlurmSpawner):
    """One that cannot ask."""

    def connection(self) -> Any:
        raise FAULT


class BrokenProfiles(GPUProfilesSpawner):
    """One that cannot ask, with profiles."""

    def connection(self) -> Any:
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
