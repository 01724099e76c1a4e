"""The stream of the home page while the hub's database is away."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import requests

from jupyterhub_gpuspawner.demo.hub import HubProcess
from tests.fixtures.hubs import StartHub
from tests.fixtures.postgres import PrivatePostgres
from tests.hub.test_database import CONFIG, OUTAGE
from tests.hub.visitor import Visitor
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

LOOKS = """
from jupyterhub_gpuspawner.extensions.live_pages import home
home.LATER = 1.0
"""


@pytest.fixture(scope="module")
def hub(start_light_hub: StartHub, postgres: PrivatePostgres) -> Iterator[HubProcess]:
    """A hub with a Postgres database."""
    hub = start_light_hub(lines=CONFIG.replace("URL", repr(postgres.url)) + LOOKS)
    yield hub
    hub.stop()


def test_a_home_page_that_is_open_while_postgres_is_away_goes_on(hub: HubProcess, postgres: PrivatePostgres) -> None:
    """Its stream says so, without a traceback at each look, and tells what has changed when the database is back."""
    visitor, log = Visitor(hub, "lea"), len(hub.log_end(10**7))
    with visitor.session.get(f"{hub.url}/hub/gpuspawner/home/events", stream=True, timeout=60) as stream:
        lines = (line for line in stream.iter_lines(chunk_size=1) if line.startswith((b'data: {"', b"event: ")))
        assert b"gpuspawner-first" in next(lines)
        with postgres.away():
            requests.get(f"{hub.url}/hub/api/users", headers={"Authorization": f"token {hub.token}"}, timeout=30)
            time.sleep(OUTAGE)  # JupyterHub has rolled its session back: whatever is looked at is read again
        wait_until(lambda: visitor.session.get(f"{hub.url}/hub/home", timeout=30).ok, hub.log_end, seconds=30)
        hub.spawn("lea", {"profile": "light"})

        assert [next(lines), next(lines)] == [b"event: away", b"event: back"]
        assert b"gpuspawner-first" not in next(lines), hub.log_end()
    assert "Uncaught exception GET /hub/gpuspawner/home/events" not in hub.log_end(10**7)[log:]
