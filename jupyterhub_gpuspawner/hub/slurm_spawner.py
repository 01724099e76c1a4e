"""Servers as Slurm jobs: one typed batch script, a job id kept from the first moment, one shared watcher.

What it inherits from batchspawner is the name, the ``req_*`` settings, ``exec_prefix`` and an admin's own
``batch_script``. Submission, polling, cancelling, waiting and state are its own.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from batchspawner import SlurmSpawner
from jupyterhub.spawner import Spawner
from traitlets import Enum, Float, Integer, TraitError, Unicode, default, validate

from jupyterhub_gpuspawner.errors import GPUSpawnerError, RequestError, SlurmUnavailable
from jupyterhub_gpuspawner.hub.account import Account, account_of
from jupyterhub_gpuspawner.hub.batch import BatchJob, batch_job, plain_request
from jupyterhub_gpuspawner.hub.connection import Connection, ConnectionSettings, connection
from jupyterhub_gpuspawner.hub.failure import spawn_failure, start_failed
from jupyterhub_gpuspawner.hub.joblog import last_lines
from jupyterhub_gpuspawner.hub.reporting import ReportedPlacement
from jupyterhub_gpuspawner.hub.waiting import first_of, in_background
from jupyterhub_gpuspawner.job import JobStatus, Phase, sentence
from jupyterhub_gpuspawner.slurm.client import command_prefix
from jupyterhub_gpuspawner.units import expand_nodelist
from jupyterhub_gpuspawner.wire import MEMORY_POLICIES, POLICIES, PlacementDocument, with_job

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from jupyterhub_gpuspawner.request import JobRequest
    from jupyterhub_gpuspawner.slurm.client import JobDetail
    from jupyterhub_gpuspawner.slurm.watcher import Watch

_JOB_ID = re.compile(r"[0-9]{1,10}")
JUPYTERHUB_PORT = 8081
"""Where a hub listens unless told otherwise."""
_STILL_WAITING = 20.0
"""Seconds after which a start says again that it waits."""
_PORT_RANGE = re.compile(r"([0-9]+)-([0-9]+)")


class GPUSlurmSpawner(ReportedPlacement, SlurmSpawner):
    """Starts each server as one Slurm job, bound to the right GPUs, cores and memory."""

    batch_script = Unicode(
        "",
        config=True,
        help="""A template of your own, as batchspawner has it: `req_*` values by name, and `{cmd}`.
        Empty (the default): the script is built from typed values; `gpuspawner show` prints it.""",
    )
    req_homedir = Unicode(
        "",
        config=True,
        help="Home of the job's user, `{username}` is replaced; empty: as the account database says.",
    )
    hub_name = Unicode(config=True, help="This hub's name in the tag of its jobs; the same after each restart.")
    job_name = Unicode("jupyterhub", config=True, help="Slurm's job name.")
    log_dir = Unicode(
        "{homedir}",
        config=True,
        help="Folder of the jobs' logs, as the node sees it; `{homedir}` and `{username}` are replaced.",
    )
    slurm_bin_dir = Unicode("", config=True, help="Folder of Slurm's commands; empty: found by PATH.")
    slurm_timeout = Float(10.0, config=True, help="Seconds that a Slurm command may take.")
    slurm_limit = Integer(8, config=True, help="Slurm commands that run at once, at most.")
    waiting_interval = Float(1.5, config=True, help="Seconds between two squeue while someone waits.")
    resting_interval = Float(30.0, config=True, help="Seconds between two squeue while nobody waits.")
    stop_wait = Float(10.0, config=True, help="Seconds that stopping waits for the job to end.")
    placement_policy = Enum(POLICIES, "best-effort", config=True, help="Policy where the profile names none.")
    memory_policy = Enum(MEMORY_POLICIES, "preferred", config=True, help="Memory policy where the profile names none.")
    port_range = Unicode("", config=True, help="Ports for servers on the nodes, such as `20000-20999`; empty: any.")
    topology_file = Unicode(
        "",
        config=True,
        help="A topology file that stands in for discovery on the nodes; `{node}` in it is the node's name.",
    )
    observe_timeout = Float(3.0, config=True, help="Seconds that looking at a node's hardware may take.")

    request: JobRequest | None = None
    _watch: Watch | None = None
    _start_id = ""

    @default("hub_name")
    def _hub_name_default(self) -> str:
        port = self.hub.port if self.hub is not None else JUPYTERHUB_PORT
        return socket.gethostname() if port == JUPYTERHUB_PORT else f"{socket.gethostname()}-{port}"

    @validate("port_range")
    def _valid_port_range(self, proposal: Any) -> str:
        value = str(proposal["value"])
        found = _PORT_RANGE.fullmatch(value)
        if value and not (found and 1024 <= int(found[1]) <= int(found[2]) <= 65535):
            raise TraitError(f"port_range: {value!r} must be FIRST-LAST within 1024-65535, such as 20000-20999")
        return value

    @default("apply_user_options")
    def _default_apply_user_options(self) -> Any:
        return _refuse_options

    def connection(self) -> Connection:
        """The hub's shared client and watcher."""
        return connection(
            ConnectionSettings(
                bin_dir=self.slurm_bin_dir,
                timeout=self.slurm_timeout,
                limit=self.slurm_limit,
                active_interval=self.waiting_interval,
                rest_interval=self.resting_interval,
            )
        )

    def as_user(self) -> tuple[str, ...]:
        """``exec_prefix`` as words: what runs a command as the server's user."""
        return command_prefix(self.exec_prefix, self.user.name)

    async def account(self) -> Account:
        """Home and shell of the server's user; raises ConfigError where there is no account."""
        return await account_of(self.user.name, home=self.req_homedir.replace("{username}", self.user.name))

    def job_environment(self, account: Account) -> dict[str, str]:
        """What sbatch, and so the job, gets as its environment: the hub's variables for a server, and the account."""
        env: dict[str, str] = Spawner.get_env(self)
        env.update(USER=account.name, LOGNAME=account.name, HOME=account.home, SHELL=account.shell)
        env.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin")
        env.setdefault("LANG", "C.UTF-8")
        return env

    def batch_job(self, account: Account) -> BatchJob:
        """The job as it would be submitted now; raises ConfigError or RequestError."""
        return batch_job(self, self.request or plain_request(self), account, start_id=self._start_id)

    # --- start ---------------------------------------------------------------------------------

    async def start(self) -> tuple[str, int]:
        """Submit the job, wait for the node's report, return the node's address and the server's port."""
        self.forget_report()
        self._start_id = secrets.token_hex(4)
        try:
            account = await self.account()
            job = self.batch_job(account)
            for note in job.notes:
                self.log.warning("Batch script of %s: %s", self._log_name, note)
            self.job_id = await self._submit(job, account)
            self.store()
            self.log.info("Submitted %s as job %s", self._log_name, self.job_id)
            await self._until_reported()
            host = await self._confirm()
        except GPUSpawnerError as error:
            raise spawn_failure(error) from error
        self.port = self.reported_port
        self.log.info("Job %s of %s serves at %s:%d", self.job_id, self._log_name, host, self.port)
        return host, self.port

    async def _submit(self, job: BatchJob, account: Account) -> str:
        client = self.connection().client
        submission = asyncio.ensure_future(
            client.submit(job.script, prefix=self.as_user(), environment=self.job_environment(account))
        )
        try:
            return await asyncio.shield(submission)
        except asyncio.CancelledError:
            # sbatch may have made its job by now: let it answer, and cancel that job
            in_background(self._cancel_unwanted(submission))
            raise
        except SlurmUnavailable:
            # so may one that failed with 'Socket timed out': its tag tells
            made = await client.tagged(job.tag)
            if not made:
                raise
            return next(iter(made))

    async def _cancel_unwanted(self, submission: asyncio.Future[str]) -> None:
        job_id = await submission
        self.log.info("The start of %s was given up: cancelling job %s", self._log_name, job_id)
        await self._cancel(job_id)

    async def _until_reported(self) -> None:
        watch = self._watching()
        while not self.reported.is_set():
            status = watch.status
            if status is not None and status.phase is Phase.ENDED:
                raise await self._died(status)
            watch.hurry()  # a job that dies before it spoke is noticed soon
            await first_of(self.reported.wait(), watch.changed(), asyncio.sleep(_STILL_WAITING))

    async def _died(self, status: JobStatus) -> Exception:
        detail = None
        with suppress(SlurmUnavailable):
            detail = await self.connection().client.job(self.job_id)
        path = detail.stdout_path if detail is not None else ""
        lines = await last_lines(path) if path and not self.as_user() else ""
        where = f" Its log: {path}" if path else ""
        return start_failed(
            f"Job {self.job_id} ended before your server was ready: {sentence(status)}{where}", detail=lines
        )

    async def _confirm(self) -> str:
        """The address of the job's first node, by Slurm's word; completes the placement with Slurm's facts."""
        client = self.connection().client
        while True:
            with suppress(SlurmUnavailable):
                detail = await client.job(self.job_id)
                if detail is not None and detail.batch_host:
                    address = await client.address(detail.batch_host)
                    self.placement = confirmed(self.placement or PlacementDocument(), detail)
                    self.store()
                    return address
            await asyncio.sleep(1.0)

    # --- poll, stop, after a restart -----------------------------------------------------------

    def _watching(self) -> Watch:
        if self._watch is None:
            self._watch = self.connection().watcher.watch(self.job_id)
        return self._watch

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    @property
    def job(self) -> JobStatus | None:
        """The job as Slurm last told it; never asks."""
        return self._watch.status if self._watch is not None else None

    async def poll(self) -> int | None:
        """None unless Slurm says that the job has ended; then its exit code, or 1."""
        if not self.job_id:
            return 0
        watch = self._watching()
        if watch.status is None:  # just restored after a restart of the hub
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(watch.changed(), timeout=self.slurm_timeout)
        status = watch.status
        if status is None or status.phase is not Phase.ENDED:
            return None
        code = status.exit_code.partition(":")[0]
        self.log.info("Job %s of %s has ended: %s", self.job_id, self._log_name, sentence(status))
        return int(code) if code.isdigit() and int(code) else 1

    async def stop(self, now: bool = False) -> None:  # noqa: FBT001, FBT002 - JupyterHub's signature
        """Cancel the job; unless ``now``, wait a while until Slurm says that it ends."""
        if not self.job_id:
            return
        self.log.info("Stopping %s: cancelling job %s", self._log_name, self.job_id)
        try:
            await self._cancel(self.job_id)
        except SlurmUnavailable as error:
            self.log.warning("Job %s is cancelled as soon as Slurm answers: %s", self.job_id, error)
            in_background(self._cancel_later(self.job_id))
            return
        if not now:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._until_ending(), timeout=self.stop_wait)

    async def _cancel(self, job_id: str) -> None:
        account = await self.account()
        await self.connection().client.cancel(
            job_id, prefix=self.as_user(), environment={"USER": account.name, "HOME": account.home}
        )

    async def _cancel_later(self, job_id: str) -> None:
        pause = 2.0
        while True:
            await asyncio.sleep(pause)
            pause = min(pause * 2, 60.0)
            try:
                await self._cancel(job_id)
            except SlurmUnavailable:
                continue
            self.log.info("Job %s is cancelled", job_id)
            return

    async def _until_ending(self) -> None:
        watch = self._watching()
        watch.hurry()
        while watch.status is None or watch.status.phase not in (Phase.ENDING, Phase.ENDED):
            await watch.changed()

    async def get_url(self) -> str:
        """Where the server is; waits for a start that was under way when the hub was restarted."""
        if self.job_id and not (self.server and self.server.port):
            await asyncio.wait_for(self._until_reported(), timeout=self.start_timeout)
            host = await self._confirm()
            proto = "https" if self.internal_ssl else "http"
            host = f"[{host}]" if ":" in host else host
            return f"{proto}://{host}:{self.reported_port}{self.server.base_url if self.server else '/'}"
        url: str = await super().get_url()
        return url

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        """One event for each change: job, state and reason, node, GPUs. Asks nothing, reads what is known."""
        told = ""
        while True:
            event = self._event()
            if event["message"] != told:
                told = event["message"]
                yield event
            await asyncio.sleep(0.3)

    def _event(self) -> dict[str, Any]:
        if not self.job_id:
            return {"progress": 5, "message": "Asking Slurm for a job."}
        if self.placement is not None:
            return {"progress": 85, "message": f"Job {self.job_id}: {placed(self.placement)} The server is starting."}
        if self.job is None:
            return {"progress": 10, "message": f"Submitted as job {self.job_id}."}
        percent = {Phase.QUEUED: 20, Phase.STARTING: 40, Phase.RUNNING: 60}.get(self.job.phase, 20)
        return {"progress": percent, "message": f"Job {self.job_id}: {sentence(self.job)}"}

    # --- state: the job's facts -----------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """Job id and report."""
        state: dict[str, Any] = {"job_id": self.job_id} if self.job_id else {}
        return {**state, **self.report_state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take the job up again; a job id that is no number is dropped."""
        job_id = str(state.get("job_id", ""))
        if job_id and not _JOB_ID.fullmatch(job_id):
            self.log.error("The stored job id %r of %s is no number and is dropped", job_id, self._log_name)
            job_id = ""
        self.job_id = job_id
        self.load_report(state)

    def clear_state(self) -> None:
        """Forget the job; only the hub says when."""
        Spawner.clear_state(self)
        self._stop_watching()
        self.job_id = ""
        self.forget_report()


def confirmed(placement: PlacementDocument, detail: JobDetail) -> PlacementDocument:
    """The node's report with Slurm's own facts put over it, and a problem named where the two differ."""
    problems = placement.problems
    if placement.node and placement.node not in expand_nodelist(detail.nodes):
        problems = (*problems, f"The report names node {placement.node}; Slurm says {detail.nodes}.")
    return with_job(
        placement,
        job_id=detail.job_id,
        node=detail.batch_host,
        partition=detail.partition or None,
        started_at=placement.started_at,
        ends_at=detail.ends_at_iso,
        problems=problems,
    )


def placed(placement: PlacementDocument) -> str:
    """One sentence for a participant: node, GPUs, cores."""
    names = sorted({gpu.name or "GPU" for gpu in placement.gpus})
    gpus = f", {len(placement.gpus)} x {' and '.join(names)}" if placement.gpus else ""
    cores = f", cores {placement.cpus}" if placement.cpus else ""
    return f"running on {placement.node}{gpus}{cores}."


def _refuse_options(_spawner: GPUSlurmSpawner, user_options: Mapping[str, object]) -> None:
    """Without profiles there is nothing to choose."""
    for name in user_options:
        error = RequestError(
            f"{str(name)[:40]!r} is no option here.", field=str(name)[:40], hint="No options are offered."
        )
        raise spawn_failure(error)
