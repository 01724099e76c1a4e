"""How a server's end is explained, and what is kept of it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from jupyterhub_gpuspawner.errors import (
    ConfigError,
    GPUSpawnerError,
    RequestError,
    SlurmUnavailable,
    SubmitRejected,
)
from jupyterhub_gpuspawner.hub.job.cause import (
    JOB_SILENT,
    Cause,
    Kind,
    Stage,
    end_of_job,
    job_ended_in_start,
    start_failed,
)
from jupyterhub_gpuspawner.hub.job.ending import REPAIRS, TEXT_LIMIT, Ending, Repair, ending_state, stored_ending
from jupyterhub_gpuspawner.hub.job.ending_words import words_of
from jupyterhub_gpuspawner.hub.job.failed_start import ending_of, spawn_failure, start_error
from jupyterhub_gpuspawner.hub.job.log import OF_ENDING, Extent, JobLog
from jupyterhub_gpuspawner.hub.job.server_ending import ServerEnding, recorded_subject
from jupyterhub_gpuspawner.hub.job.watch import JobWatch
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.resolve import JobRequest
from jupyterhub_gpuspawner.profiles.resources import Environment, PlacementRules
from jupyterhub_gpuspawner.slurm.job import SILENT, End, Job, Phase
from jupyterhub_gpuspawner.slurm.messages import rejected
from jupyterhub_gpuspawner.slurm.reason import Words
from jupyterhub_gpuspawner.wire.bounds import FAULTS
from jupyterhub_gpuspawner.wire.documents import StartFailure
from tests.standins.resources import resolved

DETAIL = Job("7", Phase.ENDED, stdout_path="/home/ada/7.log", time_limit=3600)
RUNNING = Job("7", Phase.RUNNING, batch_host="g1", stdout_path="/home/ada/7.log")
FAILED = Job("7", Phase.ENDED, state="FAILED", end=End.FAILED, exit_code="1:0")


class Log(JobLog):
    """A log with these lines; without a detail Slurm does not answer."""

    def __init__(self, watch: JobWatch, lines: str = "last line", detail: Job | None = DETAIL) -> None:
        super().__init__(watch)
        self.lines, self.detail = lines, detail

    async def job(self) -> Job | None:
        await asyncio.sleep(0)
        if self.detail is None:
            raise SlurmUnavailable("slurmctld is not responding.")
        return self.detail

    def path(self, stdout_path: str) -> str:
        return stdout_path

    async def last_lines(self, path: str, extent: Extent = OF_ENDING, *, job_id: str = "") -> str:  # noqa: ARG002
        assert path == "/home/ada/7.log"
        return self.lines


class Server:
    """A server, and what is kept of its end."""

    def __init__(self, **log: Any) -> None:
        self.spawner = GPUSlurmSpawner()
        self.watch = JobWatch(self.spawner)
        self.watch.job_id = "7"
        self.spawner.job_log = Log(self.watch, **log)
        self.ended = ServerEnding(self.watch, self.spawner.report)

    @property
    def ending(self) -> Ending | None:
        return self.ended.last

    @ending.setter
    def ending(self, ending: Ending | None) -> None:
        self.ended.last = ending

    async def fails(self, failure: Awaitable[Exception]) -> Exception:
        """The start fails so."""
        return self.ended.start_failed(await failure)

    @property
    def words(self) -> Words:
        """What is shown of it."""
        assert self.ended.last is not None
        return words_of(self.ended.last)


async def test_a_job_that_ended_during_the_start_is_told_with_its_log(caplog: pytest.LogCaptureFixture) -> None:
    """In the error of the start, in what is kept for the page, and in one line of the hub's log."""
    server = Server()
    failure = await server.fails(server.ended.died(FAILED, stage=Stage.STARTING))

    assert server.ending is not None
    assert ending_of(failure) == server.ending
    assert server.words == Words(
        'Job 7 ended before your server was ready. It wrote: "last line"',
        "The last lines of its log may say why. If they do not help, send them to your administrator.",
        "The job failed with exit code 1.",
    )
    assert (server.ending.log, server.ending.lines, server.ending.served) == ("/home/ada/7.log", "last line", False)
    assert vars(failure)["jupyterhub_message"].endswith("Log file: /home/ada/7.log\nlast line")
    assert caplog.messages == [
        'The start of (no user) failed: Job 7 ended before your server was ready. It wrote: "last line" The job failed '
        "with exit code 1. Log file: /home/ada/7.log"
    ]


