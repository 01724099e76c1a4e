"""The watcher sends one query for all jobs; only an answer from Slurm ends a job; no answer changes nothing."""

from __future__ import annotations

import asyncio
import logging
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from jupyterhub_gpuspawner.errors import SlurmOutputError, SlurmUnavailable
from jupyterhub_gpuspawner.slurm.job import End, Job, JobIdentity, Phase, end_of, phase_of
from jupyterhub_gpuspawner.slurm.watcher import SHOW_JOBS, JobWatcher, Watch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection


def job(job_id: str, state: str) -> Job:
    """A job in this state."""
    return Job(job_id, phase_of(state), state=state, end=end_of(state))


class Cluster:
    """A stand-in for Slurm with the test's jobs, which records its queries."""

    def __init__(self) -> None:
        self.held: dict[str, Job] = {}
        self.forgotten: dict[str, Job] = {}
        """Jobs that scontrol still shows although squeue does not."""
        self.hides: set[str] = set()
        """Users whose jobs are not shown; the empty name stands for jobs whose user is unknown."""
        self.fault: Exception | None = None
        self.lookup_fault: Exception | None = None
        self.rights_fault: Exception | None = None
        self.states_alone = False
        """Only the states were asked for, so what is known of each job is the same object as before."""
        self.queries: list[list[str]] = []
        self.looked_up: list[str] = []

    async def jobs(self, job_ids: Collection[str]) -> dict[str, Job]:
        """What squeue returns."""
        self.queries.append(sorted(job_ids))
        await asyncio.sleep(0)
        if self.fault is not None:
            raise self.fault
        answer = {job_id: self.held[job_id] for job_id in job_ids if job_id in self.held}
        return answer if self.states_alone else {job_id: replace(status) for job_id, status in answer.items()}

    async def job(self, job_id: str) -> Job | None:
        """What scontrol returns."""
        self.looked_up.append(job_id)
        await asyncio.sleep(0)
        if self.lookup_fault is not None:
            raise self.lookup_fault
        return self.forgotten.get(job_id)

    async def sees_jobs_of(self, user: str) -> bool:
        """Whether PrivateData lets the hub's account see this user's jobs."""
        await asyncio.sleep(0)
        if self.rights_fault is not None:
            raise self.rights_fault
        return user not in self.hides


