"""Submission: no job is lost, and no start uses a job that is not its own."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jupyterhub import orm
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from jupyterhub_gpuspawner.batch.job import BatchJob
from jupyterhub_gpuspawner.errors import (
    ConfigError,
    RequestError,
    SlurmOutputError,
    SlurmUnavailable,
    SubmitRejected,
)
from jupyterhub_gpuspawner.hub.site.connection import Cluster, ClusterView
from jupyterhub_gpuspawner.hub.start import submission
from jupyterhub_gpuspawner.hub.start.submission import (
    RETENTION_SECONDS,
    RecordedStart,
    StartRecords,
    cancel_surely,
    submit,
)
from jupyterhub_gpuspawner.slurm.commands import CommandMissing
from jupyterhub_gpuspawner.slurm.job import Job, JobIdentity, Phase
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot
from tests.fixtures.databases import hub_session, new_database, session_of

PREFIX = ("sudo", "-u", "service")
TAG = "jupyterhub-gpuspawner/demo/ann/#1"
IDENTITY = JobIdentity(owner="ann", uid=1001, tag=TAG)
JOB = BatchJob("#!/bin/bash\n", (), TAG, IDENTITY)


def cluster_of(client: Any) -> Cluster:
    """A cluster that this client asks."""
    unused: Any = None
    return Cluster("", client, unused, ClusterView(unused), shows_jobs=unused)


class Slurm:
    """A stand-in for the client: sbatch answers when the test says so; calls are recorded."""

    def __init__(self, answer: str | Exception, *, tagged: str = "", silent: int = 0, uid: int | None = 1001) -> None:
        self.answer = answer
        self.job = JOB
        job = Job(tagged, Phase.QUEUED, user="ann" if uid == 1001 else "nobody", uid=uid, tag=TAG)
        self.queue = {tagged: job} if tagged else {}
        self.queries = 0
        self.silent = silent
        """Number of squeue calls without an answer."""
        self.may_answer = asyncio.Event()
        self.cancelled: list[str] = []
        self.silences: list[SlurmUnavailable] = []
        self.submissions = 0
        self.right: Exception | None = None
        """Why the user may not have the job any more."""
        self.asked = 0
        self.cluster = cluster_of(self)

    async def renewed(self) -> BatchJob:
        self.asked += 1
        if self.right is not None:
            raise self.right
        return self.job

    async def submit(self, _script: str, **_settings: object) -> str:
        self.submissions += 1
        await self.may_answer.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def jobs_of_start(self, identity: JobIdentity) -> dict[str, Job]:
        assert identity == self.job.identity
        self.queries += 1
        if self.silent:
            self.silent -= 1
            raise SlurmUnavailable("squeue gave no answer.")
        return self.queue

    async def cancel(self, job_id: str) -> None:
        self.cancelled.append(job_id)


def submission_task(slurm: Slurm) -> asyncio.Task[str]:
    submission = submit(
        slurm.cluster,
        slurm.job,
        prefix=PREFIX,
        environment={},
        cancel=slurm.cancel,
        on_silence=slurm.silences.append,
        renewed=slurm.renewed,
    )
    return asyncio.create_task(submission)


async def settle() -> None:
    """Run all tasks until they wait for time."""
    for _ in range(50):
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause between tries."""
    monkeypatch.setattr(submission, "PAUSES", (0.0,))
    monkeypatch.setattr(submission, "ANSWER_SECONDS", 0.0)


async def test_the_id_comes_back() -> None:
    """As sbatch gave it; nothing is cancelled."""
    slurm = Slurm("12")
    slurm.may_answer.set()

    assert await submission_task(slurm) == "12"
    assert slurm.cancelled == []


async def test_whoever_chooses_next_is_shown_the_cluster_with_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what was free before it, which the form would otherwise show for a while; in a rush, every other second."""
    monkeypatch.setattr(submission, "REST", 0.0)
    slurm, asked = Slurm("12"), list[float]()
    slurm.may_answer.set()

    async def snapshot() -> ClusterSnapshot:
        asked.append(slurm.submissions)
        return ClusterSnapshot()

    slurm.cluster.view = ClusterView(snapshot)
    for _ in range(2):
        await slurm.cluster.view.recent()
        await submission_task(slurm)
    await slurm.cluster.view.recent()
    await slurm.cluster.view.recent()

    assert asked == [0, 1, 2]


FAILURES: dict[str, Exception] = {
    "no answer": SlurmUnavailable("sbatch got no answer."),
    "more than an id": SlurmOutputError("sbatch accepted the job but printed no job id.", raw="12\nHave a nice day"),
    "a wrapper that fails after sbatch": SubmitRejected("Slurm refused the job: the quota mail was not sent."),
    "sudo that fails after sbatch": ConfigError("sbatch was not run: the command of exec_prefix failed."),
    "what nobody has foreseen": UnicodeError("odd bytes"),
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES.keys())
async def test_a_job_that_is_there_although_sbatch_failed_is_taken_for_made(failure: Exception) -> None:
    """However sbatch failed: a job with the start's tag, of the start's owner, is the start's job."""
    slurm = Slurm(failure, tagged="13")
    slurm.may_answer.set()

    assert await submission_task(slurm) == "13"
    assert slurm.cancelled == []


