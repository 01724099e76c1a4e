"""The client and the watcher with a real Slurm: real jobs on simulated nodes, real faults."""

from __future__ import annotations

import asyncio
import os
import pwd
import re
import secrets
import shutil
import time
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from jupyterhub_gpuspawner.demo.slurm_cluster import SlurmFailed
from jupyterhub_gpuspawner.errors import ConfigError, SlurmUnavailable, SubmitRejected
from jupyterhub_gpuspawner.hub.job.watch import verdict
from jupyterhub_gpuspawner.hub.site.connection import ClusterView
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.commands import Installation, command_prefix
from jupyterhub_gpuspawner.slurm.job import End, Job, Phase
from jupyterhub_gpuspawner.slurm.messages import TimedOut
from jupyterhub_gpuspawner.slurm.reason import never_clears
from jupyterhub_gpuspawner.slurm.snapshot import gpus_of, rank
from jupyterhub_gpuspawner.slurm.watcher import JobWatcher, Watch
from jupyterhub_gpuspawner.units import Gres, NodeAllocation
from tests.fixtures.slurm import hanging
from tests.snapshots import free_gpus

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm

pytestmark = pytest.mark.slurm

ME = pwd.getpwuid(os.getuid()).pw_name


class Jobs:
    """Submits the jobs of one test, and identifies them by their tag."""

    def __init__(self, client: SlurmClient, folder: Path) -> None:
        self.client = client
        self.tag = f"test:{secrets.token_hex(4)}:"
        self.folder = folder
        self.ids: list[str] = []

    async def submit(self, *options: str, run: str = "sleep 300", name: str = "", prefix: tuple[str, ...] = ()) -> str:
        """Submit a job that runs these lines; its comment is the tag followed by ``name``."""
        lines = [f"--comment={self.tag}{name}", "--chdir=/", f"--output={self.folder}/%j.log", "--mem=100", *options]
        script = "\n".join(["#!/bin/sh", *(f"#SBATCH {line}" for line in lines), run, ""])
        job_id = await self.client.submit(script, prefix=prefix)
        self.ids.append(job_id)
        return job_id

    async def until(self, job_id: str, condition: Callable[[Job], bool], *, seconds: float = 30.0) -> Job:
        """Wait for a status that satisfies the condition, and return it."""
        deadline = time.monotonic() + seconds
        while True:
            statuses = await self.client.jobs([job_id])
            if job_id in statuses and condition(statuses[job_id]):
                return statuses[job_id]
            if time.monotonic() > deadline:
                raise AssertionError(f"job {job_id} is {statuses.get(job_id)} after {seconds} s")
            await asyncio.sleep(0.2)

    async def until_phase(self, job_id: str, phase: Phase) -> Job:
        """Wait for a status with this phase, and return it."""
        return await self.until(job_id, lambda status: status.phase is phase)


@pytest.fixture
def client(slurm_cluster: PrivateSlurm) -> SlurmClient:
    """A client of the private Slurm."""
    return SlurmClient(Installation(bin_dir=slurm_cluster.bin_dir, environment=slurm_cluster.environment))


@pytest.fixture
async def jobs(client: SlurmClient, slurm_cluster: PrivateSlurm, public_folder: Path) -> AsyncIterator[Jobs]:
    """Jobs of one test on an empty cluster; at its end they are cancelled and have left their nodes."""
    ends_at = time.monotonic() + 90
    while slurm_cluster.run("squeue", "-h"):  # jobs of tests of other modules may still be completing
        assert time.monotonic() < ends_at, "jobs of other tests have not ended"
        await asyncio.sleep(0.2)
    folder = public_folder / f"logs-{secrets.token_hex(4)}"
    folder.mkdir()
    folder.chmod(0o777)
    jobs = Jobs(client, folder)
    yield jobs
    left = [job_id for job_id, status in (await client.tagged(jobs.tag)).items() if status.phase is not Phase.ENDED]
    await asyncio.gather(*(client.cancel(job_id) for job_id in left))
    for job_id in left:
        await jobs.until_phase(job_id, Phase.ENDED)


# --- one job ------------------------------------------------------------------------------------