@pytest.mark.parametrize(
    ("stage", "lines", "silent"),
    [(Stage.ALLOCATED, "", True), (Stage.STARTING, "", False), (Stage.ALLOCATED, "x", False)],
)
async def test_a_job_that_ended_without_a_word_has_an_advice_of_its_own(stage: Stage, lines: str, silent: bool) -> None:
    """Neither its launcher nor its log said anything."""
    server = Server(lines=lines)
    await server.fails(server.ended.died(FAILED, stage=stage))

    assert (server.words.advice == SILENT) is silent


ON_G1 = replace(FAILED, batch_host="g1")
MODULE = StartFailure("module", "CUDA/99")
FULL = StartFailure("home_full", "/home/ada")
CAUSES: dict[str, tuple[Job, StartFailure | None, str, str, str]] = {
    "a module": (ON_G1, MODULE, "", "module", "The module CUDA/99 cannot be loaded on g1."),
    "a full home, with an empty log": (ON_G1, FULL, "", "home_full", "Your home folder is full."),
    "a line of the profile": (
        ON_G1,
        StartFailure("setup", line="The license server lic1 does not answer. Ask Bob."),
        "",
        "setup",
        "The profile's setup ended the job before your server was started. It wrote: \"The license server lic1 does "
        'not answer. Ask Bob."',
    ),
    "nothing was sent, and our last line says why": (
        ON_G1,
        None,
        "gpuspawner: no Python\nbye\nslurmstepd: error: x",
        "job_failed",
        'Job 7 ended before your server was ready. It wrote: "no Python"',
    ),
    "nothing was sent, and the last line says why": (
        ON_G1,
        None,
        "no license\n\nslurmstepd: error: x",
        "job_failed",
        'Job 7 ended before your server was ready. It wrote: "no license"',
    ),
    "killed": (
        replace(ON_G1, exit_code="137:0"),
        StartFailure("server", line="starting"),
        "",
        "job_killed",
        "Job 7 ended before your server was ready: The job was killed (exit code 137), most often for its memory.",
    ),
    "nothing ran": (
        replace(ON_G1, end=End.FINISHED, exit_code="0:0"),
        None,
        "",
        "job_silent",
        "Job 7 ended before your server was ready: The job has finished. It reported nothing.",
    ),
    "nothing of ours ran, after a greeting": (
        replace(ON_G1, end=End.FINISHED, exit_code="0:0"),
        None,
        "Welcome to the cluster",
        "job_silent",
        "Job 7 ended before your server was ready: The job has finished. It reported nothing.",
    ),
    "its log could not be written": (
        replace(ON_G1, exit_code="0:53"),
        None,
        "",
        "job_no_log",
        "Job 7 ended before your server was ready: The job failed: its log file could not be written.",
    ),
    "somebody cancelled the job": (
        replace(ON_G1, state="CANCELLED", end=End.CANCELLED),
        MODULE,
        "",
        "job_cancelled",
        "Job 7 ended before your server was ready: The job was cancelled.",
    ),
}


@pytest.mark.parametrize(("job", "failure", "lines", "fault", "sentence"), CAUSES.values(), ids=CAUSES.keys())
async def test_a_job_that_ended_during_the_start_has_the_cause_that_is_known_best(
    job: Job, failure: StartFailure | None, lines: str, fault: str, sentence: str
) -> None:
    """What Slurm says of an end that is none of the job's own, what the job reported, then what it wrote last.

    Also where the job has ended before it was seen to run.
    """
    queued, server = Server(lines=lines), Server(lines=lines)
    for started, stage in ((queued, Stage.QUEUED), (server, Stage.ALLOCATED)):
        started.spawner.report.failure = failure
        await started.fails(started.ended.died(job, stage=stage))
    assert queued.words == server.words

    assert server.ending is not None
    assert (server.ending.cause, server.words.sentence) == (start_failed(fault), sentence)
    assert stored_ending(json.loads(json.dumps(server.ended.to_state()))) == server.ending