ANSWERED = {name: failure for name, failure in FAILURES.items() if name != "no answer"}


@pytest.mark.parametrize("failure", ANSWERED.values(), ids=ANSWERED.keys())
async def test_a_job_that_cannot_be_seen_at_once_is_looked_for_however_sbatch_failed(failure: Exception) -> None:
    """Slurm is silent when sbatch has failed; the job that it shows later is cancelled."""
    slurm = Slurm(failure, tagged="13", silent=3)
    slurm.may_answer.set()
    with pytest.raises(type(failure)):
        await submission_task(slurm)
    await settle()

    assert slurm.cancelled == ["13"]
    assert (set(), set()) == (slurm.cluster.submitting, slurm.cluster.cancelling)


async def test_the_submission_waits_for_slurm_and_uses_the_job_that_sbatch_has_made() -> None:
    """sbatch got no answer, and Slurm shows its job when it answers again: no second one is submitted."""
    unanswered = SlurmUnavailable("sbatch got no answer.")
    slurm = Slurm(unanswered, tagged="13", silent=3)
    slurm.may_answer.set()

    assert await submission_task(slurm) == "13"
    assert (slurm.submissions, slurm.silences, slurm.cancelled) == (1, [unanswered], [])
    assert (set(), set()) == (slurm.cluster.submitting, slurm.cluster.cancelling)


class Back(Slurm):
    """The first sbatch gets no answer, a second one does; its job may show up late, beside that of the second."""

    async def submit(self, _script: str, **settings: object) -> str:
        await super().submit(_script, **settings)
        if self.submissions == 1:
            raise SlurmUnavailable("sbatch got no answer.")
        return "20"

    async def jobs_of_start(self, identity: JobIdentity) -> dict[str, Job]:
        jobs = await super().jobs_of_start(identity)
        return {**jobs, "20": Job("20", Phase.QUEUED, user="ann", uid=1001, tag=TAG)} if self.submissions > 1 else {}


async def test_the_submission_is_made_again_once_it_is_certain_that_there_is_no_job() -> None:
    """Slurm is silent for a while, and then shows no job of this start, three times."""
    slurm = Back("20", silent=3)
    slurm.may_answer.set()

    assert await submission_task(slurm) == "20"
    assert (slurm.submissions, slurm.queries) == (2, 3 + submission.ANSWERS)

    await settle()

    assert slurm.cancelled == []
    assert (set(), set()) == (slurm.cluster.submitting, slurm.cluster.cancelling)


LOST = RequestError("It is reserved for the group vision.", field="profile")


async def test_who_has_lost_the_right_meanwhile_gets_no_second_sbatch() -> None:
    """It is asked once Slurm has said that the first one has made no job; a job that shows up late is cancelled."""
    slurm = Slurm(SlurmUnavailable("sbatch got no answer."), silent=3)
    slurm.right = LOST
    slurm.may_answer.set()
    with pytest.raises(RequestError):
        await submission_task(slurm)
    slurm.queue = {"19": Job("19", Phase.QUEUED, user="ann", uid=1001, tag=TAG)}
    await settle()

    assert (slurm.submissions, slurm.asked, slurm.cancelled) == (1, 1, ["19"])
    assert slurm.cluster.submitting == set()
    assert slurm.cluster.cancelling == set()


async def test_who_has_lost_the_right_meanwhile_gets_no_job_that_an_unanswered_sbatch_has_made() -> None:
    """Slurm shows the job when it answers again: it is cancelled."""
    slurm = Slurm(SlurmUnavailable("sbatch got no answer."), tagged="13", silent=3)
    slurm.right = LOST
    slurm.may_answer.set()
    with pytest.raises(RequestError):
        await submission_task(slurm)
    await settle()

    assert (slurm.submissions, slurm.asked, slurm.cancelled) == (1, 1, ["13"])
    assert slurm.cluster.submitting == set()
    assert slurm.cluster.cancelling == set()


