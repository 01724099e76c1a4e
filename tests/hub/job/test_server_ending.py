"""How a server's end is explained, and what is kept of it."""

from __future__ import annotations

from typing import Any

import pytest

from jupyterhub_gpuspawner.errors import (
    ConfigError,
    GPUSpawnerError,
    RequestError,
    SlurmUnavailable,
    SubmitRejected,
)
from jupyterhub_gpuspawner.hub import words
from jupyterhub_gpuspawner.hub.job.ending import (
    TEXT_LIMIT,
    Ending,
    ServerEnding,
    ending_of,
    spawn_failure,
    start_failed,
    stored_ending,
)
from jupyterhub_gpuspawner.hub.job.log import OF_ENDING, Extent, JobLog
from jupyterhub_gpuspawner.hub.job.watch import JobWatch
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.slurm.job import SILENT, End, Job, Phase

DETAIL = Job("7", Phase.ENDED, stdout_path="/home/ada/7.log", time_limit=3600)
FAILED = Job("7", Phase.ENDED, state="FAILED", end=End.FAILED, exit_code="1:0")


class Log(JobLog):
    """A log with these lines; without a detail Slurm does not answer."""

    def __init__(self, watch: JobWatch, lines: str = "last line", detail: Job | None = DETAIL) -> None:
        super().__init__(watch)
        self.lines, self.detail = lines, detail

    async def job(self) -> Job | None:
        if self.detail is None:
            raise SlurmUnavailable("slurmctld is not responding.")
        return self.detail

    async def last_lines(self, path: str, extent: Extent = OF_ENDING, *, job_id: str = "") -> str:  # noqa: ARG002
        assert path == "/home/ada/7.log"
        return self.lines


class Server:
    """A server, and what is kept of its end."""

    def __init__(self, **log: Any) -> None:
        self.watch = JobWatch(GPUSlurmSpawner())
        self.watch.job_id = "7"
        self.ended = ServerEnding(self.watch, Log(self.watch, **log))

    @property
    def ending(self) -> Ending | None:
        return self.ended.last

    @ending.setter
    def ending(self, ending: Ending | None) -> None:
        self.ended.last = ending


async def test_a_job_that_ended_during_the_start_is_told_with_its_log() -> None:
    """In the error of the start, and in what is kept for the page."""
    server = Server()
    failure = await server.ended.died(FAILED, reported=True)

    assert server.ending is not None
    assert ending_of(failure) == server.ending
    assert server.ending.what.startswith("Job 7 ended before your server was ready: ")
    assert (server.ending.log, server.ending.lines, server.ending.served) == ("/home/ada/7.log", "last line", False)


@pytest.mark.parametrize(("reported", "lines", "silent"), [(False, "", True), (True, "", False), (False, "x", False)])
async def test_a_job_that_ended_without_a_word_has_an_advice_of_its_own(
    reported: bool, lines: str, silent: bool
) -> None:
    """Neither its launcher nor its log said anything."""
    server = Server(lines=lines)
    await server.ended.died(FAILED, reported=reported)

    assert server.ending is not None
    assert (server.ending.advice == SILENT) is silent


async def test_without_slurm_an_ending_has_no_log() -> None:
    """What is known is kept."""
    server = Server(detail=None)
    await server.ended.keep_job_end(FAILED)

    assert server.ending is not None
    assert (server.ending.log, server.ending.lines, server.ending.served) == ("", "", True)
    assert "failed" in server.ending.what.lower()


async def test_a_time_limit_is_named() -> None:
    """As Slurm has it."""
    server = Server()
    await server.ended.keep_job_end(Job("7", Phase.ENDED, state="TIMEOUT", end=End.TIME_LIMIT))

    assert server.ending is not None
    assert server.ending.what == "The job reached its time limit of 1 h."


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
    waited: Any = server.ended.waited_too_long(14400.0)

    assert (waited.status_code, waited.reason) == (409, "queue_timeout")
    assert server.ending is not None
    assert server.ending.what.startswith("You waited 4 h in the queue, which is the limit here;")
    assert ending_of(waited) == server.ending


async def test_a_start_that_can_never_succeed_or_takes_too_long_is_told_at_once() -> None:
    """Nothing is asked for these."""
    server = Server(detail=None)
    never = server.ended.never_starts(Job("7", Phase.QUEUED, state="PENDING", reason="BadConstraints"))
    kept = server.ending
    known = server.ended.never_starts(
        Job("7", Phase.QUEUED, reason="PartitionTimeLimit"), why="70 h is more than the limit of 24 h."
    )
    again = server.ending
    late = server.ended.timed_out(600, "Job 7: Waiting")

    assert ending_of(never) == kept
    assert kept is not None
    assert (kept.what, kept.hint.partition(" Compare")[0]) == (
        "No node can satisfy the job's request.",
        "Job 7: No node can satisfy the job's request.",
    )
    assert ending_of(known) == again
    assert again is not None
    assert again.what == "70 h is more than the limit of 24 h."
    assert ending_of(late) == server.ending
    assert server.ending is not None
    assert server.ending.what.startswith("Your server did not start within 10 min after Slurm had started its job")
    assert server.ending.what.endswith("Job 7: Waiting")


