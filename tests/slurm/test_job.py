"""Jobs in words: states, ends, reasons, and what to do about them."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from jupyterhub_gpuspawner.node.turn import NO_ANSWER
from jupyterhub_gpuspawner.slurm.job import (
    ENDS,
    PHASES,
    End,
    Job,
    Phase,
    end_of,
    job_words,
    phase_of,
)
from jupyterhub_gpuspawner.slurm.reason import Meaning, meaning, never_clears
from tests.slurm.recorded import VERSIONS, recorded


@pytest.mark.parametrize(
    ("state", "phase", "end"),
    [
        ("REQUEUED", Phase.QUEUED, None),
        ("RESIZING", Phase.RUNNING, None),
        ("SIGNALING", Phase.RUNNING, None),
        ("STAGE_OUT", Phase.ENDING, None),
        ("PREEMPTED", Phase.ENDED, End.PREEMPTED),
        ("SPECIAL_EXIT", Phase.QUEUED, None),  # requeued and held
        ("SUSPENDED", Phase.RUNNING, None),
        ("STOPPED", Phase.RUNNING, None),
        ("COMPLETING", Phase.ENDING, None),
        ("CANCELLED by 2001", Phase.ENDED, End.CANCELLED),
        ("CANCELLED+", Phase.ENDED, End.CANCELLED),
        ("REVOKED", Phase.ENDED, End.REVOKED),
        ("TIMEOUT", Phase.ENDED, End.TIME_LIMIT),
        ("DEADLINE", Phase.ENDED, End.TIME_LIMIT),
        ("OUT_OF_MEMORY", Phase.ENDED, End.OUT_OF_MEMORY),
        ("BOOT_FAIL", Phase.ENDED, End.NODE_FAILED),
        ("", Phase.UNKNOWN, None),
        ("HIBERNATING", Phase.UNKNOWN, None),
        ("COMPLETE", Phase.UNKNOWN, None),
    ],
)
def test_last_state_tells_how_the_job_ended(state: str, phase: Phase, end: End | None) -> None:
    """Only a final state has an end; a word that is not in the table, or only begins like one, is UNKNOWN."""
    assert (phase_of(state), end_of(state)) == (phase, end)


def test_exactly_the_last_states_have_an_end() -> None:
    """The two tables agree: a state has an end if and only if its phase is ENDED."""
    assert set(ENDS) == {state for state, phase in PHASES.items() if phase is Phase.ENDED}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_state_a_cluster_showed_is_in_the_table(version: str) -> None:
    """No recorded answer of squeue holds a state that the table does not know."""
    shown = set()
    for name in ("o_main_all_states", "o_late_all_states", "preempted", "node_fail", "signal_stop", "after_requeue"):
        shown |= set(
            re.findall(r"^[\d_+\[\]%,-]+\|([A-Z_]+)\|", recorded(version, "squeue", name).stdout, re.MULTILINE)
        )
    assert {"PENDING", "RUNNING", "COMPLETING", "STOPPED", "PREEMPTED", "NODE_FAIL", "SPECIAL_EXIT"} < shown
    assert {state for state in shown if phase_of(state) is Phase.UNKNOWN} == set()


def job(state: str, **facts: object) -> Job:
    """A job in that state."""
    return Job("7", phase_of(state), state=state, end=end_of(state), **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (job("PENDING"), "Slurm has accepted the job and will consider it shortly."),
        (job("PENDING", reason="Resources"), "All matching resources are in use."),
        (job("PENDING", reason="Sunspots"), "Waiting: Slurm says 'Sunspots'."),
        (
            job("SPECIAL_EXIT", reason="job requeued in held state"),
            "Slurm requeued the job and holds it: it will not start until it is released.",
        ),
        (job("CONFIGURING", batch_host="cl1"), "Slurm is preparing node cl1 for the job."),
        (job("CONFIGURING"), "Slurm is preparing a node for the job."),
        (job("RUNNING", batch_host="g1"), "The job is running on g1."),
        (job("RUNNING"), "The job is running."),
        (job("SUSPENDED", batch_host="g1"), "Slurm has suspended the job and will resume it."),
        (job("STOPPED"), "The job was stopped by a signal; it keeps its node."),
        (job("COMPLETING"), "The job is ending."),
        (job("COMPLETED", exit_code="0:0"), "The job has finished."),
        (job("CANCELLED", reason="Priority"), "The job was cancelled."),
        (job("TIMEOUT", reason="TimeLimit"), "The job reached its time limit."),
        (job("DEADLINE", reason="DeadLine"), "The job did not finish before its deadline."),
        (job("OUT_OF_MEMORY", reason="OutOfMemory"), "The job exceeded its memory limit."),
        (replace(job("OUT_OF_MEMORY"), memory_mib=61440), "The job exceeded its memory limit of 60 GiB."),
        (job("NODE_FAIL", reason="NodeDown"), "The node of the job failed."),
        (job("BOOT_FAIL"), "The node of the job did not boot."),
        (job("PREEMPTED"), "The job was preempted: a job with higher priority needed its resources."),
        (
            job("REVOKED"),
            "Another cluster of the federation has started the job, where this hub does not look. It is cancelled.",
        ),
        (job("FAILED", reason="NonZeroExitCode", exit_code="3:0"), "The job failed with exit code 3."),
        (
            job("FAILED", reason="NonZeroExitCode", exit_code="127:0"),
            "The job failed with exit code 127: a command was not found.",
        ),
        (
            job("FAILED", reason="RaisedSignal:9(Killed)", exit_code="0:9"),
            "The job was killed (signal 9), most often for its memory.",
        ),
        (job("FAILED", reason="JobLaunchFailure", exit_code="0:11"), "The job failed: it was ended by signal 11."),
        (
            job("FAILED", reason="JobLaunchFailure", exit_code="0:53"),
            "The job failed: its log file could not be written.",
        ),
        (job("FAILED", reason="BadConstraints"), "The job failed. No node can satisfy the job's request."),
        (job("FAILED", reason="Sunspots"), "The job failed. Slurm says 'Sunspots'."),
        (job("FAILED"), "The job failed."),
        (Job("7", Phase.ENDED, end=End.VANISHED), "Slurm no longer has a record of the job."),
        (
            job("HIBERNATING"),
            "The job's state (HIBERNATING) is unknown to this hub, which keeps the server.",
        ),
    ],
)
def test_participant_reads_one_plain_sentence(status: Job, words: str) -> None:
    """Each state, with its reason or exit code, has a plain sentence."""
    assert job_words(status).sentence == words


@pytest.mark.parametrize("state", sorted(PHASES))
def test_no_state_is_without_words(state: str) -> None:
    """Every state of the table has a complete sentence without any other field."""
    assert re.fullmatch(r"[A-Z].*\.", job_words(job(state)).sentence)


@pytest.mark.parametrize(
    ("status", "hint"),
    [
        (
            job("PENDING", reason="PartitionTimeLimit"),
            "Compare `time` in the profile with MaxTime of the partition.",
        ),
        (job("FAILED", exit_code="0:53"), ("slurmd could not open the job's output file or its working folder: "
         "check the log folder on the node.")),
        (job("OUT_OF_MEMORY"), "Give the profile more memory."),
        (job("TIMEOUT"), "Give the profile more time."),
        (job("CANCELLED"), ""),
        (job("RUNNING"), ""),
        (job("HIBERNATING"), "Please report the state 'HIBERNATING' to the project."),
    ],
)  # fmt: skip
def test_admin_reads_what_could_be_done(status: Job, hint: str) -> None:
    """Where an admin can do something, the hint names it."""
    assert job_words(status).hint == hint


def test_end_of_a_job_is_told_in_utc() -> None:
    """A job's end is ISO 8601 in UTC; a job without time limit has none."""
    assert Job("7", Phase.RUNNING, ends_at=1795259689.0).ends_at_iso == "2026-11-21T11:14:49+00:00"
    assert Job("7", Phase.RUNNING).ends_at_iso is None


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        ("", "Slurm has accepted the job and will consider it shortly."),
        ("Priority", "Jobs with a higher priority start first."),
        ("ReqNodeNotAvail", "A node that the job needs is not available now."),
        ("ReqNodeNotAvail, UnavailableNodes:x1", "Waiting: nodes that the job needs are not available."),
        (
            "ReqNodeNotAvail, May be reserved for other job",
            "Waiting: the nodes are reserved for another job or by a reservation.",
        ),
        ("ReqNodeNotAvail, Reserved for maintenance", "Waiting: the nodes are reserved for maintenance."),
        (
            "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
            "Waiting: suitable nodes are down, or reserved for jobs with higher priority.",
        ),
        (
            "uid 2002 not in group permitted to use this partition (noroot). groups allowed: alice",
            "You are not a member of any group that may use this partition.",
        ),
        ("QOSMaxJobsPerUserLimit", "Waiting: your own jobs have reached a limit (running jobs)."),
        ("QOSMaxGRESPerUser", "Waiting: your own jobs have reached a limit (GPUs)."),
        ("AssocMaxJobsLimit", "Waiting: your own jobs have reached a limit (running jobs)."),
        ("AssocGrpGRES", "Waiting: all jobs of this account together have reached a limit (GPUs)."),
        (
            "AssocGrpCPUMinutesLimit",
            "Waiting: all jobs of this account together have reached a limit (CPUs times minutes).",
        ),
        ("QOSGrpMemLimit", "Waiting: all jobs of this QOS together have reached a limit (memory)."),
        ("MaxGRESPerAccount", "Waiting: all jobs of this account together have reached a limit (GPUs)."),
        ("QOSMaxGRESPerJob", "The job asks for more GPUs than its QOS allows for one job, so it will never start."),
        (
            "QOSMaxWallDurationPerJobLimit",
            "The job asks for more time than its QOS allows for one job, so it will never start.",
        ),
        (
            "AssocMaxCpuPerJobLimit",
            "The job asks for more CPUs than its account allows for one job, so it will never start.",
        ),
        (
            "QOSMaxMemoryPerNode",
            "The job asks for more memory than its QOS allows for one node, so it will never start.",
        ),
        (
            "QOSMinCpuNotSatisfied",
            "The job asks for fewer CPUs than its QOS requires, so it will never start.",
        ),
        ("QOSMinMemory", "The job asks for less memory than its QOS requires, so it will never start."),
        ("Sunspots", "Waiting: Slurm says 'Sunspots'."),
    ],
)
def test_reason_is_told_in_plain_words(reason: str, sentence: str) -> None:
    """Single reasons, phrases and the grammar of limits each give one sentence; a new reason is quoted."""
    assert meaning(reason).sentence == sentence


