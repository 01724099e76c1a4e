"""What a person reads while a server starts."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.hub.progress import event
from jupyterhub_gpuspawner.job import JobStatus, Phase
from jupyterhub_gpuspawner.wire import PlacedGpu, PlacementDocument

QUEUED = JobStatus("7", Phase.QUEUED, "PENDING", "Priority")
RUNNING = JobStatus("7", Phase.RUNNING, "RUNNING", nodes="g1", batch_host="g1")
PLACED = PlacementDocument(node="g1", gpus=(PlacedGpu(0, name="Tesla K80"), PlacedGpu(1, name="Tesla K80")), cpus="0-7")
TOLD: dict[str, tuple[tuple[str, JobStatus | None, PlacementDocument | None, bool], int, str]] = {
    "nothing is known": (("", None, None, False), 5, "Asking Slurm for a job."),
    "there is a job": (("7", None, None, False), 10, "Submitted as job 7."),
    "it waits": (("7", QUEUED, None, False), 20, "Job 7: Waiting behind other jobs."),
    "Slurm is silent": (
        ("7", QUEUED, None, True),
        20,
        "Job 7: Slurm does not answer at the moment. The job is kept.",
    ),
    "it runs": (("7", RUNNING, None, False), 60, "Job 7: The job is running on g1."),
    "it has reported": (
        ("7", RUNNING, PLACED, False),
        85,
        "Job 7: running on g1, 2 x Tesla K80, cores 0-7. The server is starting.",
    ),
}


@pytest.mark.parametrize(("known", "percent", "sentence"), TOLD.values(), ids=TOLD.keys())
def test_what_is_known_becomes_one_sentence(
    known: tuple[str, JobStatus | None, PlacementDocument | None, bool], percent: int, sentence: str
) -> None:
    """And a percentage that only grows."""
    job_id, job, placement, silent = known

    assert event(job_id, job, placement, silent=silent) == {"progress": percent, "message": sentence}