async def test_a_start_that_slurm_takes_at_once_asks_nothing_again() -> None:
    """The right was checked a moment ago."""
    slurm = Slurm("12")
    slurm.may_answer.set()

    assert (await submission_task(slurm), slurm.asked) == ("12", 0)


class Earlier:
    """A Slurm with jobs of starts before a restart of the hub, which end when they are cancelled."""

    def __init__(self, *answers: dict[str, Job] | Exception) -> None:
        self.answers = list(answers)
        self.asked = 0
        self.cancelled: list[str] = []
        self.silences: list[SlurmUnavailable] = []

    async def jobs_of_start(self, identity: JobIdentity) -> dict[str, Job]:
        assert identity == IDENTITY
        self.asked += 1
        answer = self.answers.pop(0) if self.answers else {}
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def cancel(self, job_id: str) -> None:
        self.cancelled.append(job_id)


THERE = {"13": Job("13", Phase.RUNNING, user="ann", uid=1001, tag=TAG)}
SILENCE = SlurmUnavailable("squeue got no answer.")
EARLIER: dict[str, tuple[list[dict[str, Job] | Exception], int, list[str], int]] = {
    "there is none": ([], 3, [], 0),
    "there is one": ([THERE], 4, ["13"], 0),
    "it takes its time to end": ([THERE, THERE], 5, ["13", "13"], 0),
    "it shows up late, as from a slurmctld that goes on": ([{}, {}, THERE], 6, ["13"], 0),
    "Slurm is silent for a while": ([SILENCE, SILENCE, THERE], 6, ["13"], 2),
    "Slurm is silent between the answers": ([{}, {}, SILENCE], 4, [], 1),
}


@pytest.mark.parametrize(("answers", "asked", "cancelled", "silences"), EARLIER.values(), ids=EARLIER)
async def test_a_job_of_a_start_before_a_restart_has_gone_before_the_next_one_is_submitted(
    answers: list[dict[str, Job] | Exception], asked: int, cancelled: list[str], silences: int
) -> None:
    """Slurm has to say so three times in a row; each of its silences is told."""
    slurm = Earlier(*answers)
    await submission.without_jobs(cluster_of(slurm), {IDENTITY: slurm.cancel}, slurm.silences.append)

    assert (slurm.asked, slurm.cancelled, len(slurm.silences)) == (asked, cancelled, silences)


@pytest.mark.parametrize(
    "answer",
    [None, SlurmOutputError("odd"), ConfigError("sudo asks for a password."), CommandMissing("scontrol is missing.")],
)
async def test_only_silence_is_waited_for(answer: Exception | None) -> None:
    """Any other error is an answer: the next command meets it, too, and its start says so."""
    answers = [SlurmUnavailable("No answer."), SlurmUnavailable("Still none."), answer]

    class Questions:
        async def config(self) -> None:
            error = answers.pop(0)
            if error is not None:
                raise error

    silences: list[SlurmUnavailable] = []
    await submission.until_answer(cluster_of(Questions()), silences.append)

    assert [str(error) for error in silences] == ["No answer.", "Still none."]


async def test_a_slurm_that_answers_all_but_sbatch_is_not_asked_for_ever() -> None:
    """After some submissions the start fails with the error of the last one."""
    slurm = Slurm(SlurmUnavailable("sbatch got no answer."))
    slurm.may_answer.set()
    with pytest.raises(SlurmUnavailable):
        await submission_task(slurm)

    assert slurm.submissions == submission.SUBMISSIONS


async def test_of_two_jobs_of_one_start_the_first_ones_is_cancelled() -> None:
    """slurmctld has taken up the first sbatch after all, when the second one had made its job."""
    slurm = Back("20", tagged="19")
    slurm.may_answer.set()

    assert await submission_task(slurm) == "20"

    await settle()

    assert slurm.cancelled == ["19"]


async def test_without_a_mark_of_its_own_no_job_is_submitted_twice(caplog: pytest.LogCaptureFixture) -> None:
    """On a cluster that replaces comments, where the name has no mark, a first job would not be found.

    What another cluster does counts for nothing, and neither does what this one did before its admin mended it.
    """
    shown = Job("11", Phase.QUEUED, user="ann", uid=1001, tag=TAG)
    replaced = replace(shown, tag="project 7")
    outcomes = []
    clusters = [Slurm(SlurmUnavailable("sbatch got no answer.")) for _ in range(2)]
    for job in (replaced, shown, replaced):
        for _ in range(2):  # each new job is looked at
            submission.check_comment(clusters[0].cluster, job, IDENTITY, logging.getLogger())
        for slurm in clusters:
            slurm.submissions = 0
            slurm.silences.clear()
            slurm.may_answer.set()
            with pytest.raises(SlurmUnavailable):
                await submission_task(slurm)
            outcomes.append((slurm.submissions, bool(slurm.silences)))

    failed_at_once, was_kept = (1, False), (submission.SUBMISSIONS, True)
    assert outcomes == [failed_at_once, was_kept, was_kept, was_kept, failed_at_once, was_kept]
    assert sum("something replaces comments" in message for message in caplog.messages) == 2


