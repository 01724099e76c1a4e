"""The hub's database takes no changes for a while, as with a read-only mount or a full disk: who reads what."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import requests
from bs4 import BeautifulSoup

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.hub.site.database import UNAVAILABLE
from tests.fixtures.hubs import StartHub
from tests.hub.visitor import Visitor
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.nightly]

CONFIG = """
c.JupyterHub.db_url = "sqlite:///hub.sqlite"
c.JupyterHub.db_kwargs = {"connect_args": {"timeout": 0.1}}
from jupyterhub_gpuspawner.hub.site import database
database.OUTAGE_RETRY_SECONDS, database.LINE_SECONDS = 0.5, 600.0
"""
"""The look at the database that fails is twice a second, and a second line is not due."""
TAKES_NONE = "The hub's database takes no changes"


@contextmanager
def write_lock(hub: HubProcess) -> Iterator[None]:
    """Another program has begun a change and does not end it: the hub can read, and write nothing."""
    with closing(sqlite3.connect(hub.folder / "hub.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


def test_a_database_that_takes_no_changes_is_said_to_everybody(start_light_hub: StartHub) -> None:
    """The person at their click and at the door, the admin in one line of the log and in ``gpuspawner check``."""
    hub = start_light_hub(lines=CONFIG)
    ann = Visitor(hub, "ann")
    form = ann.look("/hub/spawn")
    before = len(hub.log.read_text())

    with write_lock(hub):
        start = ann.send(form, {"profile": "light"})
        session = requests.Session()
        session.get(f"{hub.url}/hub/login", timeout=30)
        fields = {"username": "bob", "password": hub.password, "_xsrf": session.cookies["_xsrf"]}
        login = session.post(f"{hub.url}/hub/login", data=fields, timeout=30)
        command = [str(Path(sys.executable).with_name("gpuspawner")), "check", "--json", "--config"]
        checked = subprocess.run(
            [*command, str(hub.write_configuration())], cwd=hub.folder, check=False, capture_output=True, timeout=60
        )
    wait_until(lambda: "The hub's database takes changes again" in hub.log.read_text(), hub.log_end)
    sentence = f"{UNAVAILABLE.sentence} {UNAVAILABLE.advice}"
    document = json.loads(checked.stdout)
    lines = [line for line in hub.log.read_text()[before:].splitlines() if TAKES_NONE in line]

    for page in (start.soup, BeautifulSoup(login.text, "html.parser")):  # JupyterHub's own page of an error, or ours
        assert sentence in " ".join(page.get_text(" ").split())
    assert [finding["code"] for finding in document["findings"] if finding["severity"] == "error"] == [
        "database-read-only"
    ]
    assert [line.partition("] ")[2].partition(". Look")[0] for line in lines] == [  # not one for each failed write
        f"{TAKES_NONE}, so nobody can sign in, and no server starts or stops: "
        "(sqlite3.OperationalError) database is locked"
    ]
    ann.send(ann.look("/hub/spawn"), {"profile": "light"})
    hub.wait("ann", ready=True)
