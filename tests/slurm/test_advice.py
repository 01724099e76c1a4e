"""Advice for a participant whose job is pending or has ended."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.slurm.job import End, Job, Phase, advice
from jupyterhub_gpuspawner.slurm.reason import never_clears


def waiting(reason: str) -> str:
    """The advice for a job pending for this reason."""
    return advice(Job("7", Phase.QUEUED, "PENDING", reason))


def ended(end: End, exit_code: str = "") -> str:
    """The advice for a job that ended this way."""
    return advice(Job("7", Phase.ENDED, end=end, exit_code=exit_code))


BY_ITSELF = "It starts automatically; you only have to wait."
LESS = "A smaller choice (fewer GPUs, cores, less memory or time) may start sooner."
ADMIN = "Please contact your administrator: this choice cannot start as it is configured."


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("", BY_ITSELF),
        ("Resources", f"{BY_ITSELF} {LESS}"),
        ("Priority", f"{BY_ITSELF} {LESS}"),
        ("Reservation", "It starts automatically when the reservation begins."),
        (
            "ReqNodeNotAvail, Reserved for maintenance",
            "A job with a shorter time limit may be able to end before the maintenance begins.",
        ),
        (
            "ReqNodeNotAvail, UnavailableNodes:g1",
            "It starts automatically once they are free. Another choice may start sooner.",
        ),
        ("PartitionDown", "Choose something else, or wait until your administrator opens the partition."),
        ("PartitionTimeLimit", "Choose a shorter time."),
        ("MaxMemPerLimit", "Choose less memory."),
        ("BadConstraints", f"Choose fewer GPUs or cores, or less memory. {ADMIN}"),
        ("JobHeldUser", "Release it, or stop it here."),
        ("JobHeldAdmin", "Stop it, and contact your administrator."),
        ("launch failed requeued held", "Stop it, and contact your administrator."),
        ("AccountNotAllowed", ADMIN),
        ("Job's account not known, so it can't use this partition (closed allows staff)", ADMIN),
        ("uid 2002 not in group permitted to use this partition (noroot). groups allowed: alice", ADMIN),
        ("QOSMaxGRESPerUser", "It starts when one of your other jobs or servers ends."),
        ("QOSMaxJobsPerUserLimit", "It starts when one of your other jobs or servers ends."),
        ("QOSMaxCpuPerJobLimit", f"Choose fewer resources. {ADMIN}"),
        ("MaxJobsPerAccount", "It starts when other jobs under the same limit end."),
        ("AccountingPolicy", "It starts when other jobs under the same limit end."),
        ("DependencyNeverSatisfied", "Stop it: it will never start."),
        (
            "PartitionConfig",
            "It starts automatically once the partition has enough nodes. Another choice may start sooner.",
        ),
        ("QOSGrpJobsLimit", "It starts when other jobs under the same limit end."),
        ("AssocGrpGRES", "It starts when other jobs under the same limit end."),
        ("Sunspots", ""),
    ],
)
def test_each_reason_has_something_to_do(reason: str, told: str) -> None:
    """Wait, choose less, or contact the administrator; no advice for an unknown reason."""
    assert waiting(reason) == told


@pytest.mark.parametrize(
    "reason",
    [
        "PartitionTimeLimit",
        "BadConstraints",
        "DependencyNeverSatisfied",
        "InvalidAccount",
        "QOSMinGRES",
        "ReservationDeleted",
    ],
)
def test_no_one_is_told_to_wait_for_what_never_comes(reason: str) -> None:
    """For a reason that waiting cannot clear the advice is not to wait."""
    assert never_clears(reason)
    assert waiting(reason)
    assert "automatically" not in waiting(reason)


@pytest.mark.parametrize("end", sorted(End))
def test_each_end_has_something_to_do(end: End) -> None:
    """Every end of a job has advice."""
    assert ended(end)


def test_a_missing_program_is_the_administrators() -> None:
    """A participant cannot fix this on the form."""
    assert ended(End.FAILED, "127:0").startswith("A program is missing")
    assert not ended(End.FAILED, "1:0").startswith("A program is missing")


@pytest.mark.parametrize("exit_code", ["0:9", "137:0"])
def test_a_process_that_was_killed_may_have_needed_more_memory(exit_code: str) -> None:
    """Where Slurm does not enforce memory limits, the kernel's signal is the only evidence."""
    assert "exceeded its memory limit" in ended(End.FAILED, exit_code)


def test_a_job_that_runs_needs_no_advice() -> None:
    """There is no advice for a running job."""
    assert advice(Job("7", Phase.RUNNING, "RUNNING")) == ""
