"""A job that sbatch has made, and its start: neither loses the other."""

from __future__ import annotations

import asyncio

import pytest

from jupyterhub_gpuspawner.errors import ConfigError, SlurmUnavailable, SubmitRejected
from jupyterhub_gpuspawner.hub import submission
from jupyterhub_gpuspawner.hub.batch import BatchJob
from jupyterhub_gpuspawner.hub.submission import cancel_surely, submit
from jupyterhub_gpuspawner.job import JobStatus, Phase

JOB = BatchJob("#!/bin/bash\n", (), "jupyterhub-gpuspawner/demo/ann/#1")


class Slurm:
    """A stand-in for the client: sbatch answers when told to; what it was asked is kept."""

    def __init__(self, answer: str | Exception, *, tagged: str = "", silent: int = 0) -> None:
        self.answer = answer
        self.found = {tagged: JobStatus(tagged, Phase.QUEUED)} if tagged else {}
        self.silent = silent
        """Looks that get no answer."""
        self.may_answer = asyncio.Event()
        self.cancelled: list[str] = []

    async def submit(self, _script: str, **_settings: object) -> str:
        await self.may_answer.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def tagged(self, tag: str) -> dict[str, JobStatus]:
        assert tag == JOB.tag
        if self.silent:
            self.silent -= 1
            raise SlurmUnavailable("squeue gave no answer.")
        return self.found

    async def cancel(self, job_id: str) -> None:
        self.cancelled.append(job_id)


def asked(slurm: Slurm) -> asyncio.Task[str]:
    return asyncio.create_task(submit(slurm, JOB, prefix=(), environment={}, cancel=slurm.cancel))  # type: ignore[arg-type]


async def settle() -> None:
    """Let everything happen that needs no time."""
    for _ in range(50):
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries follow each other at once."""
    monkeypatch.setattr(submission, "PAUSES", (0.0,))


async def test_the_id_comes_back() -> None:
    """As sbatch gave it; nothing is cancelled."""
    slurm = Slurm("12")
    slurm.may_answer.set()

    assert await asked(slurm) == "12"
    assert slurm.cancelled == []


async def test_a_job_whose_sbatch_failed_late_is_taken_for_made() -> None:
    """'Socket timed out' and a job with the tag: that is the start's job."""
    slurm = Slurm(SlurmUnavailable("sbatch got no answer."), tagged="13")
    slurm.may_answer.set()

    assert await asked(slurm) == "13"
    assert slurm.cancelled == []


async def test_a_start_that_is_given_up_while_sbatch_runs_gets_its_job_cancelled() -> None:
    """The cancellation goes through at once; the job follows when sbatch has answered."""
    slurm = Slurm("14")
    start = asked(slurm)
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

    made = False

    async def submit(self, _script: str, **_settings: object) -> str:
        for step in range(6):
            self.made = self.made or step == 3
            await asyncio.sleep(0)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def tagged(self, tag: str) -> dict[str, JobStatus]:
        await asyncio.sleep(0)
        return await super().tagged(tag) if self.made else {}


@pytest.mark.parametrize("answer", ["18", SlurmUnavailable("Socket timed out.")], ids=["answers", "times out"])
@pytest.mark.parametrize("steps", range(1, 20))
async def test_a_start_that_is_given_up_at_any_step_has_its_job_or_none(steps: int, answer: str | Exception) -> None:
    """Wherever the cancellation strikes: the id has come back, or the job is cancelled."""
    slurm = Stepping(answer, tagged="18")
    start = asked(slurm)
    for _ in range(steps):
        await asyncio.sleep(0)
    start.cancel()
    await settle()

    assert (slurm.made, start.cancelled(), slurm.cancelled) in [(True, True, ["18"]), (True, False, [])]
    assert start.cancelled() or start.result() == "18"
    assert set() == submission.UNDER_WAY


GIVEN_UP = {
    "while sbatch runs, which then gets no answer": True,
    "when sbatch has got no answer": False,
}


@pytest.mark.parametrize("cancelled", GIVEN_UP.values(), ids=GIVEN_UP.keys())
async def test_a_job_that_shows_up_later_is_cancelled(cancelled: bool) -> None:
    """Slurm is silent for a while; the tag finds the job all the same."""
    slurm = Slurm(SlurmUnavailable("sbatch got no answer."), tagged="15", silent=3)
    start = asked(slurm)
    await settle()
    if cancelled:
        start.cancel()
    slurm.may_answer.set()
    with pytest.raises(asyncio.CancelledError if cancelled else SlurmUnavailable):
        await start
    await settle()

    assert slurm.cancelled == ["15"]


async def test_a_refusal_makes_no_job_and_nothing_is_looked_for() -> None:
    """Slurm's no is the end of it."""
    slurm = Slurm(SubmitRejected("Slurm refused the job."), tagged="16")
    slurm.may_answer.set()
    with pytest.raises(SubmitRejected):
        await asked(slurm)
    await settle()

    assert slurm.cancelled == []


async def test_a_job_is_cancelled_again_until_it_is(caplog: pytest.LogCaptureFixture) -> None:
    """Slurm silent, then sudo in the way: both are waited out, and the log is told once each of trouble and success."""
    troubles: list[Exception] = [SlurmUnavailable("No answer."), ConfigError("sudo asks for a password.")]

    async def cancel(_job_id: str) -> None:
        if troubles:
            raise troubles.pop(0)

    with caplog.at_level("INFO"):
        await cancel_surely("17", cancel)

    assert [record.getMessage() for record in caplog.records] == [
        "Job 17 is not cancelled yet; the hub tries on: No answer.",
        "Job 17 is cancelled",
    ]
