"""Slurm's commands, each as one method: async, without a shell, with a time-out and a limit on how many at once.

Reading is done as the hub's own account; only :meth:`SlurmClient.submit` and :meth:`SlurmClient.cancel` take a prefix
that makes them the user's. Slurm's cost for each command stands in squeue(1) and scontrol(1), "PERFORMANCE".
"""

from __future__ import annotations

import asyncio
import os
import pwd
import re
import secrets
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from jupyterhub_gpuspawner.cluster.capacity import capacity_of
from jupyterhub_gpuspawner.cluster.snapshot import ClusterSnapshot, DefaultMemory
from jupyterhub_gpuspawner.errors import SlurmOutputError, SlurmUnavailable
from jupyterhub_gpuspawner.jobs.status import Phase
from jupyterhub_gpuspawner.slurm.commands import CommandMissing, good, unanswered
from jupyterhub_gpuspawner.slurm.messages import failure, is_over, not_cancelled, rejected
from jupyterhub_gpuspawner.slurm.parse.cluster import parse_nodes, parse_partitions, parse_reservations
from jupyterhub_gpuspawner.slurm.parse.config import SlurmConfig, parse_config
from jupyterhub_gpuspawner.slurm.parse.job import parse_allocations, parse_job
from jupyterhub_gpuspawner.slurm.parse.jobs import STATES, parse_jobs
from jupyterhub_gpuspawner.slurm.parse.jobs import columns as job_columns
from jupyterhub_gpuspawner.slurm.parse.records import ignored
from jupyterhub_gpuspawner.slurm.parse.squeue import columns, parse_squeue
from jupyterhub_gpuspawner.slurm.parse.trial import WillRun, parse_trial
from jupyterhub_gpuspawner.slurm.wrapper import CANCEL, LOG, SUBMIT, TRIAL, submission

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from jupyterhub_gpuspawner.cluster.snapshot import Unread
    from jupyterhub_gpuspawner.jobs.identity import JobIdentity
    from jupyterhub_gpuspawner.jobs.status import JobDetail, JobStatus, NodeAllocation
    from jupyterhub_gpuspawner.slurm.commands import Installation

_JOB_ID = re.compile(r"[0-9]{1,10}")
_SUBMITTED = re.compile(r"([0-9]{1,10})(?:;[\w.-]+)?")
_NODE = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
_ADDRESS = re.compile(r"[A-Za-z0-9:][\w.:-]*", re.ASCII)
_ADDRESS_AGE = 300.0
"""Seconds that a node's address is kept; a cloud node gets a new one at each start, before its job runs."""
_CONFIG_AGE = 300.0
"""Seconds that slurm.conf's default memory is kept."""
_SNAPSHOT_LIMIT = 1 << 26
_UNKNOWN_JOB = "Invalid job id specified"


