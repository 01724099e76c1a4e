"""Jobs without a server are found by their comment and cancelled; other jobs are left alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from jupyterhub_gpuspawner.errors import ConfigError, SlurmUnavailable
from jupyterhub_gpuspawner.hub.lost_jobs import Orphan, Reconciliation, state_job_ids
from jupyterhub_gpuspawner.hub.start.submission import RecordedStart
from jupyterhub_gpuspawner.slurm.job import Job, JobIdentity, Phase, parse_tag, tag
from tests.fixtures.hubs import StartHub, offer, scrape, wait_for_queries
from tests.hub.commands import OddSite
from tests.hub.servers import in_the_end, start, state, stored
from tests.hub.visitor import Visitor
from tests.waiting import wait_until

MARK = "0a1b2c3d"
START = f"{MARK}-11111111"
TAG = f"jupyterhub-gpuspawner/demo/ann/#{START}"
ELSEWHERE = "jupyterhub-gpuspawner/demo/bob/#"
NAME = f"jupyterhub-{START}"
CASES: dict[str, tuple[dict[str, Any], bool]] = {
    "it waits": ({}, True),
    "it is being started": ({"phase": Phase.STARTING}, True),
    "it runs": ({"phase": Phase.RUNNING}, True),
    "it ends already": ({"phase": Phase.ENDING}, False),
    "it has ended": ({"phase": Phase.ENDED}, False),
    "its state is not known": ({"phase": Phase.UNKNOWN}, False),
    "it is another hub's by name": ({"tag": f"jupyterhub-gpuspawner/demo2/ann/#{START}"}, False),
    "it is another hub's of the same name": ({"tag": "jupyterhub-gpuspawner/demo/ann/#99999999-11111111"}, False),
    "its script was submitted by hand": ({"tag": "jupyterhub-gpuspawner/demo/ann/"}, False),
    "its comment is something else": ({"tag": "my job"}, False),
    "its comment was replaced, and its name was not": ({"tag": "project 7", "name": NAME}, True),
    "it has the name of another hub's": ({"tag": "", "name": "jupyterhub-99999999-11111111"}, False),
    "it has the site's name alone": ({"tag": "", "name": "jupyterhub-"}, False),
    "it is somebody else's, who wrote this comment": ({"user": "bob"}, False),
    "it is somebody else's, who gave it this name": ({"tag": "", "name": NAME, "user": "bob"}, False),
    "its comment names another's server": ({"tag": f"{ELSEWHERE}{START}"}, False),
    "it is a server's": ({"job_id": "7"}, False),
    "its start is under way": ({"tag": f"jupyterhub-gpuspawner/demo/ann/#{MARK}-22222222"}, False),
    "its start is not recorded here": ({"tag": f"jupyterhub-gpuspawner/demo/ann/#{MARK}-33333333"}, False),
}


@pytest.mark.parametrize(("changed", "is_orphan"), CASES.values(), ids=CASES.keys())
async def test_which_jobs_belong_to_no_server(changed: dict[str, Any], is_orphan: bool) -> None:
    """It has not ended, its mark and recorded start are this hub's, its user owns it, and it has no server or start."""
    job = Job(**{"job_id": "12", "phase": Phase.QUEUED, "user": "ann", "tag": TAG, **changed})
    site = Site(job, starts=(START, f"{MARK}-22222222"))
    site.in_memory.add("7")
    site.submitting.add(f"jupyterhub-gpuspawner/demo/ann/#{MARK}-22222222")
    check = reconciliation(site)
    await check.run_once()
    await check.run_once()

    assert site.cancelled == ([("ann", "12")] if is_orphan else [])


async def test_an_account_that_acts_for_all_may_be_any() -> None:
    """If exec_prefix names one account, the owner is unknown: Slurm decides what that account may cancel."""
    site = Site(Job("12", Phase.QUEUED, user="service", tag=TAG))
    site.exec_prefix = "sudo -u service"
    check = reconciliation(site)
    await check.run_once()
    await check.run_once()

    assert site.cancelled == [("ann", "12")]


