"""What is kept of a stop that a person asked for."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.hub.ending.record import Ending
from jupyterhub_gpuspawner.hub.spawners.server import Server
from jupyterhub_gpuspawner.hub.spawners.stop_record import stop_record
from jupyterhub_gpuspawner.jobs.status import JobStatus, Phase
from jupyterhub_gpuspawner.sessions.cause import Cause, Kind, Stopper
from jupyterhub_gpuspawner.wire.documents import NodeGrant, PlacedGpu, PlacementDocument

QUEUED = JobStatus("42", Phase.QUEUED)
ONE = PlacementDocument(job_id="42", gpus=(PlacedGpu(3),))
TOLD = {
    "a job with a GPU": (
        Server(ready=True, profile_name="K80", job_id="42", placement=ONE),
        "",
        "K80 was stopped at {time}; job 42 released 1 GPU.",
    ),
    "a job on two nodes, stopped by an admin": (
        Server(
            name="lab",
            display_name="My lab",
            ready=True,
            profile_name="K80",
            job_id="42",
            placement=PlacementDocument(gpus=(PlacedGpu(3),), other_nodes=(NodeGrant("g2", gpus=(0, 1)),)),
        ),
        "root",
        "K80 (server My lab) was stopped at {time} by root; job 42 released 3 GPUs.",
    ),
    "a job without a GPU": (
        Server(ready=True, job_id="42", placement=PlacementDocument(job_id="42")),
        "",
        "My server was stopped at {time}; job 42 was cancelled.",
    ),
    "no job": (Server(ready=True, profile_name="Here"), "", "Here was stopped at {time}."),
    "one that waits in line": (
        Server(pending="spawn", profile_name="K80", job_id="42", job=QUEUED),
        "",
        "K80 left the line at {time}; job 42 was cancelled.",
    ),
    "one that waits in line, stopped by an admin": (
        Server(pending="spawn", profile_name="K80", job_id="42", job=QUEUED),
        "root",
        "K80 left the line at {time}: root stopped it; job 42 was cancelled.",
    ),
}


@pytest.mark.parametrize(("server", "by", "told"), TOLD.values(), ids=TOLD.keys())
def test_a_stop_is_told(server: Server, by: str, told: str) -> None:
    """Which server, who stopped it if that was not its user, its job, and the GPUs that are free now."""
    stopper = Stopper.ADMIN if by else Stopper.OWNER
    cause = Cause(Kind.STOPPED_BY_ADMIN if by else Kind.STOPPED_BY_USER)

    found = stop_record(server, at=1.0, by=by, stopper=stopper)

    assert found == Ending(told, job_id=server.job_id, at=1.0, stopped=True, cause=cause)
