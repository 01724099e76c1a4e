"""The wait of one job: what is said of its start, and when that is kept."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.hub.job.session import Promise, PromiseMoment
from jupyterhub_gpuspawner.hub.start.attempt import Wait, expected_start
from jupyterhub_gpuspawner.slurm.estimate import UNKNOWN, QueuePosition, Span, expected
from jupyterhub_gpuspawner.slurm.job import Job, Phase
from tests.snapshots import NOW

JOB = Job("9", Phase.QUEUED, "PENDING", "Priority", partition="gpu", starts_at=NOW + 3600)


def test_a_promise_is_kept_at_the_start_and_at_each_half_of_the_rest() -> None:
    """Until less than a minute is left; nothing is kept of what is not known, or overdue."""
    wait, promises = Wait(), list[Promise]()
    for now in range(int(NOW), int(NOW) + 4000, 10):
        for estimate in (UNKNOWN, expected(NOW + 3600, now=now)):
            promise = wait.follow(estimate, "gpu", now=now)
            promises += [promise] if promise is not None else []

    assert [(promise.moment, promise.at - NOW) for promise in promises[:4]] == [
        (PromiseMoment.QUEUED, 0),
        (PromiseMoment.HALF, 1800),
        (PromiseMoment.HALF, 2700),
        (PromiseMoment.HALF, 3150),
    ]
    assert len(promises) < 12


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