async def test_life_of_a_gpu_job(client: SlurmClient, jobs: Jobs) -> None:
    """A job is submitted, runs with its GPUs, CPUs and log on its node, is cancelled, and ends."""
    submitted_at = time.time()
    job_id = await jobs.submit("--partition=gpu", "--nodelist=g1", "--gres=gpu:k80:2", "-c 4", "--time=10", name="lab")
    running = await jobs.until_phase(job_id, Phase.RUNNING)
    detail = await client.job(job_id, allocations=True)
    assert detail is not None
    assert running == Job(
        job_id,
        Phase.RUNNING,
        state="RUNNING",
        nodes="g1",
        batch_host="g1",
        user=ME,
        partition="gpu",
        starts_at=running.starts_at,
        ends_at=(running.starts_at or 0) + 600,
        tag=f"{jobs.tag}lab",
        name="sbatch",
        uid=os.getuid(),
    )
    assert running.starts_at is not None
    assert int(submitted_at) <= running.starts_at <= time.time()
    assert (detail.time_limit, detail.stdout_path) == (600, f"{jobs.folder}/{job_id}.log")
    assert detail.allocations == (NodeAllocation("g1", (0, 1, 2, 3), 100, (Gres("gpu", "k80", 2, (0, 1)),)),)
    assert await client.address("g1") == "127.0.0.1"

    await client.cancel(job_id)
    ended = await jobs.until_phase(job_id, Phase.ENDED)
    assert (ended.state, ended.end) == ("CANCELLED", End.CANCELLED)
    await client.cancel(job_id)


@pytest.mark.parametrize(
    ("run", "options", "end", "exit_code"),
    [
        ("true", (), End.FINISHED, "0:0"),
        ("exit 3", (), End.FAILED, "3:0"),
        ("kill -9 $$", (), End.FAILED, "0:9"),
        ("true", ("--output=/dev/null/x.log",), End.FAILED, "0:53"),  # 24.11 makes folders that are missing
    ],
)
async def test_how_a_job_ends(
    client: SlurmClient, jobs: Jobs, run: str, options: tuple[str, ...], end: End, exit_code: str
) -> None:
    """For finished, failed and killed jobs, and without a log folder, squeue and scontrol report the same end."""
    job_id = await jobs.submit(*options, run=run)
    status = await jobs.until_phase(job_id, Phase.ENDED)
    detail = await client.job(job_id)
    assert detail is not None
    assert (status.end, status.exit_code) == (end, exit_code)
    assert (detail.end, detail.exit_code) == (end, exit_code)


async def test_reasons_of_waiting_jobs(client: SlurmClient, jobs: Jobs) -> None:
    """Of a job too long for its partition, a held one and one waiting for GPUs, only the last may start by itself."""
    await jobs.submit("--partition=gpu", "--nodelist=g1", "--gres=gpu:k80:4")
    waits = await jobs.submit("--partition=gpu", "--nodelist=g1", "--gres=gpu:k80:1")
    held = await jobs.submit("--hold")
    too_long = await jobs.submit("--time=2-0")
    for job_id, reason in ((waits, "Resources"), (held, "JobHeldUser"), (too_long, "PartitionTimeLimit")):
        status = await jobs.until(job_id, lambda status, reason=reason: status.reason == reason)  # type: ignore[misc]
        detail = await client.job(job_id)
        assert detail is not None
        assert (status.phase, detail.phase, detail.reason) == (Phase.QUEUED, Phase.QUEUED, reason)
        assert never_clears(status.reason) is (job_id != waits)


async def test_comment_cannot_imitate_another_job(client: SlurmClient, jobs: Jobs, slurm_cluster: PrivateSlurm) -> None:
    """A user who sets a comment with forged lines only affects their own job's status."""
    victim, forger = await jobs.submit(name="victim"), await jobs.submit(name="forger")
    await jobs.until_phase(victim, Phase.RUNNING)
    forged = f"{jobs.tag}forger|\n{victim}|FAILED|NonZeroExitCode|1|2|evil|evil|gpu|root|256|x\n{victim}|FAILED|"
    slurm_cluster.run("scontrol", "update", f"jobid={forger}", f"comment={forged}")
    statuses = await client.jobs([victim, forger])
    assert (statuses[victim].state, statuses[victim].tag) == ("RUNNING", f"{jobs.tag}victim")
    assert statuses[forger].tag == forged
    assert set(await client.tagged(jobs.tag)) == {victim, forger}


