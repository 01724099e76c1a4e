"""Whether a server still runs: only what is known ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from jupyterhub.spawner import SimpleLocalProcessSpawner
from traitlets.config import Config

from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner

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
