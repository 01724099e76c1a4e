"""A hub created from a backup of another hub leaves the jobs of that hub alone."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.fixtures.hubs import StartHub, new_hub, wait_for_queries
from tests.fixtures.postgres import about_sqlite
from tests.hub.servers import state
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.nightly]

CONFIG = """
from jupyterhub_gpuspawner.slurm import watcher
watcher.ACTIVE_INTERVAL = 0.5
from jupyterhub_gpuspawner.hub.site import slurm_settings
slurm_settings.RECONCILE_INTERVAL = 0.5
from jupyterhub_gpuspawner.hub import lost_jobs
lost_jobs.CONFIRMED_AFTER = 1.0
"""


@about_sqlite
def test_a_hub_made_from_a_backup_cancels_none_of_productions_servers(
    start_light_hub: StartHub, slurm_cluster: PrivateSlurm, tmp_path: Path
) -> None:
    """The copy has the same secret, name and database; older, newer and restarted servers all keep running."""
    production = start_light_hub(lines=CONFIG)
    for user in ("old", "again"):
        production.spawn(user, {"profile": "light"})
    copy = new_hub(slurm_cluster, tmp_path / "copy", lines=CONFIG)
    with (
        sqlite3.connect(production.folder / "hub.sqlite") as database,
        sqlite3.connect(copy.folder / "hub.sqlite") as backup,
    ):
        database.backup(backup)
    shutil.copy(production.folder / "cookie_secret", copy.folder / "cookie_secret")
    production.end("again")
    jobs = {user: production.spawn(user, {"profile": "light"})["job_id"] for user in ("new", "again")}

    copy.start()
    try:
        left_alone = [f"Job {job} (jupyterhub-gpuspawner/demo/{user}/#" for user, job in jobs.items()]
        wait_until(lambda: all(words in copy.log.read_text() for words in left_alone), copy.log_end)
        wait_for_queries(copy, 8)  # an orphan is confirmed by two checks; the watcher of its servers looks as often
        text = copy.log.read_text()
    finally:
        assert copy.process is not None
        os.killpg(copy.process.pid, signal.SIGKILL)  # a hub that exits normally stops its servers
        copy.process.wait()
        copy.process = None
        copy.stop()  # its proxy

    assert text.count("It is not cancelled.") == len(jobs)
    assert "cancelling" not in text
    assert [state(slurm_cluster, job) for job in jobs.values()] == ["RUNNING", "RUNNING"]
    production.wait("old", ready=True)

    for user in ("old", *jobs):
        production.end(user)
    production.stop()
