"""Servers that JupyterHub shows as ready and does not poll are taken up or stopped."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.hub.unfinished import Unfinished


class Lost(GPUSlurmSpawner):
    """A spawner that the hub shows as ready, with a record of what is done with it."""

    server: Any = None  # JupyterHub's reads the database

    def __init__(self, name: str, *, port: int, status: int | None, polled: bool = False) -> None:
        super().__init__(orm_spawner=SimpleNamespace(name=name, server=None), user=SimpleNamespace(name="ann", url="/"))
        self.server = SimpleNamespace(port=port)
        self.report.port = 2000
        self.status = status
        self.done: list[str] = []
        if polled:
            self.add_poll_callback(print)

    async def start(self) -> None: ...

    async def stop(self, now: bool = False) -> None: ...

    async def poll(self) -> int | None:
        return self.status

    def start_polling(self) -> None:
        self.done.append("polled")


async def test_a_server_that_nobody_watches_is_taken_up_or_stopped() -> None:
    """In the second check: polled from now on if a process runs at the port that the hub knows, else stopped."""
    runs, gone = Lost("runs", port=2000, status=None), Lost("gone", port=2000, status=1)
    half, well = Lost("half", port=0, status=None), Lost("well", port=2000, status=None, polled=True)
    spawners = {spawner.name: spawner for spawner in (runs, gone, half, well)}

    class Proxy:
        async def add_user(self, _: Any, name: str) -> None:
            spawners[name].done.append("routed")

        async def delete_user(self, _: Any, name: str) -> None:
            spawners[name].done.append("unrouted")

    class User:
        name = "ann"

        def __init__(self) -> None:
            self.spawners = spawners

        async def stop(self, name: str) -> None:
            spawners[name].done.append("stopped")

    check = Unfinished(SimpleNamespace(users={1: User()}, proxy=Proxy(), db=None)).run_once
    await check()
    assert [spawner.done for spawner in spawners.values()] == [[], [], [], []]
    await check()

    assert {name: spawner.done for name, spawner in spawners.items()} == {
        "runs": ["routed", "polled"],
        "gone": ["unrouted", "stopped"],
        "half": ["unrouted", "stopped"],
        "well": [],
    }


async def test_a_server_that_its_user_stops_meanwhile_is_left_alone() -> None:
    """Two stops of one server side by side would end the next one."""

    class Stopped(Lost):
        async def poll(self) -> int | None:
            self._stop_pending = True
            return self.status

    lost = Stopped("gone", port=2000, status=1)
    user = SimpleNamespace(name="ann", spawners={"gone": lost})
    check = Unfinished(SimpleNamespace(users={1: user}, proxy=None, db=None)).run_once
    await check()
    await check()

    assert (lost.done, lost.ended.last) == ([], None)