class SlurmClient:
    """One cluster, as its commands on this machine show it.

    Every method raises SlurmUnavailable where Slurm gives no answer (down, time-out, command or configuration
    missing) and SlurmOutputError where the answer is not understood.
    """

    def __init__(self, installation: Installation, *, report: Callable[[Sequence[Unread]], None] = ignored) -> None:
        """``report`` is told, after each answer, of the records in it that were not understood; never of none."""
        self._slurm = installation
        self._report = report
        self._memory: tuple[float, DefaultMemory] | None = None
        self._addresses: dict[str, tuple[float, str]] = {}
        self._asking: dict[str, asyncio.Lock] = {}

    # --- as the user ---------------------------------------------------------------------------

    async def submit(
        self, script: str, *, prefix: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> str:
        """Submit a batch script (``prefix sbatch --parsable``, the script on stdin) and return the job id.

        ``environment`` is added to sbatch's own, which the job gets. Raises SubmitRejected with sbatch's words,
        ConfigError where the prefix does not let sbatch run, SlurmUnavailable where sbatch was ended by a signal. After
        any of them, and after a cancellation of the caller, the job may have been made all the same: see :meth:`made`.
        """
        if self._slurm.wraps(prefix):
            text = submission(script, environment or {})
            answer = await self._slurm.run("sbatch", wrapper=SUBMIT, prefix=prefix, stdin=text)
        else:
            answer = await self._slurm.run("sbatch", "--parsable", prefix=prefix, environment=environment, stdin=script)
        if (signal := _signal(answer.code)) is not None:
            raise SlurmUnavailable(f"sbatch was ended by signal {signal} and gave no answer.")
        if answer.code != 0:
            raise failure("sbatch", answer.stderr) or rejected(answer.stderr, answer.code)
        lines = answer.stdout.strip().splitlines()
        job = _SUBMITTED.fullmatch(lines[-1].strip()) if lines else None
        if job is None:
            raise SlurmOutputError("sbatch took the job and gave no job id.", raw=answer.stdout or answer.stderr)
        return job[1]

    async def test_only(
        self, script: str, *, prefix: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> WillRun:
        """When and where Slurm would start this batch script (``sbatch --test-only``); no job is made.

        Limits of partitions, accounts and QOS for which a job would wait are not looked at (a time over MaxTime gets a
        start, too). Raises SubmitRejected with Slurm's words, ConfigError where the prefix does not let sbatch run.
        """
        if self._slurm.wraps(prefix):
            answer = await self._slurm.run("sbatch", wrapper=TRIAL, prefix=prefix, stdin=script)
        else:
            env = {**(environment or {}), "SLURM_TIME_FORMAT": "%s"}
            answer = await self._slurm.run("sbatch", "--test-only", prefix=prefix, environment=env, stdin=script)
        if answer.code != 0:
            raise failure("sbatch", answer.stderr) or rejected(answer.stderr, answer.code)
        return parse_trial(answer.stderr)

    async def cancel(
        self, job_id: str, *, prefix: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        """Cancel a job; one that has ended or that Slurm does not know is a success.

        Raises NotPermitted where it is somebody else's.
        """
        if self._slurm.wraps(prefix):
            answer = await self._slurm.run("scancel", wrapper=CANCEL, prefix=prefix, stdin=_checked(job_id))
        else:
            answer = await self._slurm.run("scancel", _checked(job_id), prefix=prefix, environment=environment)
        if answer.code == 0:
            return
        refused = not_cancelled(job_id, answer.stderr)
        if refused is not None:
            raise refused
        if not is_over(answer.stderr):
            raise unanswered("scancel", answer)

    async def log_end(self, job_id: str, *, prefix: Sequence[str]) -> str:
        """The last 4 KiB of the job's log, read as its owner; empty where no wrapper can do that.

        Raises ConfigError where the prefix does not let the wrapper run.
        """
        if not self._slurm.wraps(prefix):
            return ""
        answer = await self._slurm.run(LOG, wrapper=LOG, prefix=prefix, stdin=_checked(job_id), limit=1 << 16)
        return good(LOG, answer)

    # --- as the hub ----------------------------------------------------------------------------

    async def jobs(self, job_ids: Collection[str]) -> dict[str, JobStatus]:
        """The jobs of these ids, with one squeue; ids that Slurm does not know are absent.

        Slurm keeps a job that has ended for MinJobAge (300 s unless configured), then it is absent too.
        """
        wanted = {_checked(job_id) for job_id in job_ids}
        if not wanted:
            return {}
        found = await self._squeue("-j", ",".join(sorted(wanted, key=int)))
        return {job_id: status for job_id, status in found.items() if job_id in wanted}

    async def every_job(self) -> dict[str, JobStatus]:
        """All jobs that Slurm knows and this account may see, ended ones too; 22.05 keeps refused ones as failed.

        Comments and names are their owners' to change: whoever takes a job by them compares the owner.
        """
        return await self._squeue()

    async def tagged(self, tag: str) -> dict[str, JobStatus]:
        """Those of them whose comment starts with ``tag``."""
        return {job_id: status for job_id, status in (await self.every_job()).items() if status.tag.startswith(tag)}

    async def made(self, identity: JobIdentity) -> dict[str, JobStatus]:
        """The jobs of one start that have not ended, whether or not sbatch has told of them.

        slurmctld sends the jobs of the owner alone, where the owner's number is known.
        """
        which = ("-u", str(identity.uid)) if identity.uid is not None else ()
        found = await self._squeue(*which)
        return {
            job_id: status
            for job_id, status in found.items()
            if status.phase not in (Phase.ENDING, Phase.ENDED) and identity.matches(status)
        }

    async def job(self, job_id: str, *, allocations: bool = False) -> JobDetail | None:
        """All about one job (``scontrol show job``); None where Slurm does not know it (any more).

        With ``allocations`` (``-d``) also what it has on each node; that costs slurmctld its whole table of nodes.
        """
        details = ["-d"] if allocations else []
        answer = await self._slurm.run("scontrol", "--local", "show", "job", *details, "-o", _checked(job_id))
        if answer.code == 0:
            return parse_job(answer.stdout, job_id)
        if _UNKNOWN_JOB in answer.stderr:
            return None
        raise unanswered("scontrol", answer)

    async def allocations(self) -> dict[str, tuple[NodeAllocation, ...]]:
        """What each job has on its nodes, with Slurm's indices, by job id: one ``scontrol show job -d`` for all.

        It is heavier than :meth:`snapshot`: for a page that an admin looks at, not for a watcher.
        """
        text = await self._show("job", "-a", "-d")
        return await asyncio.to_thread(parse_allocations, text)

    async def address(self, node: str) -> str:
        """The address by which Slurm reaches a node (NodeAddr); kept for five minutes."""
        if not _NODE.fullmatch(node):
            raise SlurmOutputError(f"{node[:80]!r} is no node's name.", raw=node)
        # who asks for a node that is being asked for waits for that answer
        async with self._asking.setdefault(node, asyncio.Lock()):
            known = self._addresses.get(node)
            if known is None or time.monotonic() - known[0] > _ADDRESS_AGE:
                known = self._addresses[node] = (time.monotonic(), await self._ask_address(node))
            return known[1]

    async def _ask_address(self, node: str) -> str:
        answer = await self._slurm.run("scontrol", "show", "node", "-o", node)
        if f"Node {node} not found" in answer.stdout + answer.stderr:
            raise SlurmOutputError(f"Slurm knows no node {node}.", raw=answer.stdout)
        found = parse_nodes(good("scontrol", answer))
        if len(found) != 1 or not _ADDRESS.fullmatch(found[0].address):
            raise SlurmOutputError(f"scontrol told no address of node {node}.", raw=answer.stdout)
        return found[0].address

    async def snapshot(self) -> ClusterSnapshot:
        """Nodes, partitions (hidden ones too), reservations and jobs that wait or hold nodes, with four commands.

        A fifth one every five minutes is for slurm.conf's default memory.
        """
        taken_at, mark = time.time(), secrets.token_hex(8)
        entities = (("node", "-a", "-d"), ("partition", "-a"), ("reservation", "-a"))
        shown = [asyncio.ensure_future(self._show(*words)) for words in entities]
        default = asyncio.ensure_future(self._default_memory())
        queue = asyncio.ensure_future(
            self._slurm.run(
                *("squeue", "--local", "-h", "-a", "-t", STATES, "-O", job_columns(mark)), limit=_SNAPSHOT_LIMIT
            )
        )
        try:
            nodes, partitions, reservations = await asyncio.gather(*shown)
            memory = await default
            jobs = await queue
        finally:  # where one has failed, the others have nobody to answer to
            await _ended(*shown, default, queue)
        told = good("squeue", jobs)

        def read() -> ClusterSnapshot:
            unread: list[Unread] = []
            snapshot = ClusterSnapshot(
                nodes=parse_nodes(nodes, unread.append),
                partitions=parse_partitions(partitions, unread.append),
                reservations=parse_reservations(reservations, unread.append),
                jobs=parse_jobs(told, mark, unread.append),
                memory=memory,
                taken_at=taken_at,
                unread=tuple(unread),
            )
            capacity_of(snapshot).warm()
            return snapshot

        # five thousand nodes take a third of a second to read: not in the hub's loop
        snapshot = await asyncio.to_thread(read)
        if snapshot.unread:
            self._report(snapshot.unread)
        return snapshot

    async def _default_memory(self) -> DefaultMemory | None:
        if self._memory is None or time.monotonic() - self._memory[0] > _CONFIG_AGE:
            try:
                config = await self.config()
            except SlurmOutputError:
                return None
            told = DefaultMemory(
                config.default_memory_per_cpu_mib, config.default_memory_per_node_mib, config.memory_is_allocated
            )
            self._memory = time.monotonic(), told
        return self._memory[1]

    async def config(self) -> SlurmConfig:
        """What of slurm.conf a hub has to know, as slurmctld has it (``scontrol show config``: one RPC)."""
        return parse_config(good("scontrol", await self._slurm.run("scontrol", "show", "config")))

    async def sees_jobs_of(self, user: str = "") -> bool:
        """Whether Slurm shows this account the jobs of ``user``; of anybody where none is named.

        Where it does not (PrivateData=jobs for an account that is neither root, SlurmUser nor an operator), that a job
        is not told of does not mean that it is gone. An account whose rights cannot be told counts as one without. An
        account coordinator's right to see some accounts' jobs is not looked at.
        """
        me = own_account()
        if user and user == me:
            return True
        config = await self.config()
        return not config.hides_jobs or await self._privileged(me, config)

    async def _privileged(self, me: str, config: SlurmConfig) -> bool:
        if self._slurm.prefix:
            return False  # whoever the prefix makes of us
        if os.geteuid() == 0 or os.geteuid() == config.slurm_uid:
            return True
        if not config.accounting or not me:
            return False
        try:
            answer = await self._slurm.run(
                "sacctmgr", "-n", "-P", "show", "user", "where", f"name={me}", "format=AdminLevel"
            )
        except SlurmUnavailable:
            return False
        return answer.code == 0 and answer.stdout.strip() in ("Operator", "Administrator")

    async def version(self) -> str:
        """The version of the commands, such as ``22.05.8``."""
        text = good("sinfo", await self._slurm.run("sinfo", "--version"))
        found = re.search(r"\d+\.\d+(?:\.\d+)*", text)
        if found is None:
            raise SlurmOutputError("sinfo --version named no version.", raw=text)
        return found[0]

    async def ping(self) -> bool:
        """Whether a slurmctld answers (``scontrol ping``); False after the time-out."""
        try:
            answer = await self._slurm.run("scontrol", "ping")
        except CommandMissing:
            raise
        except SlurmUnavailable:
            return False
        return re.search(r"^Slurmctld\(.*\) at .* is UP", answer.stdout, re.MULTILINE) is not None

    # --- one command ---------------------------------------------------------------------------

    async def _squeue(self, *which: str) -> dict[str, JobStatus]:
        mark = secrets.token_hex(8)
        # --local: one id alone would cost a question about federations, too
        command = ("squeue", "--local", "-h", "-a", "-t", "all", *which, "-O", columns(mark))
        # each job's owner may write a comment of a kilobyte
        answer = await self._slurm.run(*command, limit=_SNAPSHOT_LIMIT)
        if answer.code != 0 and _UNKNOWN_JOB in answer.stderr:
            return {}
        if answer.code != 0 and "Invalid user" in answer.stderr and which:  # the number has no name on this machine
            return await self._squeue()
        unread: list[Unread] = []
        found = parse_squeue(good("squeue", answer), mark, unread.append)
        if unread:
            self._report(unread)
        return found

    async def _show(self, what: str, *options: str) -> str:
        return good("scontrol", await self._slurm.run("scontrol", "show", what, *options, "-o", limit=_SNAPSHOT_LIMIT))


def own_account() -> str:
    """The name of the account whose commands these are; empty for a number without a name."""
    with suppress(KeyError):
        return pwd.getpwuid(os.geteuid()).pw_name
    return ""


def _signal(code: int) -> int | None:
    """The signal that ended a command, by its exit status (a shell's or sudo's: 128 and the signal's number)."""
    if code < 0:
        return -code
    return code - 128 if 128 < code <= 128 + 64 else None


def _checked(job_id: str) -> str:
    if not _JOB_ID.fullmatch(job_id):
        raise SlurmOutputError(f"{job_id[:80]!r} is no job id.", raw=job_id)
    return job_id


async def _ended(*tasks: asyncio.Future[Any]) -> None:
    """Cancel what still runs, and return when all has ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