async def test_a_node_that_cannot_reach_the_hub_says_so() -> None:
    """In the last line of ours in the log of a job that runs; those of programs are no reason."""
    away = "gpuspawner: The report could not be sent to the hub: [Errno 111] Connection refused."
    server, other = Server(lines=f"{away}\nserving", detail=RUNNING), Server(lines="serving", detail=RUNNING)
    for stand_in in (server, other):
        await stand_in.fails(stand_in.ended.took_too_long(Stage.ALLOCATED, 60.0))

    assert server.words.sentence.endswith(
        'It wrote: "The report could not be sent to the hub: [Errno 111] Connection refused."'
    )
    assert "serving" not in other.words.sentence


async def test_a_start_that_hangs_with_its_home_says_so() -> None:
    """Its job runs, and never gets further."""
    server = Server(detail=RUNNING)
    server.spawner.report.failure = StartFailure("home_silent", "/home/ada")
    await server.fails(server.ended.took_too_long(Stage.ALLOCATED, 60.0))

    assert server.words == Words(
        "Your home folder does not answer on g1.",
        "This was not caused by you. Try again in a few minutes; if it still fails, contact your administrator.",
        "A write to /home/ada took too long: look at the file server, and at the node's mounts. "
        "Job 7: The job is running on g1.",
    )


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_that_a_job_can_report_has_a_sentence_of_its_own(fault: str) -> None:
    """With the node, what has failed and the job's last line in it; braces in them are no fields."""
    ending = Ending(start_failed(fault), job_id="7", job=ON_G1, subject="{x}", line="{y}")
    shown = words_of(ending)

    assert shown.sentence.endswith('It wrote: "{y}"')
    assert "{node}" not in f"{shown}"
    assert "{subject}" not in f"{shown}"
    assert shown.advice
    assert shown.sentence != words_of(replace(ending, cause=start_failed("eclipse"))).sentence


def test_a_server_that_ended_without_a_word_says_how() -> None:
    """Its exit code is all that is known."""
    ending = Ending(start_failed("server"), job_id="7", job=replace(ON_G1, exit_code="9:0"))

    assert words_of(ending).sentence == "The server ended before it was ready. The job failed with exit code 9."


OPEN = {
    "more than the line": (Ending(start_failed("server"), line="last", lines="first\nlast"), True),
    "the line alone": (Ending(start_failed("server"), line="last", lines="\nlast\n"), False),
    "our own line": (Ending(start_failed("conda"), subject="x", lines="gpuspawner: conda environment x ..."), False),
    "a server that failed": (Ending(Cause(Kind.FAILED), lines="Traceback"), True),
    "a server that reached its limit": (Ending(Cause(Kind.TIME_LIMIT), lines="Traceback"), False),
}


@pytest.mark.parametrize(("ending", "is_open"), OPEN.values(), ids=OPEN.keys())
def test_a_log_says_more_than_the_headline(ending: Ending, is_open: bool) -> None:
    """Then the page shows it without a click."""
    assert ending.log_says_more is is_open


async def test_without_slurm_an_ending_has_no_log() -> None:
    """What is known is kept."""
    server = Server(detail=None)
    await server.ended.keep_job_end(FAILED)

    assert server.ending is not None
    assert (server.ending.log, server.ending.lines, server.ending.served) == ("", "", True)
    assert server.words.sentence == "The job failed with exit code 1."


async def test_each_of_two_polls_that_see_the_same_end_finds_it_explained() -> None:
    """What ends the server, and keeps its state, may be either of them."""
    server = Server()
    first = asyncio.create_task(server.ended.keep_job_end(FAILED))
    await asyncio.sleep(0)
    await server.ended.keep_job_end(FAILED)

    assert server.ending is not None
    assert server.ending.lines == "last line"
    await first


class SlowLog(Log):
    """A log that is read until the test lets it be."""

    def __init__(self, watch: JobWatch) -> None:
        super().__init__(watch)
        self.asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def job(self) -> Job | None:
        self.asked.set()
        await self.may_answer.wait()
        return await super().job()


FAILING: dict[str, Callable[[ServerEnding], Awaitable[Exception]]] = {
    "takes too long": lambda ended: ended.took_too_long(Stage.ALLOCATED, 60.0),
    "ends": lambda ended: ended.died(FAILED, stage=Stage.STARTING),
    "does not answer": lambda ended: ended.unreachable("timeout", ""),
}