async def test_jobs_that_slurm_does_not_know(client: SlurmClient, jobs: Jobs) -> None:
    """Unknown jobs are absent from the answer, alone or among others, and can be cancelled without an error."""
    held = await jobs.submit("--hold")
    assert set(await client.jobs([held, "999999"])) == {held}
    assert await client.jobs(["999999"]) == {}
    assert await client.jobs(["999998", "999999"]) == {}
    assert await client.job("999999") is None
    await client.cancel("999999")


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--partition=nosuch", "there is no partition nosuch"),
        ("--gres=gpu:h900:1", "no node of the partition has all the requested resources"),
        ("--gres=tpu:1", "the cluster has no such generic resource"),
        ("--mem=9000G", "no node of the partition has that much memory"),
        ("--time=abc", "the time limit is not valid"),
        ("--reservation=nosuch", "there is no such reservation"),
        ("--constraint=nosuch", "no node has such a feature"),
        ("--nosuch", "sbatch does not know the option --nosuch"),
    ],
)
async def test_refusal_is_told_in_words_and_leaves_no_job(client: SlurmClient, option: str, words: str) -> None:
    """A refusal by a real sbatch names the problem; 22.05 keeps some refused jobs as failed."""
    tag = f"refused:{secrets.token_hex(4)}"
    with pytest.raises(SubmitRejected, match=re.escape(words)):
        await client.submit(f"#!/bin/sh\n#SBATCH --comment={tag}\n#SBATCH {option}\ntrue\n")
    assert {status.phase for status in (await client.tagged(tag)).values()} <= {Phase.ENDED}


# --- as another user ----------------------------------------------------------------------------


@pytest.mark.users
@pytest.mark.parametrize("user", ["", "owner"])
async def test_a_job_has_the_usual_umask_and_not_the_hubs(jobs: Jobs, two_users: tuple[str, str], user: str) -> None:
    """Slurm runs a job with the umask of its sbatch; the files that people make in their servers would be private."""
    umask = os.umask(0o077)
    try:
        prefix = as_user(two_users[0]) if user else ()
        job_id = await jobs.submit(run="umask", prefix=prefix)
    finally:
        os.umask(umask)
    await jobs.until_phase(job_id, Phase.ENDED)
    assert (jobs.folder / f"{job_id}.log").read_text() == "0022\n"


@pytest.mark.users
async def test_job_runs_as_its_user(client: SlurmClient, jobs: Jobs, two_users: tuple[str, str]) -> None:
    """With a prefix the job belongs to the user; the owner may cancel it, and other users may not."""
    owner, other = two_users
    job_id = await jobs.submit(run=f"id -un > {jobs.folder}/who; sleep 300", prefix=as_user(owner))
    who = jobs.folder / "who"
    status = await jobs.until(job_id, lambda _: who.exists() and who.read_text() != "")
    assert (status.user, who.read_text().strip()) == (owner, owner)
    with pytest.raises(ConfigError, match="exec_prefix: scancel is not allowed to cancel job"):
        await client.cancel(job_id, prefix=as_user(other))
    await client.cancel(job_id, prefix=as_user(owner))
    await jobs.until_phase(job_id, Phase.ENDED)


@pytest.mark.users
@pytest.mark.skipif(shutil.which("sudo") is None, reason="no sudo")
@pytest.mark.parametrize(
    ("prefix", "reason"),
    [
        ("sudo -u nosuchuser", "there is no such account on the hub's machine"),
        ("setpriv --reuid {username} --regid {username} --init-groups sudo -n -u daemon", "sudo asks for a password"),
        ("runuser -u nosuchuser --", "there is no such account on the hub's machine"),
    ],
)
async def test_real_sudo_in_the_way(client: SlurmClient, two_users: tuple[str, str], prefix: str, reason: str) -> None:
    """Messages of this host's sudo and runuser become an error for the admin without delay."""
    with pytest.raises(ConfigError, match=f"exec_prefix: sbatch was not run: {reason}"):
        await client.submit("#!/bin/sh\ntrue\n", prefix=command_prefix(prefix, two_users[0]))


def as_user(name: str) -> tuple[str, ...]:
    """A prefix that needs no sudoers file."""
    return command_prefix("setpriv --reuid {username} --regid {username} --init-groups", name)


# --- the cluster --------------------------------------------------------------------------------


