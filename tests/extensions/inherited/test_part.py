"""The card of a server that batchspawner started says where it runs, by Slurm's word."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyterhub_gpuspawner.extensions.inherited.part import Shown, parts_of
from jupyterhub_gpuspawner.hub.spawners.server import Server
from jupyterhub_gpuspawner.slurm.job import Job, Phase
from jupyterhub_gpuspawner.wire.documents import PlacementDocument

JOB = Job("7", Phase.RUNNING, "RUNNING", batch_host="g1", nodes="g1", ends_at=1_795_600_000.0)
ADOPTED = Server("ann", ready=True, job_id="7", job=JOB)
SERVERS = {
    "batchspawner's": (ADOPTED, [Shown("It runs on g1 until {time}.", "2026-11-25T09:46:40+00:00")]),
    "without a time limit": (replace(ADOPTED, job=replace(JOB, ends_at=None)), [Shown("It runs on g1.", None)]),
    "one that has reported": (replace(ADOPTED, placement=PlacementDocument(job_id="7", node="g1")), []),
    "one that starts": (replace(ADOPTED, ready=False, pending="spawn"), []),
    "one that is stopped": (replace(ADOPTED, pending="stop"), []),
    "one of which Slurm has not said anything": (replace(ADOPTED, job=None), []),
    "one that is no job": (replace(ADOPTED, job=None, job_id=""), []),
}


@pytest.mark.parametrize(("server", "shown"), SERVERS.values(), ids=SERVERS.keys())
def test_a_server_that_no_launcher_has_reported(server: Server, shown: list[Shown]) -> None:
    """Only one that runs."""
    assert [part.shown for part in parts_of(None, server)] == shown