STATES: dict[str, tuple[Any, set[str]]] = {
    "ours": ({"version": 2, "kind": "slurm", "job_id": "7", "port": 2000}, {"7"}),
    "an earlier version's": ({"version": 1, "kind": "slurm", "child": {"job_id": "7", "port": 2000}}, {"7"}),
    "a spawner without profiles": ({"job_id": "8"}, {"8"}),
    "wrapspawner's": ({"child_conf": {}, "child_state": {"job_id": "9"}}, {"9"}),
    "a process": ({"kind": "local", "child": {"pid": 7}}, set()),
    "nothing": (None, set()),
    "no document of ours": ({"child": ["job_id"]}, set()),
}


@pytest.mark.parametrize(("stored_state", "job_ids"), STATES.values(), ids=STATES.keys())
def test_whose_job_a_stored_state_names(stored_state: Any, job_ids: set[str]) -> None:
    """In every form that a hub's database may hold."""
    assert state_job_ids(stored_state) == job_ids


class Site:
    """A stand-in for the spawner with the settings of all, for its connection, and for the hub's servers."""

    hub_name = "demo"
    exec_prefix = "sudo -n -E -u {username}"
    job_name = "jupyterhub-{start}"
    cluster = ""

    def __init__(self, *jobs: Job, starts: Collection[str] = (START,), fault: Exception | None = None) -> None:
        self.jobs = {job.job_id: job for job in jobs}
        self.recorded = {start: RecordedStart("ann", "") for start in starts}
        self.faults = [fault] if fault else []
        self.in_memory: set[str] = set()
        self.submitting: set[str] = set()
        self.cancelling: set[str] = set()
        self.in_database: set[str] = set()
        self.at_the_question: Callable[[], None] = lambda: None
        self.cancelled: list[tuple[str, str]] = []
        self.notified: list[str] = []

    def connection(self, _settings: object = None) -> Any:
        return SimpleNamespace(client=self, submitting=self.submitting, cancelling=self.cancelling)

    async def every_job(self) -> dict[str, Job]:
        self.at_the_question()
        return self.jobs

    def cancellation(self, user: str, identity: JobIdentity, *, on: object) -> Callable[[str], Awaitable[None]]:
        assert on is self

        async def cancel(job_id: str) -> None:
            assert identity.matches(self.jobs[job_id])
            if self.faults:
                raise self.faults.pop()
            self.cancelled.append((user, job_id))

        return cancel

    def job_ids(self) -> set[str]:
        return set(self.in_memory)

    def stored_job_ids(self, user: str, server: str) -> set[str]:
        assert (user, server) == ("ann", "")
        return self.in_database

    def starts(self, start_ids: Collection[str]) -> dict[str, RecordedStart]:
        return {start: self.recorded[start] for start in start_ids if start in self.recorded}

    def notify(self, orphan: Orphan) -> None:
        self.notified.append(orphan.job_id)


def reconciliation(site: Site) -> Reconciliation:
    return Reconciliation(site, site, site, MARK)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def no_pause_between_checks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the seconds between the checks."""
    monkeypatch.setattr("jupyterhub_gpuspawner.hub.lost_jobs.CONFIRMED_AFTER", 0.0)


JOB = Job("12", Phase.RUNNING, user="ann", tag=TAG)


async def test_an_orphan_is_cancelled_as_its_user_who_is_told() -> None:
    """One squeue and one scancel, at the second check."""
    site = Site(JOB)
    check = reconciliation(site)

    assert await check.run_once() == 0.0
    assert (site.cancelled, site.notified) == ([], [])

    assert await check.run_once() is None
    assert (site.cancelled, site.notified) == ([("ann", "12")], ["12"])


async def test_what_a_server_had_before_the_question_or_has_after_it_is_no_orphan() -> None:
    """Servers start and end while Slurm is asked."""
    came, went, cold = Site(JOB), Site(JOB), Site(JOB)
    came.at_the_question = lambda: came.in_memory.add("12")
    went.in_memory.add("12")
    went.at_the_question = went.in_memory.clear
    cold.in_database.add("12")

    for site in (came, went, cold):
        check = reconciliation(site)
        await check.run_once()
        assert site.cancelled == []
    check = reconciliation(cold)
    assert [await check.run_once(), await check.run_once(), cold.cancelled] == [None, None, []]


async def test_a_job_that_has_a_server_at_the_second_look_is_no_orphan() -> None:
    """The finding of the first check is dropped."""
    site = Site(JOB)
    check = reconciliation(site)
    await check.run_once()
    site.in_memory.add("12")
    await check.run_once()
    site.in_memory.clear()
    await check.run_once()

    assert site.cancelled == []


async def test_a_submission_under_way_is_left_alone() -> None:
    """Its job exists before its id is stored; and a job that is being cancelled is not cancelled twice."""
    named = Job("14", Phase.RUNNING, user="ann", tag="project 7", name=NAME)
    site = Site(JOB, Job("13", Phase.RUNNING, user="ann", tag=f"{TAG}9"), named, starts=(START, f"{START}9"))
    site.submitting, site.cancelling = {TAG}, {"13"}
    check = reconciliation(site)
    await check.run_once()
    await check.run_once()

    assert site.cancelled == []


async def test_slurm_does_not_answer() -> None:
    """Nothing is done, and the hub's log says so."""
    site = Site(JOB)

    def fail() -> None:
        raise SlurmUnavailable("squeue got no answer.")

    site.at_the_question = fail

    with pytest.raises(SlurmUnavailable):
        await reconciliation(site).run_once()
    assert site.cancelled == []