async def test_a_job_whose_owner_is_not_certain_is_not_taken_up() -> None:
    """Any user can write this comment: the start fails, and jobs with its comment are cancelled if Slurm permits it."""
    slurm = Slurm(SlurmUnavailable("sbatch got no answer."), tagged="13", uid=None)
    slurm.may_answer.set()
    with pytest.raises(SlurmUnavailable):
        await submission_task(slurm)
    await settle()

    assert slurm.cancelled == ["13"]


@pytest.mark.parametrize(
    ("seen", "job_id"),
    [
        pytest.param([], "", id="no job"),
        pytest.param([("bob", 1001), ("bob", 1001)], "13", id="one account's"),
        pytest.param([("eve", 1002)], "", id="another account's"),
        pytest.param([("bob", 1001), ("eve", 1002)], "", id="two accounts'"),
    ],
)
async def test_where_the_prefix_does_not_say_whose_jobs_are_earlier_ones_do(
    seen: list[tuple[str, int]], job_id: str
) -> None:
    """With a prefix for one account, its jobs are known once Slurm has shown one: an unanswered one is taken up."""
    slurm = Slurm(SlurmUnavailable("sbatch got no answer."), tagged="13")
    slurm.job = replace(JOB, identity=JobIdentity(tag=TAG))
    for user, uid in seen:
        submission.note_owner(slurm.cluster, PREFIX, Job("7", Phase.RUNNING, user=user, uid=uid))
    submission.note_owner(slurm.cluster, ("sudo", "-u", "other"), Job("8", Phase.RUNNING, user="other", uid=1003))
    slurm.may_answer.set()
    with suppress(SlurmUnavailable):
        assert await submission_task(slurm) == job_id
    await settle()

    assert slurm.cancelled == ([] if job_id else ["13"])


async def test_a_start_that_is_given_up_while_sbatch_runs_gets_its_job_cancelled() -> None:
    """The cancellation goes through at once; the job follows when sbatch has answered."""
    slurm = Slurm("14")
    start = submission_task(slurm)
    await settle()
    start.cancel()
    await settle()

    assert start.cancelled()
    assert slurm.cancelled == []

    slurm.may_answer.set()
    await settle()

    assert slurm.cancelled == ["14"]


class Stepping(Slurm):
    """sbatch makes the job in the middle of a number of steps."""

    there = False

    async def submit(self, _script: str, **_settings: object) -> str:
        for step in range(6):
            self.there = self.there or step == 3
            await asyncio.sleep(0)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def jobs_of_start(self, identity: JobIdentity) -> dict[str, Job]:
        await asyncio.sleep(0)
        return await super().jobs_of_start(identity) if self.there else {}


@pytest.mark.parametrize("answer", ["18", SlurmUnavailable("Socket timed out.")], ids=["answers", "times out"])
@pytest.mark.parametrize("steps", range(1, 20))
async def test_a_start_that_is_given_up_at_any_step_has_its_job_or_none(steps: int, answer: str | Exception) -> None:
    """Whenever it is cancelled, either the id was returned, or the job is cancelled."""
    slurm = Stepping(answer, tagged="18")
    start = submission_task(slurm)
    for _ in range(steps):
        await asyncio.sleep(0)
    start.cancel()
    await settle()

    assert (slurm.there, start.cancelled(), slurm.cancelled) in [(True, True, ["18"]), (True, False, [])]
    assert start.cancelled() or start.result() == "18"
    assert (set(), set()) == (slurm.cluster.submitting, slurm.cluster.cancelling)


@pytest.mark.parametrize("running", [True, False], ids=["while sbatch runs", "while it waits for Slurm"])
async def test_a_job_that_shows_up_after_the_start_was_given_up_is_cancelled(running: bool) -> None:
    """Slurm does not answer for a while; then the job is found by its comment."""
    slurm = Slurm(SlurmUnavailable("sbatch got no answer."), tagged="15", silent=1000)
    if not running:
        slurm.may_answer.set()
    start = submission_task(slurm)
    await settle()
    start.cancel()
    slurm.may_answer.set()
    slurm.silent = min(slurm.silent, 3)
    with pytest.raises(asyncio.CancelledError):
        await start
    await settle()

    assert slurm.cancelled == ["15"]
    assert slurm.submissions == 1