@pytest.mark.parametrize("failing", FAILING.values(), ids=FAILING)
async def test_nothing_is_kept_of_a_start_that_succeeds_while_its_failure_is_explained(
    failing: Callable[[ServerEnding], Awaitable[Exception]],
) -> None:
    """The server answers in the seconds for which its log is read; what is kept later is how that server ended."""
    server = Server()
    log = server.spawner.job_log = SlowLog(server.watch)
    explaining = asyncio.ensure_future(failing(server.ended))
    await log.asked.wait()
    meanwhile = server.ending
    explaining.cancel()  # as the start does once its server answers
    await asyncio.wait({explaining})
    log.may_answer.set()
    await server.ended.keep_job_end(replace(FAILED, ends_at=9.0))

    assert meanwhile is None
    assert server.ending is not None
    assert server.ending.cause == end_of_job(End.FAILED)


async def test_an_explanation_that_comes_late_changes_nothing_that_was_kept_since() -> None:
    """Of a server that has ended: its user stops it, or starts the next one, while its log is read."""
    server = Server()
    log = server.spawner.job_log = SlowLog(server.watch)
    explaining = asyncio.ensure_future(server.ended.keep_job_end(FAILED))
    await log.asked.wait()
    at_once = server.ending
    server.ending = stopped = Ending(Cause(Kind.STOPPED_BY_USER))
    log.may_answer.set()
    await explaining

    assert at_once is not None
    assert at_once.cause == end_of_job(End.FAILED)
    assert server.ending is stopped


async def test_a_time_limit_is_named() -> None:
    """As Slurm has it."""
    server = Server()
    await server.ended.keep_job_end(Job("7", Phase.ENDED, state="TIMEOUT", end=End.TIME_LIMIT))

    assert server.words.sentence == "The job reached its time limit of 1 h."


async def test_the_memory_that_a_job_had_is_named() -> None:
    """As it was asked for on its node, also to a person who cannot see the profile's file."""
    server = Server(detail=replace(DETAIL, memory_mib=600))
    await server.ended.keep_job_end(Job("7", Phase.ENDED, state="OUT_OF_MEMORY", end=End.OUT_OF_MEMORY))

    assert server.words.sentence == "The job exceeded its memory limit of 600 MiB."


TIMED_OUT = Job("7", Phase.ENDED, state="TIMEOUT", end=End.TIME_LIMIT, ends_at=1000.0)


@pytest.mark.parametrize(
    ("job", "planned", "sentence", "advice"),
    [
        (TIMED_OUT, 1100.0, "The session is over.", "Your files are kept as you last saved them."),
        (TIMED_OUT, 2000.0, "The job reached its time limit of 1 h.", None),
        (TIMED_OUT, None, "The job reached its time limit of 1 h.", None),
        (replace(TIMED_OUT, end=End.NODE_FAILED), 1100.0, "The node of the job failed.", None),
    ],
)
async def test_a_job_that_ends_with_the_session_of_its_course_is_no_failure(
    job: Job, planned: float | None, sentence: str, advice: str | None
) -> None:
    """Its time limit was lowered to whole minutes before the session's end; an earlier limit was its user's."""
    server = Server()
    await server.ended.keep_job_end(job, planned=planned)

    assert server.words.sentence == sentence
    assert advice in (None, server.words.advice)
    assert server.ending == stored_ending(server.ended.to_state())


KILLED = Job("7", Phase.ENDED, state="FAILED", end=End.FAILED, exit_code="0:9")
OF_MEMORY = "slurmstepd: error: Step 7.batch exceeded memory limit (700 > 400), being killed"


async def test_a_job_that_slurmd_killed_for_its_memory_says_so() -> None:
    """Slurm reports signal 9 alone where it has no cgroups: whether its server ran, or was starting."""
    ran, started = Server(lines=OF_MEMORY), Server(lines=OF_MEMORY)
    await ran.ended.keep_job_end(KILLED)
    await started.fails(started.ended.died(KILLED, stage=Stage.STARTING))

    assert ran.ending is not None
    assert started.ending is not None
    assert (ran.ending.cause, ran.words.sentence) == (Cause(Kind.MEMORY), "The job exceeded its memory limit.")
    assert (started.ending.cause, started.words.sentence) == (
        start_failed("job_out_of_memory"),
        "Job 7 ended before your server was ready: The job exceeded its memory limit.",
    )