class Clock:
    """Time that passes only when the test advances it; ``pauses`` lists how long the watcher slept."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.pauses: list[float] = []
        self.sleepers: list[tuple[float, asyncio.Future[None]]] = []

    async def sleep(self, seconds: float) -> None:
        """Sleep until the test has advanced the time."""
        self.pauses.append(seconds)
        sleeper = (self.now + seconds, asyncio.get_running_loop().create_future())
        self.sleepers.append(sleeper)
        try:
            await sleeper[1]
        finally:
            self.sleepers.remove(sleeper)

    async def pass_(self, seconds: float) -> None:
        """Advance the time by so many seconds, and run everything that is due in them."""
        until = self.now + seconds
        await settle()
        while due := [sleeper for sleeper in self.sleepers if sleeper[0] <= until and not sleeper[1].done()]:
            first = min(due, key=lambda sleeper: sleeper[0])
            self.now = first[0]
            first[1].set_result(None)
            await settle()
        self.now = until


async def settle() -> None:
    """Run every task until it waits for the clock."""
    for _ in range(30):
        await asyncio.sleep(0)


@pytest.fixture
def cluster() -> Cluster:
    """An empty stand-in for Slurm."""
    return Cluster()


@pytest.fixture
def clock() -> Clock:
    """A clock that only the test advances."""
    return Clock()


@pytest.fixture
async def watcher(cluster: Cluster, clock: Clock) -> AsyncIterator[JobWatcher]:
    """A watcher with this Slurm and clock: it queries every 1.5 s while a job is pending, every 30 s at rest."""
    log = logging.getLogger("watcher")
    watcher = JobWatcher(cluster, active_interval=1.5, log=log, clock=lambda: clock.now, sleep=clock.sleep)
    yield watcher
    await watcher.aclose()


async def test_status_is_known_after_the_first_answer_and_costs_nothing(watcher: JobWatcher, cluster: Cluster) -> None:
    """The status is None before the first answer; reading it later runs no query."""
    cluster.held["7"] = job("7", "PENDING")
    watch = watcher.watch("7")
    assert watch.status is None
    await settle()
    assert [watch.status for _ in range(100)] == [job("7", "PENDING")] * 100
    assert cluster.queries == [["7"]]


async def test_one_question_for_fifty_jobs(watcher: JobWatcher, cluster: Cluster, clock: Clock) -> None:
    """Fifty waiting users cost as much as one: one squeue per 1.5 s."""
    cluster.held = {str(n): job(str(n), "PENDING") for n in range(50)}
    watches = [watcher.watch(str(n)) for n in range(50)]
    await clock.pass_(15.0)
    assert len(cluster.queries) == 11
    assert {len(ids) for ids in cluster.queries} == {50}
    assert all(watch.status == job(watch.job_id, "PENDING") for watch in watches)


async def test_many_who_watch_one_job_share_it(watcher: JobWatcher, cluster: Cluster, clock: Clock) -> None:
    """If page, spawner and poll watch a job, it is queried once, and for as long as one of them watches."""
    cluster.held["7"] = job("7", "PENDING")
    first, second = watcher.watch("7"), watcher.watch("7")
    await clock.pass_(1.5)
    first.close()
    first.close()
    cluster.held["7"] = job("7", "RUNNING")
    await clock.pass_(1.5)
    assert second.status == job("7", "RUNNING")
    assert cluster.queries == [["7"]] * 3


@pytest.mark.parametrize(
    ("state", "interval"),
    [
        ("PENDING", 1.5),
        ("CONFIGURING", 1.5),
        ("COMPLETING", 1.5),
        ("RUNNING", 30.0),
        ("SUSPENDED", 30.0),
        ("HIBERNATING", 30.0),
    ],
)
async def test_interval_is_short_only_while_someone_waits(
    watcher: JobWatcher, cluster: Cluster, clock: Clock, state: str, interval: float
) -> None:
    """Pending, starting and ending jobs are queried every 1.5 s; the others every 30 s."""
    cluster.held["7"] = job("7", state)
    watcher.watch("7")
    await clock.pass_(interval - 0.1)
    assert len(cluster.queries) == 1 + (interval < 1.5)
    await clock.pass_(0.2)
    assert len(cluster.queries) == 2


async def test_a_queue_without_changes_is_asked_about_less(watcher: JobWatcher, cluster: Cluster, clock: Clock) -> None:
    """A query after a sixtieth of the time without a change, at most 10 s; estimates of the start are no change."""
    cluster.held = {"7": job("7", "PENDING"), "8": job("8", "RUNNING")}
    watcher.watch("7")
    watcher.watch("8")

    async def queries(seconds: float) -> int:
        before = len(cluster.queries)
        await clock.pass_(seconds)
        return len(cluster.queries) - before

    assert await queries(60.0) == 41
    cluster.held["7"] = replace(cluster.held["7"], starts_at=5000.0)
    await clock.pass_(540.0)
    assert await queries(60.0) == 6
    assert await queries(3600.0) == 360


@pytest.mark.parametrize("news", ["a change", "a new job", "a job of a server that is stopped"])
async def test_news_make_the_interval_short_again(
    watcher: JobWatcher, cluster: Cluster, clock: Clock, news: str
) -> None:
    """A change that Slurm reports, a submission, and a cancellation, after an hour in the queue."""
    cluster.held = {"7": job("7", "PENDING"), "8": job("8", "PENDING")}
    watch = watcher.watch("7")
    await clock.pass_(3600.0)
    if news == "a change":
        cluster.held["7"] = replace(cluster.held["7"], reason="Priority")
        await clock.pass_(10.0)
    elif news == "a new job":
        watcher.watch("8")
    else:
        watch.hurry()
    await clock.pass_(0.0)
    before = len(cluster.queries)
    await clock.pass_(15.0)
    assert len(cluster.queries) - before == 10


async def test_one_who_waits_makes_it_short_for_all(watcher: JobWatcher, cluster: Cluster, clock: Clock) -> None:
    """A new job starts the short interval at once; when it runs, the long one returns."""
    cluster.held = {"1": job("1", "RUNNING"), "2": job("2", "PENDING")}
    watcher.watch("1")
    await clock.pass_(10.0)
    assert cluster.queries == [["1"]]
    watcher.watch("2")
    await clock.pass_(0.0)
    assert cluster.queries == [["1"], ["1", "2"]]
    cluster.held["2"] = job("2", "RUNNING")
    await clock.pass_(1.5)
    await clock.pass_(29.0)
    assert len(cluster.queries) == 3


async def test_crowd_of_new_jobs_is_not_a_crowd_of_questions(
    watcher: JobWatcher, cluster: Cluster, clock: Clock
) -> None:
    """Thirty starts within a second cause one query at once for the first, then one for the others."""
    for n in range(30):
        cluster.held[str(n)] = job(str(n), "PENDING")
        watcher.watch(str(n))
        await clock.pass_(1 / 30)
    await clock.pass_(0.6)
    assert [len(ids) for ids in cluster.queries] == [1, 30]


async def test_changed_tells_each_change_once(watcher: JobWatcher, cluster: Cluster, clock: Clock) -> None:
    """Pending, running and completed are three changes; otherwise none is reported."""
    cluster.held["7"] = job("7", "PENDING")
    watch = watcher.watch("7")
    states: list[str] = []

    async def listen() -> None:
        while (status := await watch.changed()) is None or status.phase is not Phase.ENDED:
            states.append(status.state if status else "")
        states.append(status.state)

    listener = asyncio.create_task(listen())
    await clock.pass_(6.0)
    assert states == ["PENDING"]
    cluster.held["7"] = job("7", "RUNNING")
    await clock.pass_(60.0)
    cluster.held["7"] = job("7", "COMPLETED")
    await clock.pass_(60.0)
    await listener
    assert states == ["PENDING", "RUNNING", "COMPLETED"]


async def test_change_between_two_calls_is_not_lost(watcher: JobWatcher, cluster: Cluster) -> None:
    """A change that no call was waiting for is returned by the next call at once."""
    cluster.held["7"] = job("7", "RUNNING")
    watch = watcher.watch("7")
    await settle()
    assert await watch.changed() == job("7", "RUNNING")


async def test_a_change_is_told_to_every_task_that_waits_on_one_watch(
    watcher: JobWatcher, cluster: Cluster, clock: Clock
) -> None:
    """One task looks out for the end of a server while another one stops it."""
    cluster.held["7"] = job("7", "RUNNING")
    watch = watcher.watch("7")
    await settle()
    await watch.changed()
    lookout, stop = (asyncio.create_task(watch.changed()) for _ in range(2))
    await settle()

    cluster.held["7"] = job("7", "CANCELLED")
    await clock.pass_(30.0)

    assert (await lookout, await stop) == (job("7", "CANCELLED"), job("7", "CANCELLED"))


async def test_cancelled_listener_does_not_disturb_the_others(
    watcher: JobWatcher, cluster: Cluster, clock: Clock
) -> None:
    """Cancelling one waiter ends neither the poll nor another waiter."""
    cluster.held["7"] = job("7", "PENDING")
    impatient, patient = watcher.watch("7"), watcher.watch("7")
    await settle()
    await impatient.changed()
    await patient.changed()
    first, second = (asyncio.create_task(watch.changed()) for watch in (impatient, patient))
    await settle()
    first.cancel()
    await settle()
    assert first.cancelled()
    cluster.held["7"] = job("7", "RUNNING")
    await clock.pass_(1.5)
    assert await second == job("7", "RUNNING")


# --- jobs missing from a good answer ------------------------------------------------------------


async def test_job_that_left_squeue_is_looked_up_once_for_its_end(
    watcher: JobWatcher, cluster: Cluster, clock: Clock
) -> None:
    """scontrol still knows how the job ended: there is one look-up, and no further query."""
    cluster.held["7"] = job("7", "RUNNING")
    watch = watcher.watch("7")
    await clock.pass_(1.0)
    del cluster.held["7"]
    ended = Job("7", Phase.ENDED, state="FAILED", end=End.FAILED, exit_code="3:0")
    cluster.forgotten["7"] = ended
    await clock.pass_(30.0)
    assert (watch.status, cluster.looked_up) == (ended, ["7"])
    await clock.pass_(100.0)
    assert (len(cluster.queries), cluster.looked_up) == (2, ["7"])


async def test_job_that_nobody_knows_is_gone_only_when_two_answers_say_so(
    watcher: JobWatcher, cluster: Cluster, clock: Clock
) -> None:
    """The first absence does not count, the second, 1.5 s later, does; the job's known data is kept."""
    running = Job("7", Phase.RUNNING, state="RUNNING", batch_host="g1", nodes="g1", user="alice", tag="t")
    cluster.held["7"] = running
    watch = watcher.watch("7")
    await clock.pass_(1.0)
    del cluster.held["7"]
    await clock.pass_(29.5)
    assert (watch.status, cluster.looked_up) == (running, ["7"])
    await clock.pass_(1.5)
    assert watch.status == Job("7", Phase.ENDED, batch_host="g1", nodes="g1", user="alice", end=End.VANISHED, tag="t")
    assert cluster.looked_up == ["7", "7"]


