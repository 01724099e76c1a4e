"""Slurm's commands as async methods: no shell, a time-out for each, and a limit on how many run at once.

Queries run as the hub's own account, and the methods that take a ``prefix`` as the user: :meth:`SlurmClient.submit`,
:meth:`SlurmClient.cancel` and :meth:`SlurmClient.log_end`. What each command costs slurmctld: squeue(1) and
scontrol(1), "PERFORMANCE".
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from jupyterhub_gpuspawner.errors import ConfigError, SlurmOutputError, SlurmUnavailable
from jupyterhub_gpuspawner.slurm.accounts import asking_account, has_all_rights
from jupyterhub_gpuspawner.slurm.commands import CANCEL, LOG, OUTPUT_LIMIT, SUBMIT, Installation, submission
from jupyterhub_gpuspawner.slurm.job import Job, JobIdentity, Phase
from jupyterhub_gpuspawner.slurm.messages import failure, is_over, not_cancelled, rejected
from jupyterhub_gpuspawner.slurm.scontrol import parse_allocations, parse_config, parse_job
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot, SlurmConfig
from jupyterhub_gpuspawner.slurm.snapshot_reader import NodeAddresses, SnapshotReader
from jupyterhub_gpuspawner.slurm.squeue import JOBS, parse_squeue
from jupyterhub_gpuspawner.slurm.text import UnparsedField, no_report
from jupyterhub_gpuspawner.units import NodeAllocation

_JOB_ID = re.compile(r"[0-9]{1,10}")
_SUBMITTED = re.compile(r"(?P<job>[0-9]{1,10})(?:;(?P<cluster>[\w.-]+))?")
_LONG = 1 << 15
"""Characters of an answer that is parsed in a thread."""
_UNKNOWN_JOB = "Invalid job id specified"


DETAILS_MAX_AGE = 30.0
"""Seconds for which reason, estimated start and end of several jobs are not asked for again while their states last."""


class _LastAnswer(NamedTuple):
    """The last whole answer about several jobs."""

    at: float
    """By the monotonic clock."""
    wanted: frozenset[str]
    jobs: Mapping[str, Job]


class SlurmClient:
    """One cluster, by Slurm's commands on this machine or, by ``query_prefix``, on another one.

    Every method raises SlurmUnavailable if Slurm gives no answer (down, time-out, missing command or configuration)
    and SlurmOutputError if the answer is not understood.
    """

    def __init__(
        self, installation: Installation, *, report: Callable[[Sequence[UnparsedField]], None] = no_report
    ) -> None:
        """``report`` gets the records of an answer that were not understood; it is not called where there are none."""
        self.installation = self._slurm = installation
        self._report = report
        self._snapshots = SnapshotReader(installation, self.config, report)
        self._addresses = NodeAddresses(installation)
        self._last: _LastAnswer | None = None
        self._tells_states = True

    # --- as the user ---------------------------------------------------------------------------

    async def submit(
        self, script: str, *, prefix: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> str:
        """Submit a batch script (``prefix sbatch --parsable``, the script on stdin) and return the job id.

        ``environment`` is added to sbatch's own, which the job inherits. Raises SubmitRejected with sbatch's message,
        ConfigError if the prefix does not let sbatch run, or the script ``submit`` has sent the job to another cluster,
        SlurmUnavailable if a signal ended sbatch. After any of these errors, and after cancellation of the caller, the
        job may exist all the same: see :meth:`jobs_of_start`.
        """
        if self._slurm.wraps(prefix):
            text = submission(script, environment or {})
            answer = await self._slurm.run("sbatch", wrapper=SUBMIT, prefix=prefix, stdin=text)
        else:
            answer = await self._slurm.run("sbatch", "--parsable", prefix=prefix, environment=environment, stdin=script)
        if (signal := _signal(answer.code)) is not None:
            raise SlurmUnavailable(f"sbatch was ended by signal {signal} before it answered.")
        if answer.code != 0:
            raise failure("sbatch", answer.stderr) or rejected(answer.stderr)
        lines = answer.stdout.strip().splitlines()
        job = _SUBMITTED.fullmatch(lines[-1].strip()) if lines else None
        if job is None:
            raise SlurmOutputError("sbatch accepted the job but printed no job id.", raw=answer.stdout or answer.stderr)
        wanted, actual = self._slurm.cluster, job["cluster"] or ""
        if wanted and actual.lower() != wanted.lower():  # the number would be taken for a job of the wanted cluster
            raise ConfigError(
                f"Job {job['job']} was submitted to {actual or 'the cluster of slurm.conf'} instead of {wanted}.",
                where="wrapper_dir",
                hint=f'Add "SLURM_CLUSTERS": "{wanted}" to the line ENVIRONMENT of each script there.',
            )
        return job["job"]

    async def cancel(
        self, job_id: str, *, prefix: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        """Cancel a job; succeeds also if the job has ended or Slurm does not know it.

        Raises ConfigError if Slurm does not let this account cancel it.
        """
        if self._slurm.wraps(prefix):
            answer = await self._slurm.run("scancel", wrapper=CANCEL, prefix=prefix, stdin=checked_job_id(job_id))
        else:
            answer = await self._slurm.run("scancel", checked_job_id(job_id), prefix=prefix, environment=environment)
        if answer.code == 0:
            return
        refused = not_cancelled(job_id, answer.stderr)
        if refused is not None:
            raise refused
        if not is_over(answer.stderr):
            raise answer.error()

    async def log_end(self, job_id: str, *, prefix: Sequence[str]) -> str:
        """The last 4 KiB of the job's log, read as its owner; empty without wrapper scripts.

        Raises ConfigError if the prefix does not let the wrapper run.
        """
        if not self._slurm.wraps(prefix):
            return ""
        answer = await self._slurm.run(LOG, wrapper=LOG, prefix=prefix, stdin=checked_job_id(job_id), limit=1 << 16)
        return answer.output()

    # --- as the hub ----------------------------------------------------------------------------

    async def jobs(self, job_ids: Collection[str]) -> dict[str, Job]:
        """The jobs with these ids, from one squeue; ids that Slurm does not know are absent.

        It does not wait for other commands: behind a hundred submissions each of their servers would be asked for by
        itself in the meantime.

        Slurm forgets a job MinJobAge after its end (300 s by default); from then on it is absent too.

        For several jobs squeue loads those of the whole cluster. So from Slurm 24.05 on their states alone are asked
        for, and a status is the same object as before while its state is, for :data:`DETAILS_MAX_AGE` seconds.
        """
        wanted = {checked_job_id(job_id) for job_id in job_ids}
        if not wanted:
            return {}
        listed = ",".join(sorted(wanted, key=int))
        if len(wanted) == 1:  # slurmctld looks for this job alone
            jobs = _only(wanted, await self._squeue("-j", listed, ahead=True))
            if self._last is not None:
                self._last = self._last._replace(jobs={**self._last.jobs, **jobs})
            return jobs
        last = self._last
        if last is not None and wanted <= last.wanted and time.monotonic() - last.at < DETAILS_MAX_AGE:
            cached_jobs = _only(wanted, last.jobs)
            if await self._states(listed) == {job_id: status.state for job_id, status in cached_jobs.items()}:
                return cached_jobs
        jobs = _only(wanted, await self._squeue("-j", listed, ahead=True))
        self._last = _LastAnswer(time.monotonic(), frozenset(wanted), jobs)
        return jobs

    async def _states(self, listed: str) -> dict[str, str] | None:
        """The states of these jobs by their ids (``--only-job-state``), without a lock in slurmctld; None before 24.05.

        Ids that Slurm does not know are absent.
        """
        if not self._tells_states:
            return None
        command = ("squeue", "--local", "-h", "-t", "all", "--only-job-state", "-j", listed, "-o", "%i|%T")
        answer = await self._slurm.run(*command, ahead=True)
        if answer.code != 0 and failure("squeue", answer.stderr) is None:  # an unknown option, and no silence of Slurm
            self._tells_states = False
            return None
        return {job_id: state for job_id, _, state in (line.partition("|") for line in answer.output().split())}

    async def every_job(self) -> dict[str, Job]:
        """All jobs that Slurm knows and this account may see, ended ones included; 22.05 lists refused ones as failed.

        Users can change the comment and name of their jobs, so a job found by these must also be checked for its owner.
        """
        return await self._squeue()

    async def tagged(self, tag: str) -> dict[str, Job]:
        """All jobs whose comment starts with ``tag``; see :meth:`every_job`."""
        return {job_id: status for job_id, status in (await self.every_job()).items() if status.tag.startswith(tag)}

    async def jobs_of_start(self, identity: JobIdentity) -> dict[str, Job]:
        """The unfinished jobs of one start, whether or not sbatch has reported them.

        If the owner's uid is known, slurmctld is asked for that user's jobs alone.
        """
        which = ("-u", str(identity.uid)) if identity.uid is not None else ()
        jobs = await self._squeue(*which)
        return {
            job_id: status
            for job_id, status in jobs.items()
            if status.phase not in (Phase.ENDING, Phase.ENDED) and identity.matches(status)
        }

    async def job(self, job_id: str, *, allocations: bool = False) -> Job | None:
        """The details of one job (``scontrol show job``); None if Slurm does not know it, or no longer.

        With ``allocations`` (``-d``) also what it holds on each node, for which slurmctld walks its whole node table.
        """
        details = ["-d"] if allocations else []
        answer = await self._slurm.run("scontrol", "--local", "show", "job", *details, "-o", checked_job_id(job_id))
        if answer.code == 0:
            return parse_job(answer.stdout, job_id)
        if _UNKNOWN_JOB in answer.stderr:
            return None
        raise answer.error()

    async def snapshot(self) -> ClusterSnapshot:
        """Nodes, partitions (hidden ones too), reservations and unfinished jobs; see :meth:`SnapshotReader.read`."""
        return await self._snapshots.read()

    async def allocations(self) -> dict[str, tuple[NodeAllocation, ...]]:
        """What each job holds on its nodes, with Slurm's indices, by job id: one ``scontrol show job -d`` for all jobs.

        It costs slurmctld more than a snapshot, so it is meant for an admin's page, not for polling.
        """
        # it has a kilobyte and more of each job, pending ones included, and shows no part of them
        command = ("scontrol", "--local", "show", "job", "-a", "-d", "-o")
        answer = await self._slurm.run(*command, limit=4 * OUTPUT_LIMIT)
        return await asyncio.to_thread(parse_allocations, answer.output())

    async def address(self, node: str) -> str:
        """The address by which Slurm reaches a node; see :meth:`NodeAddresses.of`."""
        return await self._addresses.of(node)

    async def config(self) -> SlurmConfig:
        """The parts of slurm.conf that a hub needs, as slurmctld uses them (``scontrol show config``: one RPC)."""
        return parse_config((await self._slurm.run("scontrol", "show", "config")).output())

    async def sees_jobs_of(self, user: str = "") -> bool:
        """Whether Slurm shows this account the jobs of ``user``, or of everybody if no user is given.

        If it does not (PrivateData=jobs, and the account is neither root, SlurmUser nor an operator), a job missing
        from an answer is not necessarily gone. An account whose rights cannot be determined counts as unprivileged; an
        account coordinator's right to see the jobs of some accounts is not considered.
        """
        if user and user == await self.account():
            return True
        config = await self.config()
        return not config.hides_jobs or await has_all_rights(self._slurm, config)

    async def account(self) -> str:
        """The name of the account that Slurm sees in these questions; empty for a uid without a name."""
        return (await asking_account(self._slurm)).name

    async def version(self) -> str:
        """The version of the commands, such as ``22.05.8``."""
        text = (await self._slurm.run("sinfo", "--version")).output()
        match = re.search(r"\d+\.\d+(?:\.\d+)*", text)
        if match is None:
            raise SlurmOutputError("sinfo --version printed no version.", raw=text)
        return match[0]

    async def _squeue(self, *which: str, ahead: bool = False) -> dict[str, Job]:
        mark = secrets.token_hex(8)
        # without --local, squeue -j with one id also asks about federations
        command = ("squeue", "--local", "-h", "-a", "-t", "all", *which, "-O", JOBS.columns(mark))
        answer = await self._slurm.run(*command, limit=OUTPUT_LIMIT, ahead=ahead)
        if answer.code != 0 and _UNKNOWN_JOB in answer.stderr:
            return {}
        if answer.code != 0 and "Invalid user" in answer.stderr and which:  # the uid has no name on this machine
            return await self._squeue()
        unread: list[UnparsedField] = []
        text = answer.output()
        if len(text) > _LONG:  # hundreds of jobs: not in the event loop
            jobs = await asyncio.to_thread(parse_squeue, text, mark, unread.append)
        else:
            jobs = parse_squeue(text, mark, unread.append)
        if unread:
            self._report(unread)
        return jobs


def _signal(code: int) -> int | None:
    """The signal that ended a command, from its exit status (of a shell or sudo: 128 plus the signal number)."""
    if code < 0:
        return -code
    return code - 128 if 128 < code <= 128 + 64 else None


def _only(wanted: Collection[str], jobs: Mapping[str, Job]) -> dict[str, Job]:
    return {job_id: status for job_id, status in jobs.items() if job_id in wanted}


def checked_job_id(job_id: str) -> str:
    """``job_id``, if it is a number; raises SlurmOutputError."""
    if not _JOB_ID.fullmatch(job_id):
        raise SlurmOutputError(f"{job_id[:80]!r} is not a valid job id.", raw=job_id)
    return job_id