async def test_a_server_whose_job_was_requeued_does_not_come_back_by_itself() -> None:
    """The hub cancels the job: what Slurm's reason advises is for a job that waits."""
    server = Server()
    await server.ended.keep_job_end(Job("7", Phase.QUEUED, state="PENDING", reason="BeginTime"))

    assert server.words == Words(
        "Slurm requeued the job, which ended its server.", "Start again; the new server may have to wait in the queue."
    )


async def test_only_the_first_end_is_kept_and_none_of_a_server_that_is_stopped() -> None:
    """A poll may see the end again."""
    server, stopped = Server(), Server()
    await server.ended.keep_job_end(Job("7", Phase.ENDED, state="TIMEOUT", end=End.TIME_LIMIT))
    first = server.ending
    await server.ended.keep_job_end(FAILED)
    stopped.watch.stopping = True
    await stopped.ended.keep_job_end(FAILED)

    assert first is not None
    assert (server.ending, stopped.ending) == (first, None)


async def test_a_queue_that_was_too_long_is_no_fault_of_the_hub() -> None:
    """A status from 500 on counts for ``consecutive_failure_limit``, with which JupyterHub exits."""
    server = Server(detail=None)
    waited: Any = await server.fails(server.ended.took_too_long(Stage.QUEUED, 14400.0))

    assert server.ending is not None
    assert (waited.status_code, server.ending.cause) == (409, start_failed("queue_timeout"))
    assert server.words.sentence.startswith("You waited 4 h in the queue, which is the limit here;")
    assert ending_of(waited) == server.ending


async def test_a_start_that_can_never_succeed_or_takes_too_long_is_told_at_once() -> None:
    """Nothing is asked for these."""
    server = Server(detail=None)
    never = server.ended.never_starts(Job("7", Phase.QUEUED, state="PENDING", reason="BadConstraints"))
    server.ended.start_failed(never)

    assert ending_of(never) == server.ending
    assert (server.words.sentence, server.words.hint.partition(" Compare")[0]) == (
        "No node can satisfy the job's request.",
        "Job 7: No node can satisfy the job's request.",
    )

    error = server.ended.never_starts(
        Job("7", Phase.QUEUED, reason="PartitionTimeLimit"), why="70 h is more than the limit of 24 h."
    )
    server.ended.begin()
    server.ended.start_failed(error)

    assert ending_of(error) == server.ending
    assert server.words.sentence == "70 h is more than the limit of 24 h."


LATE = {
    Stage.SUBMITTED: "Slurm did not accept the job within 10 min, so the start was cancelled.",
    Stage.ALLOCATED: "Your server did not start within 10 min after Slurm had started its job, so the start was "
    "cancelled. Last known state: Submitted as job 7.",
    Stage.STARTING: "Your server was started but did not respond to the hub within 10 min.",
    None: "The server was started but did not respond to the hub in time.",
}


@pytest.mark.parametrize(("stage", "sentence"), LATE.items())
def test_a_start_that_took_too_long_says_what_did_not_come(stage: Stage | None, sentence: str) -> None:
    """By how far it was, and with the job as it was last known."""
    ending = Ending(start_failed("timeout"), job_id="7", stage=stage, seconds=600.0)
    job = Job("7", Phase.RUNNING, batch_host="g1")

    assert words_of(ending).sentence == sentence
    assert words_of(replace(ending, job=job)).sentence == sentence.replace(
        "Submitted as job 7.", "Job 7: The job is running on g1."
    )


TO_OTHERS = {
    "timeout": "The server was started but did not respond to the hub within 10 min.",
    "queue_timeout": "The server waited 10 min in the queue, which is the limit here; the start was cancelled, and the "
    "place given up.",
    "home_full": "The home folder is full.",
    "script": "The site's batch script ended before the server was ready. The job failed with exit code 1.",
    JOB_SILENT: "Job 7 ended before the server was ready: The job failed with exit code 1. It reported nothing.",
}


