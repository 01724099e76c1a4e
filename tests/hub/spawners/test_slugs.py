"""Which file a profile's slug belongs to, over restarts of the hub."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from traitlets.config import Config

from jupyterhub_gpuspawner.hub.spawners.shared_folder import SharedFolder, begin_slugs, read_slugs
from jupyterhub_gpuspawner.site.people import stored_slugs
from tests.fixtures.databases import hub_session, new_database


async def test_the_owner_of_a_slug_is_known_to_the_next_hub_and_to_the_check(tmp_path: Path) -> None:
    """An editor writes the file of the older profile anew, so that it is the newer file when the hub is started."""
    profiles = tmp_path / "profiles"
    profiles.mkdir()
    (profiles / "old.yaml").write_text("display_name: P\ndescription: old\n")
    url = new_database(tmp_path)
    config = Config({"JupyterHub": {"db_url": url}})
    with hub_session(url) as session:
        app: Any = SimpleNamespace(db=session, http_server=object())
        first = SharedFolder(str(profiles))
        begin_slugs(app, first)
        first.first_reading()
        while not stored_slugs(config):  # noqa: ASYNC110 - another task writes to a database
            await asyncio.sleep(0.01)
        (profiles / "new.yaml").write_text("display_name: P\ndescription: new\n")
        (profiles / "old.yaml").unlink()
        (profiles / "old.yaml").write_text("display_name: P\ndescription: old\n")

        assert stored_slugs(config) == {"p": "old.yaml"}
        second = SharedFolder(str(profiles))
        begin_slugs(app, second)
        assert [profile.description for profile in second.besides(())] == ["old"]
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()


async def test_a_file_with_an_odd_name_keeps_no_other_from_its_slug(tmp_path: Path) -> None:
    """A name that is not UTF-8 is a fault of that file alone."""
    (tmp_path / "old.yaml").write_text("display_name: P\n")
    (tmp_path / os.fsdecode(b"gro\xdf.yaml")).write_text("display_name: Q\n")
    with hub_session() as session:
        folder = SharedFolder(str(tmp_path))
        folder.first_reading()
        begin_slugs(SimpleNamespace(db=session, http_server=object()), folder)
        while not read_slugs(session):  # noqa: ASYNC110 - another task writes to a database
            await asyncio.sleep(0.01)

        assert read_slugs(session) == {"p": "old.yaml"}
        assert [str(fault) for fault in folder.errors] == ["gro\\udcdf.yaml: the name of the file is not UTF-8"]
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
