"""Servers that JupyterHub shows as ready and does not poll are taken up or stopped."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sqlalchemy.orm import Session
from traitlets.config import Config

from jupyterhub_gpuspawner.hub.lost_jobs import Unfinished, begin_slugs, read_slugs
from jupyterhub_gpuspawner.hub.site.state import KEY, HubState
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.spawners.server import HubSite, site_of, with_profiles
from jupyterhub_gpuspawner.hub.spawners.shared_folder import SharedFolder
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.site.people import stored_slugs
from tests.fixtures.databases import hub_session, new_database


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


def hub(profiles: str, session: Session) -> Any:
    """A hub that has started, with these profiles."""
    state = HubState()
    state.keep(HubSite(GPUProfilesSpawner(config=Config({"GPUProfilesSpawner": {"profiles_dir": profiles}}))))
    return SimpleNamespace(tornado_settings={KEY: state}, db=session, http_server=object())


def folder_of(app: Any) -> SharedFolder:
    site = with_profiles(site_of(app.tornado_settings))
    assert site is not None
    folder = site.source.folder
    assert folder is not None
    return folder


async def test_the_owner_of_a_slug_is_known_to_the_next_hub_and_to_the_check(tmp_path: Path) -> None:
    """An editor writes the file of the older profile anew, so that it is the newer file when the hub is started."""
    profiles = tmp_path / "profiles"
    profiles.mkdir()
    (profiles / "old.yaml").write_text("display_name: P\ndescription: old\n")
    url = new_database(tmp_path)
    config = Config({"JupyterHub": {"db_url": url}})
    with hub_session(url) as session:
        first = hub(str(profiles), session)
        begin_slugs(first)
        folder_of(first).first_reading()
        while not stored_slugs(config):  # noqa: ASYNC110 - another task writes to a database
            await asyncio.sleep(0.01)
        (profiles / "new.yaml").write_text("display_name: P\ndescription: new\n")
        (profiles / "old.yaml").unlink()
        (profiles / "old.yaml").write_text("display_name: P\ndescription: old\n")

        assert stored_slugs(config) == {"p": "old.yaml"}
        second = hub(str(profiles), session)
        begin_slugs(second)
        assert [profile.description for profile in folder_of(second).besides(())] == ["old"]
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()


async def test_a_file_with_an_odd_name_keeps_no_other_from_its_slug(tmp_path: Path) -> None:
    """A name that is not UTF-8 is a fault of that file alone."""
    (tmp_path / "old.yaml").write_text("display_name: P\n")
    (tmp_path / os.fsdecode(b"gro\xdf.yaml")).write_text("display_name: Q\n")
    with hub_session() as session:
        app = hub(str(tmp_path), session)
        folder = folder_of(app)
        folder.first_reading()
        begin_slugs(app)
        while not read_slugs(session):  # noqa: ASYNC110 - another task writes to a database
            await asyncio.sleep(0.01)

        assert read_slugs(session) == {"p": "old.yaml"}
        assert [str(fault) for fault in folder.errors] == ["gro\\udcdf.yaml: the name of the file is not UTF-8"]
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