@pytest.mark.parametrize(("fault", "sentence"), TO_OTHERS.items())
def test_an_instructor_does_not_read_that_it_is_her_server(fault: str, sentence: str) -> None:
    """Only the server's user reads "you" and "your"."""
    stage = Stage.STARTING if fault == "timeout" else None
    job = None if "timeout" in fault else Job("7", Phase.ENDED, state="FAILED", end=End.FAILED, exit_code="1:0")
    ending = Ending(start_failed(fault), job_id="7", job=job, stage=stage, seconds=600.0)

    assert words_of(ending, to_user=False).sentence == sentence
    assert re.search(r"\b[Yy]ou", words_of(ending).sentence)


def test_a_fault_of_another_version_has_a_sentence() -> None:
    """No decision depends on it, and the page is not empty."""
    assert words_of(Ending(start_failed("eclipse"))) == Words("The server failed to start.")


SUBJECTS = {
    "a module of the profile": ("module", "CUDA/99", "CUDA/99"),
    "a module that the profile does not have": ("module", "/home/ada/thesis.tex", ""),
    "its environment": ("conda", "course", "course"),
    "its environment's path": ("conda", "/home/ada/envs/thesis", ""),
    "a command": ("command", "CUDA/99", ""),
}


@pytest.mark.parametrize(("fault", "subject", "recorded"), SUBJECTS.values(), ids=SUBJECTS)
def test_records_keep_the_profiles_own_names_alone(fault: str, subject: str, recorded: str) -> None:
    """What a job reports is the word of its user; and no path of a person's is recorded."""
    environment = Environment(modules=("CUDA/99",), conda=subject if fault == "conda" else None)
    request = JobRequest(
        Profile(display_name="K80", slug="k80"), "ada", "", resolved("gpu"), environment, PlacementRules()
    )
    ending = Ending(start_failed(fault), subject=subject)

    assert (recorded_subject(ending, request), recorded_subject(ending, None)) == (recorded, "")


STOPPED = Ending(Cause(Kind.STOPPED_BY_USER), job_id="7", at=1.0, gpus=1)
STOPS = [
    (STOPPED, "K80 was stopped at {time}; job 7 released 1 GPU."),
    (replace(STOPPED, by="grace", gpus=2), "K80 was stopped at {time} by grace; job 7 released 2 GPUs."),
    (replace(STOPPED, gpus=0), "K80 was stopped at {time}; job 7 was cancelled."),
    (replace(STOPPED, job_id="", gpus=0), "K80 was stopped at {time}."),
    (replace(STOPPED, gpus=0, stage=Stage.QUEUED), "K80 left the line at {time}; job 7 was cancelled."),
    (
        replace(STOPPED, gpus=0, stage=Stage.QUEUED, by="grace"),
        "K80 left the line at {time}: grace stopped it; job 7 was cancelled.",
    ),
    (
        Ending(Cause(Kind.CULLED), job_id="7", gpus=1, quoted=Words("Nobody came to {it}, so it ended at {time}")),
        "Nobody came to {it}, so it ended at {time}; job 7 released 1 GPU.",
    ),
    (
        replace(STOPPED, unconfirmed=True),
        "Job 7 could not be cancelled at {time}, so it may still be running. The hub keeps trying to cancel it.",
    ),
]


@pytest.mark.parametrize(("ending", "sentence"), STOPS)
def test_a_stop_says_who_stopped_what_and_what_became_of_the_job(ending: Ending, sentence: str) -> None:
    """The page puts the time into it, in its reader's time zone."""
    assert words_of(ending, title="K80") == Words(sentence)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (STOPPED, replace(STOPPED, unconfirmed=True)),
        (Ending(Cause(Kind.FAILED)), Ending(Cause(Kind.FAILED))),
        (None, None),
    ],
    ids=["stopped by a person", "ended before", "stopped over REST"],
)
def test_a_stop_that_slurm_did_not_take_is_not_told_as_done(before: Ending | None, after: Ending | None) -> None:
    """What is kept of a person's stop says so; of any other stop nothing is kept."""
    server = Server()
    server.ending = before
    server.ended.stop_unconfirmed()
    assert server.ending == after


