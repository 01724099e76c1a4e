"""The wait of one job: what is said of its start, and when that is kept."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.hub.start.attempt import expected_start
from jupyterhub_gpuspawner.slurm.estimate import UNKNOWN, QueuePosition, Span
from jupyterhub_gpuspawner.slurm.job import Job, Phase
from tests.snapshots import NOW

JOB = Job("9", Phase.QUEUED, "PENDING", "Priority", partition="gpu", starts_at=NOW + 3600)


def test_the_range_is_that_of_waits_in_the_partition_of_the_job() -> None:
    """The plan is that of the view of the queue, where it has one."""

    def waits(partition: str, planned: float) -> Span | None:
        return Span(600, 1800, 3600) if (partition, planned) == ("gpu", 7200) else None

    words, elsewhere = (
        expected_start(JOB, QueuePosition(1, 1, partition, starts_at=NOW + 7200), now=NOW, waits=waits).span(NOW)
        for partition in ("gpu", "cpu")
    )

    assert (words, elsewhere) == ("in 10 min to 1 h", "within 2 h")
    assert expected_start(JOB, None, now=NOW).span(NOW) == "within 1 h"


@pytest.mark.parametrize("reason", ["BadConstraints", "JobHeldUser"])
def test_a_job_that_does_not_start_by_itself_has_no_expected_start(reason: str) -> None:
    """Whatever Slurm has planned for it."""
    assert expected_start(Job("9", Phase.QUEUED, reason=reason, starts_at=NOW), None, now=NOW) == UNKNOWN