@pytest.mark.parametrize(
    "reason",
    [
        "AccountNotAllowed",
        "AssocMaxGRESPerJob",
        "BadConstraints",
        "DependencyNeverSatisfied",
        "InvalidAccount",
        "InvalidQOS",
        "Job's QOS not permitted to use this partition (course allows teaching not normal)",
        "Job's account not known, so it can't use this partition (closed allows staff)",
        "JobHeldAdmin",
        "JobHeldUser",
        "JobHoldMaxRequeue",
        "MaxMemPerLimit",
        "PartitionNodeLimit",
        "PartitionTimeLimit",
        "QOSMaxCpuPerJobLimit",
        "QOSMaxWallDurationPerJobLimit",
        "QOSMinGRES",
        "QOSNotAllowed",
        "ReservationDeleted",
        "job requeued in held state",
        "launch failed requeued held",
        "uid 2002 not in group permitted to use this partition (noroot). groups allowed: alice",
    ],
)
def test_reason_that_waiting_cannot_clear(reason: str) -> None:
    """The job, its limits or its partition would have to change."""
    assert never_clears(reason)


@pytest.mark.parametrize(
    "reason",
    [
        "",
        "None",
        "AssocGrpGRES",
        "BeginTime",
        "Dependency",
        "JobArrayTaskLimit",
        "Licenses",
        "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
        "PartitionDown",
        "PartitionInactive",
        "Priority",
        "QOSGrpJobsLimit",
        "QOSMaxGRESPerUser",
        "QOSMaxJobsPerUserLimit",
        "ReqNodeNotAvail, UnavailableNodes:x1",
        "Reservation",
        "Resources",
        "Sunspots",
    ],
)
def test_reason_that_may_clear(reason: str) -> None:
    """Other jobs end, nodes return, partitions open; unknown reasons may clear too."""
    assert not never_clears(reason)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_reason_a_cluster_gave_has_words(version: str) -> None:
    """No recorded reason of squeue falls through to the sentence that only quotes it."""
    reasons = set()
    for name in ("o_main_all_states", "o_late_all_states", "preempted", "node_fail", "prolog_fail"):
        reasons |= set(
            re.findall(r"^[\d_+]+\|[A-Z_]+\|([^|]+)\|", recorded(version, "squeue", name).stdout, re.MULTILINE)
        )
    assert len(reasons) > 20
    assert {reason for reason in reasons if meaning(reason) == Meaning(f"Waiting: Slurm says '{reason}'.")} == set()