STOPPED = Ending("K80 was stopped at {time}; job 7 released 1 GPU.", job_id="7", at=1.0, stopped=True)
UNCONFIRMED = "Slurm did not respond at {time}, so job 7 may still be running. The hub keeps trying to cancel it."


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (STOPPED, Ending(UNCONFIRMED, job_id="7", at=1.0, stopped=True)),
        (Ending("It failed."), Ending("It failed.")),
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


# --- How a server ended, kept in its spawner's state ---

WHOLE = Ending(
    "The job reached its time limit of 1 h.",
    advice="Start again.",
    hint="More time.",
    job_id="7",
    at=1.5e9,
    log="/home/ada/jupyterhub-7.log",
    lines="first\nlast",
    profile="K80",
    served=True,
)


@pytest.mark.parametrize(
    "ending",
    [WHOLE, Ending("It was stopped at {time}.", at=1.5e9, stopped=True), Ending("It ended.")],
    ids=["whole", "stopped", "least"],
)
def test_what_is_stored_is_what_is_read(ending: Ending) -> None:
    """Nothing is lost, and nothing empty is stored."""
    document = ending.to_json()

    assert stored_ending({"ending": document}) == ending
    assert all(document.values())


def test_what_is_stored_has_bounds() -> None:
    """The beginning of a text is kept, and the end of a log."""
    stored = Ending("w" * 9999, lines="x" * 9999 + "last").to_json()

    assert stored == {"what": "w" * TEXT_LIMIT, "lines": "x" * (TEXT_LIMIT - 4) + "last"}


@pytest.mark.parametrize(
    "document",
    [None, {}, [], "text", {"what": ""}, {"what": 7}, {"what": "x", "log": 7}, {"what": "x", "at": "noon"}],
)
def test_what_does_not_fit_is_dropped(document: Any) -> None:
    """A damaged state never keeps a page from being shown."""
    assert stored_ending({"ending": document}) is None


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (RequestError("gpus: 9 is too many.", hint="At most 4."), Ending("gpus: 9 is too many.", advice="At most 4.")),
        (
            SubmitRejected("Slurm refused the job.", hint="Check `account`."),
            Ending(
                "Slurm refused the job.", advice=words.REFUSED.format(contact="the help desk"), hint="Check `account`."
            ),
        ),
        (
            SubmitRejected(
                "Slurm refused the job: no such QOS.", hint="Check `qos`.", for_user="There is no such QOS."
            ),
            Ending(
                "There is no such QOS.",
                advice=words.REFUSED.format(contact="the help desk"),
                hint="Slurm refused the job: no such QOS. Check `qos`.",
            ),
        ),
        (
            SlurmUnavailable("slurmctld is not responding.", hint="Check `scontrol ping`."),
            Ending(
                "Slurm is not responding at the moment.",
                advice=words.TRY_LATER.format(contact="the help desk"),
                hint="slurmctld is not responding. Check `scontrol ping`.",
            ),
        ),
        (
            ConfigError("there is no folder.", where="c.X.y", hint="Make it."),
            Ending(
                "The hub cannot start this server: it is not set up correctly.",
                advice="Please contact the help desk.",
                hint="c.X.y: there is no folder. Make it.",
            ),
        ),
    ],
)
def test_each_of_our_errors_says_who_can_do_what(error: GPUSpawnerError, ending: Ending) -> None:
    """A sentence and advice for the user; everything else is the administrator's."""
    assert ending_of(spawn_failure(error, contact="the help desk")) == ending


def test_a_failure_has_words_for_every_place_where_the_hub_shows_it() -> None:
    """REST, form and page; as HTML everything is escaped."""
    failure = start_failed("It <b>ended</b>.", detail="</pre><script>", ending=WHOLE)

    assert vars(failure)["jupyterhub_message"] == "It <b>ended</b>.\n</pre><script>"
    assert vars(failure)["jupyterhub_html_message"] == (
        '<p>It &lt;b&gt;ended&lt;/b&gt;.</p><pre class="text-start">&lt;/pre&gt;&lt;script&gt;</pre>'
    )
    assert ending_of(failure) == WHOLE
    assert ending_of(TimeoutError()) is None