async def test_snapshot_sees_jobs_that_wait_and_their_place(client: SlurmClient, jobs: Jobs) -> None:
    """The snapshot shows which job holds what until when, which jobs are waiting, and in which order."""
    holds = await jobs.submit("--partition=gpu", "--nodelist=g1", "--gres=gpu:k80:4", "--time=10", "-c 2")
    running = await jobs.until_phase(holds, Phase.RUNNING)
    first, second = [await jobs.submit("--partition=gpu", "--gres=gpu:k80:1", name="a|b") for _ in range(2)]
    await jobs.until(first, lambda status: status.reason in ("Resources", "Priority"))
    await jobs.until(second, lambda status: status.reason == "Priority")
    snapshot = await client.snapshot()
    held = snapshot.job_by_id[holds]
    assert (held.nodes, held.cpus, held.gpus, held.ends_at) == (("g1",), 2, (Gres("gpu", "k80", 4),), running.ends_at)
    waiting = sorted(snapshot.waiting_by_partition["gpu"], key=lambda job: rank(job.priority, job.job_id))
    assert [job.job_id for job in waiting] == [first, second]
    assert snapshot.job_by_id[second].tag == f"{jobs.tag}a|b"


ODD_TEXTS = ("k80|x", "k 80", 'k"80', "k(80)", "k\n80", "k\\80", "k=80", "k'80", "k;80", "k80\t", "{k80}", "K")


async def test_no_words_of_any_user_hide_the_cluster(
    client: SlurmClient, jobs: Jobs, slurm_cluster: PrivateSlurm
) -> None:
    """Resources, account, name, comment and keys of held jobs contain bars, blanks, quotes and newlines.

    Slurm 22.05 accepts all of them, 24.11 only some of those in resources. Snapshot and watch work as before, and each
    such job is in the snapshot.
    """
    watched = await jobs.submit("--partition=gpu", "--nodelist=g1", "--gres=gpu:k80:1", name="watched")
    await jobs.until_phase(watched, Phase.RUNNING)
    words = [f"{option}{text}:1" for text in ODD_TEXTS for option in ("--gres=gpu:", "--gpus=", "--gpus-per-node=")]
    words += [f"--gpus-per-task={text}:1" for text in ODD_TEXTS]
    words += [f"{option}{text}" for text in ODD_TEXTS for option in ("-J", "--account=", "--comment=", "--wckey=")]
    words += ["--gres=gpu:|"]
    job_ids: list[str] = []
    refused: list[str] = []
    for word in words:
        options = ("--parsable", "--hold", "--ntasks=1", "--mem=100", "--output=/dev/null", word, "--wrap=true")
        try:
            job_ids.append(slurm_cluster.run("sbatch", *options))
        except SlurmFailed as error:
            refused.append(str(error))
    try:
        snapshot, status = await client.snapshot(), (await client.jobs([watched]))[watched]
        everyone = await client.tagged(jobs.tag)
        allocations = await client.allocations()
    finally:
        slurm_cluster.run("scancel", *job_ids)
    held = [snapshot.job_by_id[job_id] for job_id in job_ids]
    assert {job.state for job in held} == {"PENDING"}
    assert {job.cpus for job in held} == {1}
    assert [message for message in refused if "Trackable RESource" not in message] == []
    assert len([job for job in held if job.gpus_unknown]) >= (1 if refused else 10)
    assert {job.job_id for job in held if job.gpus_unknown} == {
        unread.name for unread in snapshot.unread if unread.partial
    }
    assert not snapshot.partial
    assert snapshot.job_by_id[watched].gpus == (Gres("gpu", "k80", 1),)
    assert (status.phase, set(everyone), set(allocations) & {watched}) == (Phase.RUNNING, {watched}, {watched})


async def test_fifty_who_look_at_once_are_one_question(slurm_cluster: PrivateSlurm) -> None:
    """Fifty simultaneous requests together run four commands, and one more for slurm.conf."""
    commands: list[str] = []
    client = SlurmClient(
        Installation(
            bin_dir=slurm_cluster.bin_dir,
            environment=slurm_cluster.environment,
            observe=lambda command, _seconds, _status: commands.append(command),
        )
    )
    view = ClusterView(client.snapshot)
    snapshots = await asyncio.gather(*(view.recent(patience=60) for _ in range(50)))
    assert [snapshot is snapshots[0] for snapshot in snapshots] == [True] * 50
    assert snapshots[0] is not None
    assert sorted(commands) == ["scontrol"] * 4 + ["squeue"]
    await client.snapshot()
    assert sorted(commands) == ["scontrol"] * 7 + ["squeue"] * 2


