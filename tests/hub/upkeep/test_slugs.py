"""The hub writes down which file each profile's slug belongs to, for its next start and for the check."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest
from traitlets.config import Config

from jupyterhub_gpuspawner.check.people import stored_slugs
from jupyterhub_gpuspawner.hub.spawners.profile_source import SharedFolder
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.upkeep import slugs
from jupyterhub_gpuspawner.hub.upkeep.slugs import keep_slugs, register_slugs
from tests.fixtures.databases import hub_session, new_database


async def test_the_owner_of_a_slug_is_known_to_the_next_hub_and_to_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An editor writes the file of the older profile anew, so that it is the newer file when the hub is started."""
    profiles = tmp_path / "profiles"
    profiles.mkdir()
    (profiles / "old.yaml").write_text("display_name: P\ndescription: old\n")
    url = new_database(tmp_path)
    config = Config({"JupyterHub": {"db_url": url}, "GPUProfilesSpawner": {"profiles_dir": str(profiles)}})
    with hub_session(url) as session:
        first = SharedFolder(str(profiles))
        first.first_look()
        monkeypatch.setattr(slugs, "LOOK", 0.01)
        writing = asyncio.create_task(keep_slugs(first, session))
        while not stored_slugs(config):  # noqa: ASYNC110 - another task writes to a database
            await asyncio.sleep(0.01)
        writing.cancel()
        (profiles / "new.yaml").write_text("display_name: P\ndescription: new\n")
        (profiles / "old.yaml").unlink()
        (profiles / "old.yaml").write_text("display_name: P\ndescription: old\n")

        assert stored_slugs(config) == {"p": "old.yaml"}
        begun: list[object] = []
        app = SimpleNamespace(
            spawner_class=GPUProfilesSpawner,
            config=config,
            db=session,
            observe=lambda begin, _name: begun.append(begin(None)),
        )
        register_slugs(app)
        folder = GPUProfilesSpawner(config=config).source.folder
        assert folder is not None
        assert [profile.description for profile in folder.besides(())] == ["old"]
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
