"""The steps of a start until its job is submitted."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.start import startup
from jupyterhub_gpuspawner.hub.start.startup import Startup
from tests.fixtures.databases import hub_session, new_database

AWAY = OperationalError("SELECT", {}, Exception("the database system is shutting down"))


class Server:
    """A spawner whose rows cannot be read while the database is away."""

    start_timeout, queue_limit, name, cert_paths, exec_prefix = 30, None, "lab", dict[str, str](), ""
    life = SimpleNamespace(begin=lambda *_, **__: None, waited_for=lambda _: None, fault="")
    log = logging.getLogger()

    def __init__(self) -> None:
        self.away = False
        self.jobs_of: list[str] = []
        self.orm_spawner = None

    @property
    def user(self) -> Any:
        if self.away:
            raise AWAY
        return SimpleNamespace(name="ann", settings={})

    def connection(self) -> None: ...

    async def account(self) -> None:
        self.away = True

    def batch_job(self, _account: object) -> None:
        self.jobs_of.append(self.user.name)
        raise ConfigError("that is all of it")


async def test_a_database_that_goes_away_while_the_account_is_looked_up_costs_no_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of which the job is made are read when it is there again."""

    async def nobody_is_root(_name: str) -> None: ...

    monkeypatch.setattr("jupyterhub_gpuspawner.hub.site.database.PAUSES", (0.01,))
    monkeypatch.setattr(startup, "refuse_root", nobody_is_root)
    monkeypatch.setattr(startup, "require_registration", lambda: None)
    part, server = SimpleNamespace(forget=lambda: None, contact="the help desk"), Server()
    with hub_session(new_database(tmp_path)) as session:
        commit, failures = session.commit, [AWAY, AWAY]

        def commit_later() -> None:
            if failures:
                raise failures.pop()
            commit()
            server.away = False

        monkeypatch.setattr(session, "commit", commit_later)
        parts: Any = (server, part, part, part, SimpleNamespace(session=session))
        with pytest.raises(Exception, match="it is not set up correctly"):
            await Startup(*parts, name="ann:lab").run()

    assert server.jobs_of == ["ann"]
