"""The steps of a start until its job is submitted."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.site.database import StoredState
from jupyterhub_gpuspawner.hub.spawners import slurm
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

    async def account(self, _settings: object = None) -> Any:
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
