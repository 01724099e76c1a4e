"""What the hub's log warns of when it starts."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from jupyterhub import orm
from jupyterhub.app import JupyterHub
from traitlets.config import Config

from jupyterhub_gpuspawner.extensions.startup_warnings.hub import log_warnings, servers_on_removed
from tests.fixtures.databases import hub_session


def test_each_warning_is_one_line(
    tmp_path: Path, public_folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a hub for which there is every one."""
    database = public_folder / "open.sqlite"
    database.touch()
    database.chmod(0o644)
    (tmp_path / "page.html").write_text("<html></html>")
    monkeypatch.setattr("sys.getfilesystemencoding", lambda: "latin-1")
    app = JupyterHub(
        config=Config(Authenticator={"allowed_users": {"#0"}}),
        db_url=f"sqlite:///{database}",
        template_paths=[str(tmp_path)],
        log=logging.getLogger("hub"),
    )
    log_warnings(app)
    database.unlink()

    assert [
        record.getMessage().partition(": ")[2].partition(",")[0].partition(" (")[0] for record in caplog.records
    ] == [
        "the hub's locale has the encoding latin-1",
        "the hub's database can be read by others",
        "c.Authenticator.allowed_users: '#0' is not a valid user name.",
        f"{tmp_path / 'page.html'}: pages do not show what is told to users",
        "c.JupyterHub.cleanup_servers: it is not set",
    ]


def test_whose_servers_are_on_clusters_that_were_removed_is_known() -> None:
    """With or without a child; a server that has ended, and one whose cluster is named, are none."""
    on = {name: {"job_id": "7", "cluster": {"name": name}} for name in ("juniper", "cedar", "oak")}
    running: list[dict[str, Any]] = [on["juniper"], on["cedar"], {"child": on["cedar"]}, on["oak"], {"job_id": "7"}]
    with hub_session() as db:
        ann = orm.User(name="ann")
        db.add_all(
            orm.Spawner(name=str(n), user=ann, server=orm.Server(), state=state) for n, state in enumerate(running)
        )
        db.add(orm.Spawner(name="ended", user=ann, state=on["cedar"]))
        db.commit()

        assert servers_on_removed(db, ["juniper"]) == {"cedar": ["ann", "ann"], "oak": ["ann"]}
        assert servers_on_removed(db, on) == {}