async def test_snapshot_sees_what_jobs_hold(client: SlurmClient, jobs: Jobs) -> None:
    """The snapshot has the demo's nodes with their GPUs by type, with three fewer free K80s while a job holds them."""
    before = await client.snapshot()
    gpus = sum((gpus_of(node.gres) for node in before.nodes_of("gpu")), Counter[str]())
    assert gpus == {"k80": 4, "p100": 8, "a100": 2, "1g.10gb": 4}
    job_id = await jobs.submit("--partition=gpu", "--nodelist=g1", "--gres=gpu:k80:3")
    await jobs.until_phase(job_id, Phase.RUNNING)
    during = await client.snapshot()
    assert free_gpus(before, "gpu")["k80"] - free_gpus(during, "gpu")["k80"] == 3
    assert before.partition_by_name["batch"].default
    assert during.node_by_name["g1"].cpus == 24


async def test_version_of_the_commands(client: SlurmClient) -> None:
    """Those of a real Slurm have one."""
    assert re.fullmatch(r"\d+\.\d+\.\d+", await client.version())


# --- faults -------------------------------------------------------------------------------------


async def test_stopped_slurmctld_is_given_up(client: SlurmClient, jobs: Jobs, slurm_cluster: PrivateSlurm) -> None:
    """While slurmctld hangs, each query ends after the timeout; afterwards queries succeed as before."""
    job_id = await jobs.submit("--hold")
    hasty = SlurmClient(Installation(bin_dir=slurm_cluster.bin_dir, environment=slurm_cluster.environment, timeout=0.5))
    with hanging(slurm_cluster):
        questions = (hasty.jobs([job_id]), hasty.job(job_id), hasty.cancel(job_id), hasty.snapshot())
        answers = await asyncio.gather(*questions, return_exceptions=True)
        assert [type(answer) for answer in answers] == [TimedOut] * 4
    await jobs.until(job_id, lambda status: status.phase in (Phase.QUEUED, Phase.ENDED))


async def test_job_of_a_submission_that_timed_out_is_found_by_its_tag(
    client: SlurmClient, jobs: Jobs, slurm_cluster: PrivateSlurm
) -> None:
    """sbatch timed out, but its job exists: a query by tag finds this job and no other."""
    hasty = SlurmClient(Installation(bin_dir=slurm_cluster.bin_dir, environment=slurm_cluster.environment, timeout=0.5))
    with hanging(slurm_cluster), pytest.raises(SlurmUnavailable):
        await hasty.submit(f"#!/bin/sh\n#SBATCH --comment={jobs.tag}\n#SBATCH --hold\ntrue\n")
    statuses = await client.tagged(jobs.tag)
    assert [(status.phase, status.tag) for status in statuses.values()] == [(Phase.QUEUED, jobs.tag)]


async def test_missing_configuration_is_not_waited_for(slurm_cluster: PrivateSlurm) -> None:
    """Slurm's commands retry for a minute if slurm.conf is missing; the client does not wait that long."""
    lost = SlurmClient(
        Installation(bin_dir=slurm_cluster.bin_dir, environment={"SLURM_CONF": "/no/such/slurm.conf"}, timeout=0.5)
    )
    with pytest.raises(SlurmUnavailable, match=r"squeue did not respond within 0\.5 s: .* configuration was not found"):
        await lost.jobs(["1"])


# --- the watcher --------------------------------------------------------------------------------


