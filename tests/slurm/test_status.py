"""Slurm's states: each has a phase and a sentence, and each final state an end."""

from __future__ import annotations

import re

import pytest

from jupyterhub_gpuspawner.slurm.job import (
    ENDS,
    PHASES,
    End,
    Job,
    Phase,
    admin_hint,
    end_of,
    phase_of,
    sentence,
)
from tests.slurm.recorded import VERSIONS, recorded


@pytest.mark.parametrize(
    ("state", "phase"),
    [
        ("PENDING", Phase.QUEUED),
        ("REQUEUED", Phase.QUEUED),
        ("REQUEUE_HOLD", Phase.QUEUED),
        ("REQUEUE_FED", Phase.QUEUED),
        ("RESV_DEL_HOLD", Phase.QUEUED),
        ("SPECIAL_EXIT", Phase.QUEUED),
        ("CONFIGURING", Phase.STARTING),
        ("RUNNING", Phase.RUNNING),
        ("RESIZING", Phase.RUNNING),
        ("SIGNALING", Phase.RUNNING),
        ("STOPPED", Phase.RUNNING),
        ("SUSPENDED", Phase.RUNNING),
        ("COMPLETING", Phase.ENDING),
        ("STAGE_OUT", Phase.ENDING),
        ("COMPLETED", Phase.ENDED),
        ("CANCELLED", Phase.ENDED),
        ("CANCELLED by 2001", Phase.ENDED),
        ("CANCELLED+", Phase.ENDED),
        ("FAILED", Phase.ENDED),
        ("TIMEOUT", Phase.ENDED),
        ("DEADLINE", Phase.ENDED),
        ("OUT_OF_MEMORY", Phase.ENDED),
        ("NODE_FAIL", Phase.ENDED),
        ("BOOT_FAIL", Phase.ENDED),
        ("PREEMPTED", Phase.ENDED),
        ("REVOKED", Phase.ENDED),
        ("", Phase.UNKNOWN),
        ("HIBERNATING", Phase.UNKNOWN),
        ("COMPLETE", Phase.UNKNOWN),
    ],
)
def test_state_has_a_phase_and_a_new_one_is_unknown(state: str, phase: Phase) -> None:
    """Each state of squeue(1) has one phase; a word that is not there, or only begins like one, is UNKNOWN."""
    assert phase_of(state) is phase


@pytest.mark.parametrize(
    ("state", "end"),
    [
        ("COMPLETED", End.FINISHED),
        ("FAILED", End.FAILED),
        ("CANCELLED by 0", End.CANCELLED),
        ("REVOKED", End.CANCELLED),
        ("TIMEOUT", End.TIME_LIMIT),
        ("DEADLINE", End.TIME_LIMIT),
        ("OUT_OF_MEMORY", End.OUT_OF_MEMORY),
        ("NODE_FAIL", End.NODE_FAILED),
        ("BOOT_FAIL", End.NODE_FAILED),
        ("PREEMPTED", End.PREEMPTED),
        ("RUNNING", None),
        ("COMPLETING", None),
        ("HIBERNATING", None),
    ],
)
def test_last_state_tells_how_the_job_ended(state: str, end: End | None) -> None:
    """Only a final state has an end."""
    assert end_of(state) is end


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
        (job("NODE_FAIL", reason="NodeDown"), "The node of the job failed."),
        (job("BOOT_FAIL"), "The node of the job did not boot."),
        (job("PREEMPTED"), "The job was preempted: a job with higher priority needed its resources."),
        (job("FAILED", reason="NonZeroExitCode", exit_code="3:0"), "The job failed with exit code 3."),
        (
            job("FAILED", reason="NonZeroExitCode", exit_code="127:0"),
            "The job failed with exit code 127: a command was not found.",
        ),
        (job("FAILED", reason="RaisedSignal:9(Killed)", exit_code="0:9"), "The job failed: it was ended by signal 9."),
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
    assert sentence(status) == words


@pytest.mark.parametrize("state", sorted(PHASES))
def test_no_state_is_without_words(state: str) -> None:
    """Every state of the table has a complete sentence without any other field."""
    assert re.fullmatch(r"[A-Z].*\.", sentence(job(state)))


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
    assert admin_hint(status) == hint


def test_end_of_a_job_is_told_in_utc() -> None:
    """A job's end is ISO 8601 in UTC; a job without time limit has none."""
    assert Job("7", Phase.RUNNING, ends_at=1795259689.0).ends_at_iso == "2026-11-21T11:14:49+00:00"
    assert Job("7", Phase.RUNNING).ends_at_iso is None