async def test_the_database_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is done, and the hub's log says so."""
    site = Site(JOB)

    def fail(_start_ids: Collection[str]) -> dict[str, RecordedStart]:
        raise OperationalError("select", {}, Exception("the database is locked"))

    monkeypatch.setattr(site, "starts", fail)

    with pytest.raises(OperationalError):
        await reconciliation(site).run_once()
    assert site.cancelled == []


async def test_a_job_of_another_copy_of_this_hub_is_left_alone_and_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It has this hub's mark and name, but its start is not in this hub's database."""
    site = Site(JOB, starts=())
    check = reconciliation(site)
    with caplog.at_level("INFO"):
        for _ in range(3):
            assert await check.run_once() is None

    assert (site.cancelled, site.notified) == ([], [])
    assert [record.getMessage() for record in caplog.records] == [
        f"Job 12 ({TAG}) carries this hub's mark, and this hub's database has no record of its start: another copy of "
        "this hub submitted it. It is not cancelled."
    ]


async def test_what_cannot_be_cancelled_is_tried_again_at_the_next_look(caplog: pytest.LogCaptureFixture) -> None:
    """The job, the error and the cancellation are logged once each."""
    site = Site(JOB, fault=ConfigError("sudo asks for a password."))
    check = reconciliation(site)
    with caplog.at_level("INFO"):
        await check.run_once()
        await check.run_once()
        assert (site.cancelled, site.notified) == ([], [])
        await check.run_once()
        await check.run_once()

    assert (site.cancelled, site.notified) == ([("ann", "12")], ["12"])
    assert [record.getMessage() for record in caplog.records] == [
        f"Job 12 ({TAG}) belongs to no server: cancelling it",
        "Job 12 is not cancelled yet; the hub will try again: sudo asks for a password.",
        "Job 12 is cancelled",
    ]


# --- a real hub and a real Slurm -------------------------------------------------------------------

CONFIG = """
c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 0}  # a start over REST is answered at once
from jupyterhub_gpuspawner.hub.site import slurm_settings
slurm_settings.RECONCILE_INTERVAL = 0.2
from jupyterhub_gpuspawner.hub import lost_jobs
lost_jobs.CONFIRMED_AFTER = 1.0
from jupyterhub_gpuspawner.slurm import watcher
watcher.ACTIVE_INTERVAL = 0.5
"""


def comment(slurm: PrivateSlurm, job: str) -> str:
    return slurm.run("squeue", "-h", "-t", "all", "-j", job, "-O", "Comment:|").rstrip("|")


def sleeper(slurm: PrivateSlurm, text: str, *options: str) -> str:
    """Submit a job with this comment and wait until it has started."""
    job = slurm.run(
        *("sbatch", "--parsable", "-p", "batch", "-c", "1", "--mem=50M", "--output=/dev/null", "--chdir=/"),
        *("--comment", text, *options, "--wrap=sleep 600"),
    )
    wait_until(lambda: state(slurm, job) != "PENDING", lambda: slurm.run("squeue"))
    return job


@pytest.fixture
def cancelled_after(slurm_cluster: PrivateSlurm) -> Iterator[list[str]]:
    """Yield a list of jobs that are cancelled after the test."""
    jobs: list[str] = []
    yield jobs
    for job in jobs:
        slurm_cluster.run("scancel", job)


@pytest.mark.slurm
@pytest.mark.hub
def test_the_hub_died_after_sbatch_had_answered_and_before_the_job_was_stored(
    odd_site: OddSite, tmp_path: Path, cancelled_after: list[str]
) -> None:
    """The next hub cancels the job and says so on the user's page; servers and other hubs' jobs are left alone."""
    hub, slurm, answered = odd_site.hub, odd_site.slurm, tmp_path / "answered"
    job = hub.spawn("kept", {"profile": "light"})["job_id"]
    visitor = Visitor(hub, "una")
    odd_site.change(
        {"sbatch": f'"$real" "$@" >{answered}.part; mv {answered}.part {answered}; sleep 20; cat {answered}'}
    )
    start(hub, "una", "light")
    wait_until(answered.exists, hub.log_end)
    lost = answered.read_text().strip()
    elsewhere = comment(slurm, job).replace("/kept/#", "/other/#ffffffff")
    others = sleeper(slurm, elsewhere)
    cancelled_after.append(others)
    assert "job_id" not in stored(hub, "una")  # only the job's own report may be there

    hub.restart()

    assert in_the_end(slurm, lost) == "CANCELLED"
    wait_until(lambda: f"Job {lost} is cancelled" in hub.log.read_text(), hub.log_end)
    assert hub.log.read_text().count(f"Job {lost} (jupyterhub-gpuspawner/demo/una/#") == 1
    assert scrape(hub)["jobs_without_server_total", ("orphan",)] == 1
    page = visitor.pending()
    assert page.status == 503
    sentence = f"Job {lost}, which had been submitted for it, has been cancelled. Please start your server again."
    assert sentence in page.text
    assert (state(slurm, job), state(slurm, others)) == ("RUNNING", "RUNNING")
    hub.wait("kept", ready=True)

    hub.end("kept")


@pytest.mark.nightly
@pytest.mark.slurm
@pytest.mark.hub
def test_a_twin_that_turns_up_is_cancelled_while_servers_start_and_run(
    start_light_hub: StartHub, slurm_cluster: PrivateSlurm, cancelled_after: list[str]
) -> None:
    """In a hub that checks five times a second servers start and run on; a second job of one start is cancelled."""
    hub = start_light_hub(lines=CONFIG)
    names = [f"vic{number}" for number in range(6)]
    for name in names:
        start(hub, name, "light")
    for name in names:
        hub.wait(name, ready=True)
    job = str(stored(hub, "vic0")["job_id"])
    twin = sleeper(slurm_cluster, comment(slurm_cluster, job))
    cancelled_after.append(twin)

    assert in_the_end(slurm_cluster, twin) == "CANCELLED"
    assert [state(slurm_cluster, str(stored(hub, name)["job_id"])) for name in names] == ["RUNNING"] * 6
    assert scrape(hub)["jobs_without_server_total", ("orphan",)] == 1

    for name in names:
        hub.end(name)
    hub.stop()


@pytest.mark.slurm
@pytest.mark.hub
@pytest.mark.users
def test_an_orphan_of_a_real_user_is_cancelled_as_that_user_and_no_job_of_another_is(
    users_hub: HubProcess,
    slurm_cluster: PrivateSlurm,
    two_users: tuple[str, str],
    cancelled_after: list[str],
    public_command: str,
) -> None:
    """Whatever Bob writes into his job's comment, neither his job nor Ann's server is cancelled."""
    ann, bob = two_users
    slurm = "{partition: batch, cpus: 1, memory: 100M}"
    offer(users_hub, "tiny", f"{{display_name: Tiny, slug: tiny, slurm: {slurm}, command: {public_command}}}")
    job = users_hub.spawn(ann, {"profile": "tiny"})["job_id"]
    hub_name, _, server = parse_tag(comment(slurm_cluster, job)) or ("", "", "")
    tag_of_ann = f"{tag(hub_name, ann, server)}#{comment(slurm_cluster, job).partition('#')[2]}"
    bobs = sleeper(slurm_cluster, tag_of_ann, f"--uid={bob}")
    anns = sleeper(slurm_cluster, tag_of_ann, f"--uid={ann}")
    cancelled_after += [bobs, anns]

    assert in_the_end(slurm_cluster, anns) == "CANCELLED"
    wait_for_queries(users_hub, 3)
    assert state(slurm_cluster, bobs) == "RUNNING"
    assert state(slurm_cluster, job) == "RUNNING"

    users_hub.end(ann)