@pytest.mark.parametrize(
    ("kept", "job_id", "after"),
    [
        (replace(STOPPED, unconfirmed=True), "7", (True, STOPPED)),
        (replace(STOPPED, unconfirmed=True), "8", (False, replace(STOPPED, unconfirmed=True))),
        (STOPPED, "7", (False, STOPPED)),
        (None, "7", (False, None)),
    ],
    ids=["its job", "another job", "cancelled at once", "a new start"],
)
def test_a_stop_that_slurm_takes_later_is_told_as_done(
    kept: Ending | None, job_id: str, after: tuple[bool, Ending | None]
) -> None:
    """Only what is kept of that server's stop changes."""
    server = Server()
    server.ending = kept
    assert (server.ended.stop_confirmed(job_id), server.ending) == after


# --- How a server ended, kept in its spawner's state ---

WHOLE = Ending(
    end_of_job(End.TIME_LIMIT),
    at=1.5e9,
    job_id="7",
    job=Job("7", Phase.ENDED, state="TIMEOUT", end=End.TIME_LIMIT, exit_code="0:15", time_limit=3600),
    log="/home/ada/jupyterhub-7.log",
    lines="first\nlast",
    profile="K80",
)
DIED = Ending(job_ended_in_start(End.FAILED), job_id="7", stage=Stage.ALLOCATED, seconds=60.0, quoted=Words("w", "a"))


@pytest.mark.parametrize(
    "ending",
    [WHOLE, DIED, replace(STOPPED, by="grace"), Ending(Cause(Kind.UNKNOWN))],
    ids=["whole", "in its start", "stopped", "least"],
)
def test_what_is_stored_is_what_is_read(ending: Ending) -> None:
    """Nothing is lost, and nothing empty is stored."""
    state = json.loads(json.dumps(ending_state(ending)))

    assert stored_ending(state) == ending
    assert all(state["ending"].values())


@pytest.mark.parametrize("ending", [WHOLE, None], ids=["ended", "none"])
def test_a_server_has_the_ending_that_its_state_has(ending: Ending | None) -> None:
    """Also none, in the place of one from before."""
    server, other = Server(), Server()
    server.ending, other.ending = ending, DIED

    other.ended.load(server.ended.to_state())
    assert other.ending == ending


def test_no_sentence_is_stored_of_a_job_that_ended() -> None:
    """What is shown of it is made when it is shown, so that an update of this package corrects it."""
    assert ending_state(replace(WHOLE, log="", lines="")) == {
        "ending": {
            "cause": {"kind": "time limit"},
            "at": 1.5e9,
            "job_id": "7",
            "job": {
                "job_id": "7",
                "phase": "ended",
                "state": "TIMEOUT",
                "exit_code": "0:15",
                "end": "time limit",
                "time_limit": 3600,
            },
            "profile": "K80",
        }
    }


def test_what_is_stored_has_bounds() -> None:
    """The beginning of a text is kept, and the end of a log."""
    stored = ending_state(Ending(Cause(Kind.UNKNOWN), quoted=Words("w" * 9999), lines="x" * 9999 + "last"))

    assert stored["ending"] == {
        "cause": {"kind": "unknown"},
        "quoted": {"sentence": "w" * TEXT_LIMIT},
        "lines": "x" * (TEXT_LIMIT - 4) + "last",
    }


@pytest.mark.parametrize(
    "document",
    [
        None,
        {},
        [],
        "text",
        {"log": "x"},
        {"cause": {"kind": "failed"}, "log": 7},
        {"cause": {"kind": "failed"}, "at": "noon"},
        {"cause": {"kind": "bored"}},
        {"cause": {"kind": "failed"}, "job": {"job_id": "7", "phase": "asleep"}},
    ],
)
def test_what_does_not_fit_is_dropped(document: Any) -> None:
    """A damaged state never keeps a page from being shown."""
    assert stored_ending({"ending": document}) is None


