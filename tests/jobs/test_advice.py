"""What a participant may do about a job that waits or has ended."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.jobs.advice import advice
from jupyterhub_gpuspawner.jobs.reason import never_clears
from jupyterhub_gpuspawner.jobs.status import End, JobStatus, Phase


def waiting(reason: str) -> str:
    """What to do while a job waits for this reason."""
    return advice(JobStatus("7", Phase.QUEUED, "PENDING", reason))


def ended(end: End, exit_code: str = "") -> str:
    """What to do once a job has ended so."""
    return advice(JobStatus("7", Phase.ENDED, end=end, exit_code=exit_code))


BY_ITSELF = "It starts by itself; you only have to wait."
LESS = "A smaller choice (fewer GPUs, cores, less memory or time) may start sooner."
ADMIN = "Please tell your administrator: this choice cannot start as it is configured."


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("", BY_ITSELF),
        ("Resources", f"{BY_ITSELF} {LESS}"),
        ("Priority", f"{BY_ITSELF} {LESS}"),
        ("Reservation", "It starts by itself when the reservation begins."),
        ("ReqNodeNotAvail, Reserved for maintenance", "A shorter time may end before the maintenance begins."),
        (
            "ReqNodeNotAvail, UnavailableNodes:g1",
            "It starts by itself once they are free. Another choice may start sooner.",
        ),
        ("PartitionDown", "Choose something else, or wait until your administrator opens the partition."),
        ("PartitionTimeLimit", "Choose a shorter time."),
        ("MaxMemPerLimit", "Choose less memory."),
        ("BadConstraints", f"Choose fewer GPUs or cores, or less memory. {ADMIN}"),
        ("JobHeldUser", "Release it with `scontrol release`, or stop it here."),
        ("JobHeldAdmin", "Stop it, and please tell your administrator."),
        ("launch failed requeued held", "Stop it, and please tell your administrator."),
        ("AccountNotAllowed", ADMIN),
        ("Job's account not known, so it can't use this partition (closed allows staff)", ADMIN),
        ("uid 2002 not in group permitted to use this partition (noroot). groups allowed: alice", ADMIN),
        ("QOSMaxGRESPerUser", "It starts when another job or server of yours ends."),
        ("QOSMaxJobsPerUserLimit", "It starts when another job or server of yours ends."),
        ("QOSMaxCpuPerJobLimit", f"Choose less. {ADMIN}"),
        ("QOSGrpJobsLimit", "It starts when other jobs under the same limit end."),
        ("AssocGrpGRES", "It starts when other jobs under the same limit end."),
        ("Sunspots", ""),
    ],
)
def test_each_reason_has_something_to_do(reason: str, told: str) -> None:
    """Wait, choose less, or whom to ask; for a reason that is not known, nothing is made up."""
    assert waiting(reason) == told


@pytest.mark.parametrize(
    "reason", ["PartitionTimeLimit", "BadConstraints", "InvalidAccount", "QOSMinGRES", "ReservationDeleted"]
)
def test_no_one_is_told_to_wait_for_what_never_comes(reason: str) -> None:
    """A reason that waiting cannot clear has advice, and it is not to wait."""
    assert never_clears(reason)
    assert waiting(reason)
    assert "by itself" not in waiting(reason)


@pytest.mark.parametrize("end", sorted(End))
def test_each_end_has_something_to_do(end: End) -> None:
    """However a server ends, the person is told what may come next."""
    assert ended(end)


def test_a_missing_program_is_the_administrators() -> None:
    """Nobody mends that in a form."""
    assert ended(End.FAILED, "127:0").startswith("A program is missing")
    assert not ended(End.FAILED, "1:0").startswith("A program is missing")


@pytest.mark.parametrize("exit_code", ["0:9", "137:0"])
def test_a_process_that_was_killed_may_have_needed_more_memory(exit_code: str) -> None:
    """Where Slurm does not watch memory, the kernel's signal is all that tells."""
    assert "exceeded its memory limit" in ended(End.FAILED, exit_code)


def test_a_job_that_runs_needs_no_advice() -> None:
    """Nothing is said of what goes well."""
    assert advice(JobStatus("7", Phase.RUNNING, "RUNNING")) == ""