async def test_job_that_comes_back_was_never_gone(watcher: JobWatcher, cluster: Cluster, clock: Clock) -> None:
    """If a job is absent, present and absent again, counting starts over."""
    cluster.held["7"] = job("7", "PENDING")
    watch = watcher.watch("7")
    await settle()
    for _ in range(3):
        held = cluster.held.pop("7")
        await clock.pass_(1.5)
        cluster.held["7"] = held
        await clock.pass_(1.5)
    assert watch.status == job("7", "PENDING")


@pytest.mark.parametrize(
    "fault", [SlurmUnavailable("down"), SlurmOutputError("odd", raw="x"), ValueError("a bug of ours")]
)
async def test_job_that_cannot_be_looked_up_is_kept(
    watcher: JobWatcher, cluster: Cluster, clock: Clock, fault: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever error the look-up raises, the job is kept, and at most one line is logged."""
    cluster.held["7"] = job("7", "RUNNING")
    watch = watcher.watch("7")
    await clock.pass_(1.0)
    del cluster.held["7"]
    cluster.lookup_fault = fault
    await clock.pass_(300.0)
    assert watch.status == job("7", "RUNNING")
    assert len(cluster.looked_up) > 5
    assert len(caplog.messages) == (0 if isinstance(fault, SlurmUnavailable) else 1)


async def test_unknown_state_keeps_the_job_and_is_said_once(
    watcher: JobWatcher, cluster: Cluster, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """An unknown state from a newer Slurm does not end a job."""
    cluster.held["7"] = job("7", "HIBERNATING")
    watch = watcher.watch("7")
    await clock.pass_(300.0)
    assert watch.status == job("7", "HIBERNATING")
    assert caplog.messages == ["Job 7 has the unknown state HIBERNATING and is kept"]


# --- jobs that Slurm does not show ------------------------------------------------------------------


async def test_a_job_that_slurm_never_showed_is_unknown_and_not_gone(
    watcher: JobWatcher, cluster: Cluster, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """With PrivateData one line is logged, and queries use the long interval without look-ups."""
    cluster.hides = {""}
    watches = [watcher.watch("7"), watcher.watch("8")]
    await clock.pass_(10.0)
    looked_up = len(cluster.looked_up)
    queries = len(cluster.queries)
    await clock.pass_(600.0)
    assert [(watch.status, watch.stale) for watch in watches] == [(None, False)] * 2
    assert (len(cluster.looked_up), len(cluster.queries) - queries) == (looked_up, 20)
    assert caplog.messages == [
        f"Slurm does not show the hub the jobs of its users. {SHOW_JOBS} Noticed for job 7; running servers are kept."
    ]


async def test_a_running_job_that_slurm_shows_no_more_is_kept(
    watcher: JobWatcher, cluster: Cluster, clock: Clock
) -> None:
    """PrivateData is set while servers run: each keeps its last status."""
    running = Job("7", Phase.RUNNING, state="RUNNING", user="alice")
    cluster.held["7"] = running
    watch = watcher.watch("7")
    await clock.pass_(1.0)
    cluster.hides = {"alice"}
    del cluster.held["7"]
    await clock.pass_(600.0)
    assert watch.status == running


async def test_a_job_of_ones_own_is_gone_all_the_same(watcher: JobWatcher, cluster: Cluster, clock: Clock) -> None:
    """Slurm always shows users their own jobs, so an absent one has ended."""
    cluster.held["7"] = Job("7", Phase.RUNNING, state="RUNNING", user="hub")
    watch = watcher.watch("7")
    await clock.pass_(1.0)
    cluster.hides = {"", "alice"}
    del cluster.held["7"]
    await clock.pass_(60.0)
    assert watch.status is not None
    assert watch.status.end is End.VANISHED


async def test_a_hidden_job_that_is_shown_again_is_as_slurm_tells_it(
    watcher: JobWatcher, cluster: Cluster, clock: Clock
) -> None:
    """The hub's account becomes an operator: existing jobs are seen, missing ones are gone after two answers."""
    cluster.hides = {""}
    there, gone = watcher.watch("7"), watcher.watch("8")
    await clock.pass_(60.0)
    cluster.hides = set()
    cluster.held["7"] = job("7", "RUNNING")
    await clock.pass_(60.0)
    assert (there.status, gone.status and gone.status.end) == (job("7", "RUNNING"), End.VANISHED)


async def test_a_job_of_an_account_that_is_shown_is_gone_though_slurm_never_told_of_it(
    watcher: JobWatcher, cluster: Cluster, clock: Clock
) -> None:
    """A hub that submits as its own account sees its jobs, and was away while this one ended."""
    cluster.hides = {""}
    watch = watcher.watch("7", JobIdentity(tag="jupyterhub-gpuspawner/x/ada/", owner="hub"))
    await clock.pass_(60.0)
    assert watch.status is not None
    assert watch.status.end is End.VANISHED


@pytest.mark.parametrize("fault", [SlurmUnavailable("down"), SlurmOutputError("odd"), ValueError("a fault of ours")])
async def test_while_the_rights_are_not_known_nothing_is_gone(
    watcher: JobWatcher, cluster: Cluster, clock: Clock, fault: Exception
) -> None:
    """No job is gone while it is unknown whose jobs Slurm shows."""
    cluster.held["7"] = job("7", "RUNNING")
    watch = watcher.watch("7")
    await clock.pass_(1.0)
    del cluster.held["7"]
    cluster.rights_fault = fault
    await clock.pass_(300.0)
    assert watch.status == job("7", "RUNNING")
    cluster.rights_fault = None
    await clock.pass_(60.0)
    assert watch.status is not None
    assert watch.status.end is End.VANISHED


# --- outages ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault", [SlurmUnavailable("slurmctld is down"), SlurmOutputError("odd", raw="x"), KeyError("x")]
)
async def test_silence_keeps_every_status_and_is_told_once(
    watcher: JobWatcher, cluster: Cluster, clock: Clock, fault: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """No answer, a malformed answer, even an internal error: statuses are kept and stale; two lines are logged."""
    cluster.held = {"1": job("1", "RUNNING"), "2": job("2", "PENDING")}
    watches = [watcher.watch("1"), watcher.watch("2")]
    await clock.pass_(1.0)
    assert (watcher.last_answer, watcher.silent_since, watches[0].stale) == (1000.0, None, False)
    cluster.fault = fault
    await clock.pass_(600.0)
    assert [watch.status for watch in watches] == [job("1", "RUNNING"), job("2", "PENDING")]
    assert (watcher.last_answer, watcher.silent_since, watches[0].stale) == (1000.0, 1001.5, True)
    cluster.fault = None
    await clock.pass_(30.0)
    assert (watcher.silent_since, watches[0].stale) == (None, False)
    assert [message.partition(":")[0].partition(",")[0] for message in caplog.messages] == [
        "Slurm is not responding; all servers are kept",
        "Slurm is responding again",
    ]


async def test_a_late_answer_is_told_before_it_comes(cluster: Cluster, clock: Clock) -> None:
    """The job is stale while the query is late, and fresh with its answer; that is no outage, and is not logged."""
    answers = asyncio.Event()
    answers.set()

    class Slow(Cluster):
        async def jobs(self, job_ids: Collection[str]) -> dict[str, Job]:
            await answers.wait()
            return await super().jobs(job_ids)

    slow = Slow()
    slow.held["7"] = job("7", "PENDING")
    watcher = JobWatcher(slow, active_interval=1.5, late=0.01, clock=lambda: clock.now, sleep=clock.sleep)
    watch = watcher.watch("7")
    await watch.changed()
    answers.clear()
    await clock.pass_(1.5)
    assert (await watch.changed(), watch.stale) == (job("7", "PENDING"), True)
    assert (watcher.unanswered_since, watcher.silent_since, watcher.last_answer) == (1001.5, None, 1000.0)
    answers.set()
    assert (await watch.changed(), watch.stale, watcher.unanswered_since) == (job("7", "PENDING"), False, None)
    await watcher.aclose()


async def test_silent_slurm_is_asked_less_and_less(watcher: JobWatcher, cluster: Cluster, clock: Clock) -> None:
    """Queries are sent after 3, 6, 12, 24, then every 30 seconds, even with a new job; after an answer 1.5 s again."""
    cluster.held["7"] = job("7", "PENDING")
    cluster.fault = SlurmUnavailable("down")
    watcher.watch("7")
    await clock.pass_(0.0)
    watcher.watch("8")
    await clock.pass_(200.0)
    assert clock.pauses[:7] == [3.0, 6.0, 12.0, 24.0, 30.0, 30.0, 30.0]
    cluster.fault = None
    clock.pauses.clear()
    await clock.pass_(30.0)
    assert clock.pauses[:2] == [1.5, 1.5]


async def test_long_silence_is_survived(watcher: JobWatcher, cluster: Cluster, clock: Clock) -> None:
    """During a weekend's outage with thousands of failures, queries are still sent every 30 s."""
    cluster.fault = SlurmUnavailable("down")
    watcher.watch("7")
    await clock.pass_(60_000.0)
    assert clock.pauses[-1] == 30.0
    assert len(cluster.queries) > 1900


async def test_listener_hears_that_slurm_fell_silent_and_that_it_is_back(
    watcher: JobWatcher, cluster: Cluster, clock: Clock
) -> None:
    """``changed`` returns with the same status, when it is stale and when it is fresh again, so pages can say so."""
    cluster.held["7"] = job("7", "PENDING")
    watch = watcher.watch("7")
    await clock.pass_(0.0)
    await watch.changed()
    cluster.fault = SlurmUnavailable("down")
    await clock.pass_(1.5)
    assert (await watch.changed(), watch.stale) == (job("7", "PENDING"), True)
    cluster.fault = None
    await clock.pass_(3.0)
    assert (await watch.changed(), watch.stale) == (job("7", "PENDING"), False)


@pytest.mark.parametrize("job_id", ["", "abc", "7;rec", "7,8", "٣"])
async def test_id_that_is_none_does_not_spoil_the_question(watcher: JobWatcher, cluster: Cluster, job_id: str) -> None:
    """An invalid id is refused at once; the other jobs are queried as before."""
    cluster.held["7"] = job("7", "RUNNING")
    watch = watcher.watch("7")
    with pytest.raises(ValueError, match="is not a valid job id"):
        watcher.watch(job_id)
    await settle()
    assert (watch.status, cluster.queries) == (job("7", "RUNNING"), [["7"]])


# --- start, hurry, close ------------------------------------------------------------------------


def tasks() -> set[asyncio.Task[object]]:
    """Tasks other than the test's own."""
    return asyncio.all_tasks() - {asyncio.current_task()}


async def test_task_runs_only_while_there_is_something_to_ask(
    watcher: JobWatcher, cluster: Cluster, clock: Clock
) -> None:
    """There is no task before the first watch and after the last, and one again for a later watch."""
    assert tasks() == set()
    cluster.held["7"] = job("7", "RUNNING")
    for _ in range(2):
        watch = watcher.watch("7")
        await clock.pass_(5.0)
        assert len([task for task in tasks() if "JobWatcher._run" in repr(task)]) == 1
        watch.close()
        await settle()
        assert tasks() == set()
    assert len(cluster.queries) == 2


async def test_task_ends_when_all_jobs_have_ended(watcher: JobWatcher, cluster: Cluster, clock: Clock) -> None:
    """An ended job is not queried again, even while its status is read."""
    cluster.held["7"] = job("7", "COMPLETED")
    watch = watcher.watch("7")
    await clock.pass_(100.0)
    assert (watch.status, cluster.queries, tasks()) == (job("7", "COMPLETED"), [["7"]], set())
    cluster.held["8"] = job("8", "PENDING")
    watcher.watch("8")
    await clock.pass_(1.5)
    assert cluster.queries[1:] == [["8"], ["8"]]


async def test_hurry_asks_soon_and_for_a_while(watcher: JobWatcher, cluster: Cluster, clock: Clock) -> None:
    """After scancel a running job is queried every 1.5 s, but only for a limited time."""
    cluster.held["7"] = job("7", "RUNNING")
    watch = watcher.watch("7")
    await clock.pass_(10.0)
    watch.hurry()
    await clock.pass_(15.0)
    assert len(cluster.queries) == 12
    await clock.pass_(120.0)
    queries = len(cluster.queries)
    await clock.pass_(60.0)
    assert len(cluster.queries) - queries <= 2


async def test_hurry_may_be_short(watcher: JobWatcher, cluster: Cluster, clock: Clock) -> None:
    """A short hurry makes three queries, then the long interval returns; it does not end a longer hurry."""
    cluster.held["7"] = job("7", "RUNNING")
    watch = watcher.watch("7")
    await clock.pass_(10.0)
    watch.hurry(3)
    watch.hurry(1)
    await clock.pass_(25.0)
    assert len(cluster.queries) == 1 + 3


async def test_closing_wakes_who_still_listens(watcher: JobWatcher) -> None:
    """A closed watch raises RuntimeError instead of waiting for ever."""
    with closing(watcher.watch("7")) as watch:
        listener = asyncio.create_task(watch.changed())
        await settle()
    with pytest.raises(RuntimeError, match="the watch of job 7 is closed"):
        await listener
    with pytest.raises(RuntimeError, match="the watch of job 7 is closed"):
        await watch.changed()


async def test_aclose_leaves_nothing(clock: Clock) -> None:
    """Closing the watcher leaves no task, even during a query that hangs."""
    hangs = asyncio.Event()

    class Hanging(Cluster):
        async def jobs(self, job_ids: Collection[str]) -> dict[str, Job]:
            hangs.set()
            await asyncio.Event().wait()
            return await super().jobs(job_ids)

    watcher = JobWatcher(Hanging(), clock=lambda: clock.now, sleep=clock.sleep)
    watch: Watch = watcher.watch("7")
    await hangs.wait()
    await watcher.aclose()
    assert tasks() == set()
    with pytest.raises(RuntimeError):
        await watch.changed()
    await watcher.aclose()


ANNS = JobIdentity(owner="ann", uid=1001, tag="jupyterhub-gpuspawner/demo/ann/#0a-1")


async def test_an_answer_about_states_alone_is_no_second_one(watcher: JobWatcher, cluster: Cluster) -> None:
    """It says nothing new of the reason or the nodes, so nothing is decided by it."""
    cluster.held["7"] = Job("7", Phase.QUEUED, state="PENDING", reason="BadConstraints")
    with closing(watcher.watch("7")) as watch:
        answers = []
        for states_alone in (True, True, False):
            cluster.states_alone = states_alone
            await watch.update()
            answers.append(watch.answers)

    assert [answer - answers[0] for answer in answers] == [0, 0, 1]


ANNS_JOB = Job("7", Phase.RUNNING, state="RUNNING", user="ann", uid=1001, tag=ANNS.tag)
BOBS_JOB = Job("7", Phase.RUNNING, state="RUNNING", user="bob", uid=1002)


async def test_another_job_under_the_number_ends_it_only_when_two_answers_say_so(
    watcher: JobWatcher, cluster: Cluster, clock: Clock
) -> None:
    """Nothing about the other job is reported for this one; one different answer restarts the count."""
    cluster.held["7"] = ANNS_JOB
    watch = watcher.watch("7", ANNS)
    await settle()
    statuses = []
    for held in (BOBS_JOB, ANNS_JOB, BOBS_JOB, BOBS_JOB):
        cluster.held["7"] = held
        watch.hurry()
        await clock.pass_(1.5)
        statuses.append(watch.status)
    ended = Job("7", Phase.ENDED, user="ann", uid=1001, tag=ANNS.tag, end=End.REPLACED)
    assert statuses == [ANNS_JOB, ANNS_JOB, ANNS_JOB, ended]


async def test_two_servers_with_one_number_are_told_apart(watcher: JobWatcher, cluster: Cluster, clock: Clock) -> None:
    """Job ids started over: the older server has ended, and the newer one has the job."""
    bobs = JobIdentity(owner="bob", uid=1002, tag="jupyterhub-gpuspawner/demo/bob/#0a-2")
    cluster.held["7"] = job = replace(BOBS_JOB, tag=bobs.tag)
    with closing(watcher.watch("7", ANNS)) as older, closing(watcher.watch("7", bobs)) as newer:
        await clock.pass_(1.5)
        assert older.status is not None
        assert (older.status.end, newer.status) == (End.REPLACED, job)
    assert cluster.queries[:2] == [["7"], ["7"]]


async def test_what_a_plugin_makes_of_a_new_job_is_learnt_from_the_first_answer(
    watcher: JobWatcher, cluster: Cluster
) -> None:
    """sbatch has just returned the id, so comment and name in Slurm's first answer identify the job from then on."""
    cluster.held["7"] = job = replace(ANNS_JOB, tag="project 7", name="batch")
    watch = watcher.watch("7", ANNS, new=True)
    await settle()
    assert (watch.status, watch.identity) == (job, replace(ANNS, tag="project 7", name="batch"))


async def test_a_change_by_the_hub_is_known_at_once(watcher: JobWatcher, cluster: Cluster) -> None:
    """One question about that job alone, without waiting for the interval; everyone who watches it is told."""
    cluster.held["7"], cluster.held["8"] = job("7", "RUNNING"), job("8", "RUNNING")
    watch, other, _ = watcher.watch("7"), watcher.watch("7"), watcher.watch("8")
    await other.changed()
    await settle()
    cluster.held["7"] = replace(job("7", "RUNNING"), ends_at=2000.0)
    cluster.queries.clear()

    assert await watch.update() == cluster.held["7"]
    assert (await other.changed(), cluster.queries) == (cluster.held["7"], [["7"]])


async def test_a_question_about_one_job_that_gets_no_answer(watcher: JobWatcher, cluster: Cluster) -> None:
    """It raises, and the last status stays."""
    cluster.held["7"] = job("7", "RUNNING")
    watch = watcher.watch("7")
    await watch.changed()
    cluster.fault = SlurmUnavailable("slurmctld is down.")

    with pytest.raises(SlurmUnavailable):
        await watch.update()

    assert watch.status == job("7", "RUNNING")


async def test_a_question_about_one_job_does_not_take_another_for_it(watcher: JobWatcher, cluster: Cluster) -> None:
    """An id that has become another job's changes nothing at the first answer, as in the watcher's own questions."""
    mine = replace(job("7", "RUNNING"), user="ada", tag="jupyterhub-gpuspawner/hub/ada/#1")
    cluster.held["7"] = mine
    watch = watcher.watch("7", JobIdentity(owner="ada", tag=mine.tag))
    await watch.changed()
    cluster.held["7"] = replace(mine, user="ben", tag="", ends_at=2000.0)

    assert await watch.update() == mine