DESK = "the help desk"
REFUSED = f"Choose something else, or something smaller; if that does not help, contact {DESK}."
TRY_LATER = (
    f"Try again in a minute; if it still fails, contact {DESK}. Servers that are already running are not affected."
)


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (RequestError("gpus: 9 is too many.", hint="At most 4."), Words("gpus: 9 is too many.", "At most 4.")),
        (RequestError("gpus: 9 is too many."), Words("gpus: 9 is too many.")),
        (
            SubmitRejected("Slurm refused the job.", hint="Check `account`."),
            Words("Slurm refused the job.", REFUSED, "Check `account`."),
        ),
        (
            SubmitRejected(
                "Slurm refused the job: no such QOS.", hint="Check `qos`.", for_user="There is no such QOS."
            ),
            Words("There is no such QOS.", REFUSED, "Slurm refused the job: no such QOS. Check `qos`."),
        ),
        (
            rejected("sbatch: error: Batch job submission failed: Invalid qos specification"),
            Words(
                "The QOS does not exist, or you are not allowed to use it.",
                REFUSED,
                "Slurm refused the job: the QOS does not exist, or you are not allowed to use it. "
                "Check `qos` in the profile.",
            ),
        ),
        (
            SlurmUnavailable("slurmctld is not responding.", hint="Check `scontrol ping`."),
            Words(
                "Slurm is not responding at the moment.",
                TRY_LATER,
                "slurmctld is not responding. Check `scontrol ping`.",
            ),
        ),
        (
            ConfigError("there is no folder.", where="c.X.y", hint="Make it."),
            Words(
                "The hub cannot start this server: it is not set up correctly.",
                f"Please contact {DESK}.",
                "c.X.y: there is no folder. Make it.",
            ),
        ),
    ],
)
def test_each_of_our_errors_says_who_can_do_what(error: GPUSpawnerError, shown: Words) -> None:
    """A sentence and advice for the user; everything else is the administrator's."""
    failure = spawn_failure(error, contact=DESK)
    ending = ending_of(failure)

    assert ending is not None
    assert words_of(ending, contact=DESK) == shown
    assert vars(failure)["jupyterhub_message"] == f"{shown.sentence} {shown.advice}".strip()


def test_of_a_refusal_what_sbatch_printed_is_kept_and_the_form_knows_better() -> None:
    """The message is Slurm's, and the words for it are of today; the form's reason comes before both."""
    error = rejected("sbatch: error: Batch job submission failed: Invalid qos specification")
    error.why = "There is no QOS fast."
    ending = ending_of(spawn_failure(error))

    assert ending is not None
    assert (ending.printed, ending.quoted) == (error.stderr, Words("There is no QOS fast."))
    assert words_of(ending).sentence == "There is no QOS fast."
    assert words_of(replace(ending, quoted=Words())).sentence == error.for_user


def test_a_failure_has_words_for_every_place_where_the_hub_shows_it() -> None:
    """REST, form and page; as HTML everything is escaped."""
    ending = Ending(start_failed("job_failed"), quoted=Words("It <b>ended</b>."), lines="</pre><script>")
    failure = start_error(ending)

    assert vars(failure)["jupyterhub_message"] == "It <b>ended</b>.\n</pre><script>"
    assert vars(failure)["jupyterhub_html_message"] == (
        '<p>It &lt;b&gt;ended&lt;/b&gt;.</p><pre class="text-start">&lt;/pre&gt;&lt;script&gt;</pre>'
    )
    assert ending_of(failure) == ending
    assert ending_of(TimeoutError()) is None


OF_STARTS = (*FAULTS, "hook", "timeout", "queue_timeout", "unreachable", "hub_restarted", "database", "no such fault")


@pytest.mark.parametrize("fault", OF_STARTS)
@pytest.mark.parametrize("job", [None, FAILED, RUNNING], ids=["no job", "it ended", "it runs"])
def test_somebody_else_does_not_read_of_their_own_server(fault: str, job: Job | None) -> None:
    """Whatever kept a start from succeeding, at whatever stage: an administrator is not the user's administrator."""
    endings = [Ending(start_failed(fault), job_id="7", job=job, stage=stage, subject="it") for stage in (None, *Stage)]
    said = [words_of(ending, contact="the administrator", to_user=False) for ending in endings]

    texts = [text for words in said for text in (words.sentence, words.advice)]
    assert [text for text in texts if re.search("[Yy]our (?:server|administrator)", text)] == []


def test_who_can_repair_a_start_is_declared_for_all_that_a_job_reports() -> None:
    """A full home is its user's; a module that is missing is not, and the same start would fail again."""
    assert set(FAULTS) <= set(REPAIRS)
    assert [Ending(start_failed(fault)).repair for fault in ("home_full", "module", "timeout")] == [
        *(Repair.YOU, Repair.ADMINISTRATOR),
        Repair.ANYBODY,
    ]