def waiting(reason: str) -> str:
    """The advice for a job pending for this reason."""
    return job_words(Job("7", Phase.QUEUED, "PENDING", reason)).advice


def ended(end: End, exit_code: str = "") -> str:
    """The advice for a job that ended this way."""
    return job_words(Job("7", Phase.ENDED, end=end, exit_code=exit_code)).advice


ADMIN = "Please contact your administrator: this choice cannot start as it is configured."


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("", ""),
        ("Resources", ""),
        ("Priority", ""),
        ("Reservation", "It starts automatically when the reservation begins."),
        (
            "ReqNodeNotAvail, Reserved for maintenance",
            "A job with a shorter time limit may be able to end before the maintenance begins.",
        ),
        (
            "ReqNodeNotAvail, UnavailableNodes:g1",
            "It starts automatically once a suitable node is available.",
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
            "It starts automatically once the partition has enough nodes.",
        ),
        ("QOSGrpJobsLimit", "It starts when other jobs under the same limit end."),
        ("AssocGrpGRES", "It starts when other jobs under the same limit end."),
        ("Sunspots", ""),
    ],
)
def test_each_reason_has_something_to_do(reason: str, advice: str) -> None:
    """Wait, choose less, or contact the administrator; nothing but to wait for a place in line or an unknown reason."""
    assert waiting(reason) == advice


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


def test_exit_codes_that_say_more() -> None:
    """A missing program is the administrator's; without memory limits, the kernel's signal is the only evidence."""
    assert ended(End.FAILED, "127:0").startswith("A program is missing")
    assert not ended(End.FAILED, "1:0").startswith("A program is missing")
    assert all("more memory" in ended(End.FAILED, code) for code in ("0:9", "137:0"))
    assert ended(End.FAILED, f"{NO_ANSWER}:0").startswith("Start again")


def test_a_job_that_runs_needs_no_advice() -> None:
    """There is no advice for a running job."""
    assert job_words(Job("7", Phase.RUNNING, "RUNNING")).advice == ""


def test_more_time_is_no_advice_for_a_job_that_missed_its_deadline() -> None:
    """The latest moment at which it could have started is the deadline without its time limit."""
    words = job_words(replace(job("DEADLINE"), time_limit=3600))
    assert words.advice == "Start again with less time or fewer resources if you can choose them."