async def test_watcher_tells_a_job_from_start_to_end(
    client: SlurmClient, jobs: Jobs, slurm_cluster: PrivateSlurm
) -> None:
    """A job is reported as queued, running and ended with its exit code, in this order."""
    go = jobs.folder / "go"
    job_id = await jobs.submit("--hold", run=f"until [ -e {go} ]; do sleep 0.1; done; exit 5")
    watcher = JobWatcher(client, active_interval=0.2, rest_interval=0.2)
    changes: list[tuple[Phase, str]] = []
    with closing(watcher.watch(job_id)) as watch:
        await watch.changed()
        slurm_cluster.run("scontrol", "release", job_id)
        while watch.status is None or watch.status.phase is not Phase.ENDED:
            status = await asyncio.wait_for(watch.changed(), timeout=60)
            if status is not None:
                changes.append((status.phase, status.exit_code))
                if status.phase is Phase.RUNNING:
                    go.touch()
    order = [phase for phase in dict.fromkeys(phase for phase, _ in changes) if phase is not Phase.STARTING]
    assert order in (
        [Phase.QUEUED, Phase.RUNNING, Phase.ENDED],
        [Phase.QUEUED, Phase.RUNNING, Phase.ENDING, Phase.ENDED],
        [Phase.RUNNING, Phase.ENDED],
        [Phase.RUNNING, Phase.ENDING, Phase.ENDED],
    )
    assert changes[-1] == (Phase.ENDED, "5:0")
    await watcher.aclose()


async def test_watcher_survives_an_outage(client: SlurmClient, jobs: Jobs, slurm_cluster: PrivateSlurm) -> None:
    """While slurmctld hangs the status is kept and stale; afterwards it is fresh, and the job still exists."""
    job_id = await jobs.submit("--hold")
    hasty = SlurmClient(Installation(bin_dir=slurm_cluster.bin_dir, environment=slurm_cluster.environment, timeout=0.5))
    watcher = JobWatcher(hasty, active_interval=0.2)
    with closing(watcher.watch(job_id)) as watch:
        await wait_for_status(watch, stale=False)
        before = watch.status
        with hanging(slurm_cluster):
            await wait_for_status(watch, stale=True)
            during = watch.status
        await wait_for_status(watch, stale=False)
        now = watch.status
    await watcher.aclose()

    assert before is not None
    assert (during, now.phase if now is not None else None) == (before, Phase.QUEUED)


async def wait_for_status(watch: Watch, *, stale: bool) -> None:
    """Wait until the watch knows the job, and whether that is out of date; squeue itself may take half a second."""
    while watch.status is None or watch.stale is not stale:
        await asyncio.wait_for(watch.changed(), timeout=60)


async def test_one_answer_and_then_silence_give_up_no_start(
    client: SlurmClient, jobs: Jobs, slurm_cluster: PrivateSlurm
) -> None:
    """Slurm says that a job can never start: slurmctld hangs after this answer, so only the next one decides."""
    job_id = await jobs.submit("--time=2-0")
    await jobs.until(job_id, lambda status: status.reason == "PartitionTimeLimit")
    hasty = SlurmClient(Installation(bin_dir=slurm_cluster.bin_dir, environment=slurm_cluster.environment, timeout=0.5))
    watcher = JobWatcher(hasty, active_interval=1.0)
    with closing(watcher.watch(job_id)) as watch:
        while watch.status is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        with hanging(slurm_cluster):
            statuses = list[Job | None]()
            waiting = asyncio.create_task(
                verdict(watch, on_status=statuses.append, sleep=lambda _: asyncio.sleep(0.05)),
            )
            while not watch.stale:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            statuses.clear()
            while len(statuses) < 20:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            assert (watch.answers, waiting.done()) == (1, False)
        assert (await asyncio.wait_for(waiting, timeout=60)).reason == "PartitionTimeLimit"
        assert watch.answers == 2
    await watcher.aclose()


async def test_watcher_survives_a_restart_of_slurmctld(
    client: SlurmClient, jobs: Jobs, slurm_cluster: PrivateSlurm
) -> None:
    """A running job is reported as running throughout the restart; no answer of a starting slurmctld ends it."""
    job_id = await jobs.submit()
    await jobs.until_phase(job_id, Phase.RUNNING)
    hasty = SlurmClient(Installation(bin_dir=slurm_cluster.bin_dir, environment=slurm_cluster.environment, timeout=0.5))
    watcher = JobWatcher(hasty, active_interval=0.1, rest_interval=0.1)
    phases: set[Phase] = set()
    with closing(watcher.watch(job_id)) as watch:
        restart = asyncio.create_task(asyncio.to_thread(slurm_cluster.restart_controller))
        while not restart.done() or watch.stale or watch.status is None:
            await asyncio.sleep(0.02)
            phases |= {watch.status.phase} if watch.status else set()
        await restart
    assert phases == {Phase.RUNNING}
    await watcher.aclose()