async def test_a_refusal_that_made_no_job_costs_one_look() -> None:
    """Slurm refused, and shows no job of this start: there is no further look."""
    slurm = Slurm(SubmitRejected("Slurm refused the job."))
    slurm.may_answer.set()
    with pytest.raises(SubmitRejected):
        await submission_task(slurm)
    await settle()

    assert (slurm.queries, slurm.cancelled) == (1, [])
    assert (set(), set()) == (slurm.cluster.submitting, slurm.cluster.cancelling)


async def test_a_job_is_cancelled_again_until_it_is(caplog: pytest.LogCaptureFixture) -> None:
    """First Slurm does not answer, then sudo refuses, then Slurm; the log has a line of the first and of the end."""
    troubles: list[Exception] = [
        SlurmUnavailable("No answer."),
        ConfigError("sudo asks for a password."),
        ConfigError("scancel is not allowed to cancel job 17: User not found on host."),
    ]

    async def cancel(_job_id: str) -> None:
        if troubles:
            raise troubles.pop(0)

    with caplog.at_level("INFO"):
        await cancel_surely(cluster_of(None), "17", cancel)

    assert [record.getMessage() for record in caplog.records] == [
        "Job 17 is not cancelled yet; the hub will try again: No answer.",
        "Job 17 is cancelled",
    ]


# --- The records of starts in the hub's database ---


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    """A hub's database."""
    with hub_session(new_database(tmp_path)) as session:
        yield session


async def test_a_start_is_found_by_its_id_and_no_other_is(session: Session) -> None:
    """By the next hub process, too."""
    await StartRecords(session).add("0a-1", RecordedStart("ann", "lab"))

    with session_of(session.get_bind().engine.url.render_as_string(hide_password=False)) as next_session:
        assert StartRecords(next_session).find({"0a-1", "0a-2"}) == {"0a-1": RecordedStart("ann", "lab")}


async def test_hundreds_are_found(session: Session) -> None:
    """More than fit into one query."""
    records = StartRecords(session)
    for number in range(450):
        await records.add(f"0a-{number}", RecordedStart("ann", ""))

    assert len(records.find({f"0a-{number}" for number in range(1000)})) == 450


async def test_a_record_outlives_its_user_and_goes_with_time(session: Session) -> None:
    """A job of a deleted user is still known as this hub's."""
    records = StartRecords(session)
    for start in ("0a-1", "0a-2"):
        await records.add(start, RecordedStart("ann", ""))
    session.execute(
        text("update gpuspawner_starts set made_at = :at where start_id = '0a-1'"),
        {"at": time.time() - RETENTION_SECONDS - 1},
    )
    records.forget_old()

    assert records.find({"0a-1", "0a-2"}) == {"0a-2": RecordedStart("ann", "")}


@pytest.mark.parametrize(("patience", "recorded"), [(30.0, True), (0.0, False)])
async def test_a_database_that_is_away_for_a_moment_costs_no_start(
    session: Session, monkeypatch: pytest.MonkeyPatch, patience: float, recorded: bool
) -> None:
    """It is waited for before anything is submitted; the session can be used again in any case."""
    records, commit = StartRecords(session), session.commit
    faults = [OperationalError("INSERT", {}, Exception("the database system is shutting down")) for _ in range(2)]

    def away() -> None:
        if faults:
            raise faults.pop()
        commit()

    monkeypatch.setattr("jupyterhub_gpuspawner.hub.site.database.PAUSES", (0.01,))
    monkeypatch.setattr(session, "commit", away)
    answer = await records.add("0a-1", RecordedStart("ann", ""), patience=patience)
    faults.clear()

    assert answer is recorded
    assert records.find({"0a-1"}) == ({"0a-1": RecordedStart("ann", "")} if recorded else {})


async def test_a_record_whose_commit_was_not_answered_is_written_again(session: Session) -> None:
    """The connection was lost between the two."""
    records = StartRecords(session)
    for _ in range(2):
        assert await records.add("0a-1", RecordedStart("ann", ""), patience=0.0)

    assert records.find({"0a-1"}) == {"0a-1": RecordedStart("ann", "")}


async def test_jupyterhub_starts_over_a_database_that_has_the_table(session: Session) -> None:
    """JupyterHub checks the schema of its own tables only."""
    await StartRecords(session).add("0a-1", RecordedStart("ann", ""))

    orm.check_db_revision(session.get_bind())
