"""Servers as Slurm jobs: one typed batch script, a job id kept from the first moment, one shared watcher.

What it inherits from batchspawner is the name, the ``req_*`` settings, ``exec_prefix`` and an admin's own
``batch_script``. Submission, polling, cancelling, waiting and state are its own.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from jupyterhub.spawner import Spawner
from sqlalchemy import inspect
from sqlalchemy.exc import SQLAlchemyError
from traitlets import default

from jupyterhub_gpuspawner.batch.launcher import launcher_archive
from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError, RequestError
from jupyterhub_gpuspawner.hub import named
from jupyterhub_gpuspawner.hub.ending.closed_port import ClosedPort
from jupyterhub_gpuspawner.hub.ending.failure import database_away, spawn_failure
from jupyterhub_gpuspawner.hub.jupyterhub_compat import UserOptions, checked_server_name
from jupyterhub_gpuspawner.hub.site import metrics
from jupyterhub_gpuspawner.hub.site.account import Account, account_of, refuse_root
from jupyterhub_gpuspawner.hub.site.connection import Connection, ConnectionSettings, connection
from jupyterhub_gpuspawner.hub.site.database import TO_START, TO_STOP, TO_TELL, LogName
from jupyterhub_gpuspawner.hub.site.slurm_settings import SlurmSettings
from jupyterhub_gpuspawner.hub.site.tasks import first_of, in_background
from jupyterhub_gpuspawner.hub.spawners.child import configured_as
from jupyterhub_gpuspawner.hub.spawners.inherited_settings import IgnoredSetting, ignored_settings
from jupyterhub_gpuspawner.hub.start.build import BatchJob, batch_job, plain_request, site_profile
from jupyterhub_gpuspawner.hub.start.cancellation import TRUSTED, Cancellation
from jupyterhub_gpuspawner.hub.start.certificates import contents
from jupyterhub_gpuspawner.hub.start.deadline import Deadline, clocks, parse_deadline
from jupyterhub_gpuspawner.hub.start.progress import event
from jupyterhub_gpuspawner.hub.start.records import Start, StartRecords
from jupyterhub_gpuspawner.hub.start.resume import interrupted, take_up
from jupyterhub_gpuspawner.hub.start.submission import cancel_surely, submit
from jupyterhub_gpuspawner.hub.start.watched_job import WatchedJob
from jupyterhub_gpuspawner.jobs.comment import hub_mark
from jupyterhub_gpuspawner.jobs.identity import parse_identity
from jupyterhub_gpuspawner.jobs.status import Phase, sentence
from jupyterhub_gpuspawner.slurm.run_as import command_prefix

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from jupyterhub_gpuspawner.jobs.identity import JobIdentity

_JOB_ID = re.compile(r"[0-9]{1,10}")
_AFTER_RESTART = 30.0
"""Seconds at least that a start gets from a hub that was restarted."""
_NEWS = 0.3
"""Seconds between two looks at what a page should be told."""
_SIGN_OF_LIFE = 10.0
"""Seconds after which a page is told the same again: a proxy may hold its stream open though the hub is gone."""


_SERVES = (Phase.RUNNING, Phase.ENDING)
"""Phases in which a server that the hub has taken up may still be there."""


class GPUSlurmSpawner(LogName, WatchedJob, SlurmSettings):
    """Starts each server as one Slurm job, bound to the right GPUs, cores and memory."""

    user_options = UserOptions()

    _start_id = ""
    _closed_port: ClosedPort | None = None
    _username = ""
    """Whose job it is, for while the database is away; empty before the first start."""
    _certificates: Mapping[str, str] = MappingProxyType({})
    """Contents of its certificates' files, for the job's environment; empty without ``internal_ssl``."""

    @default("apply_user_options")
    def _default_apply_user_options(self) -> Any:
        return _refuse_options

    def connection(self) -> Connection:
        """The hub's shared client and watcher."""
        return connection(
            ConnectionSettings(
                bin_dir=self.slurm_bin_dir,
                wrapper_dir=self.wrapper_dir,
                timeout=self.slurm_timeout,
                limit=self.slurm_limit,
                active_interval=self.waiting_interval,
                rest_interval=self.resting_interval,
            )
        )

    def as_user(self) -> tuple[str, ...]:
        """``exec_prefix`` as words: what runs a command as the server's user."""
        return command_prefix(self.exec_prefix, self._username or self.user.name)

    def check(self) -> None:
        """Raise ConfigError for a setting that would fail every start."""
        site_profile(self)
        command_prefix(self.exec_prefix, "somebody")
        if self.wrapper_dir and not Path(self.wrapper_dir).is_absolute():
            raise ConfigError(
                f"{self.wrapper_dir!r} is no full path.",
                where=configured_as(self, "wrapper_dir"),
                hint="Name the folder as the sudoers file does.",
            )
        launcher_archive()  # a fifth of a second, once: now, not in the loop while somebody waits

    def ignored_settings(self) -> tuple[IgnoredSetting, ...]:
        """Settings of this hub that have no effect, for the admin."""
        return ignored_settings(self.config, type(self), batch_script=self.batch_script)

    async def account(self) -> Account:
        """Home and shell of the server's user; raises ConfigError where there is no account."""
        return await account_of(self.user.name, home=self.req_homedir.replace("{username}", self.user.name))

    def job_environment(self, account: Account) -> dict[str, str]:
        """What sbatch, and so the job, gets as its environment: the hub's variables for a server, and the account."""
        env: dict[str, str] = Spawner.get_env(self)
        env.update(USER=account.name, LOGNAME=account.name, HOME=account.home, SHELL=account.shell)
        env.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin")
        env.setdefault("LANG", "C.UTF-8")
        env.update(self._certificates)
        return env

    def batch_job(self, account: Account) -> BatchJob:
        """The job as it would be submitted now; raises ConfigError or RequestError."""
        return batch_job(self, self.request or plain_request(self), account, start_id=self._start_id)

    # --- start ---------------------------------------------------------------------------------

    async def start(self) -> tuple[str, int]:
        """Submit the job, wait for report and server, return the node's address and the server's port."""
        await self.noted(TO_START)
        try:
            where = await self._start()
        finally:  # an error and a cancellation, too, are written down by the hub before anything else
            noted = await self.noted(TO_START)
        if not noted:
            raise database_away()
        return where

    async def _start(self) -> tuple[str, int]:
        self._username = self.user.name
        self.forget_report()
        self.known.ending, self._stopping = None, False
        self._closed_port = None
        self._reached = {"submitted": time.time()}
        self._start_id = f"{hub_mark(self.user.settings.get('cookie_secret', b''))}-{secrets.token_hex(8)}"
        self._start_by, self._least_left = Deadline.after(self.start_timeout, clocks()), 0.0
        try:
            named.require()
            checked_server_name(self.name)
            await refuse_root(self.user.name)
            account = await self.account()
            self._certificates = await asyncio.to_thread(contents, self.cert_paths)
            job = self.batch_job(account)
            for note in job.notes:
                self.log.warning("Batch script of %s: %s", self._log_name, note)
            self._record_start()
            self.job_id = await submit(
                self.connection().client,
                job,
                prefix=self.as_user(),
                environment=self.job_environment(account),
                cancel=self.cancellation(self.user.name, job.identity, trusted_until=None),
            )
            self._identity, self._trusted_until = job.identity, time.monotonic() + TRUSTED
            self._reached["queued"] = time.time()
            self._times = metrics.StartTimes(self.request.profile if self.request else "default")
            self.store_soon()
            self.log.info("Submitted %s as job %s", self._log_name, self.job_id)
            await self._until_ready()
        except GPUSpawnerError as error:
            raise spawn_failure(error) from error
        except SQLAlchemyError as error:
            raise database_away(self.known.orm_spawner) from error
        self._times.ready()
        self._serves()
        self.port = self.reported_port
        self.log.info("Job %s of %s serves at %s:%d", self.job_id, self._log_name, self.address, self.port)
        return self.address, self.port

    # --- poll, stop, after a restart -----------------------------------------------------------

    async def poll(self) -> int | None:
        """None unless Slurm says that the job has ended, and the hub can note it; then its exit code, or 1.

        In the hub's first check after a restart, a start that was under way is waited for.
        """
        status = await self._exit_status()
        return status if status is None or await self.noted(TO_TELL) else None

    async def _exit_status(self) -> int | None:
        if not self.job_id:
            return 0
        if self._start_by and interrupted(self.known, self.reported_port):
            self.log.info("Job %s of %s was starting when the hub ended: taking it up", self.job_id, self._log_name)
            metrics.adopted(self, "starting")
            return await take_up(self.known, self._finish_start())
        watch = self._watching()
        if watch.status is None and not watch.hidden:  # just restored after a restart of the hub
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(watch.changed(), timeout=self.slurm_timeout)
        status = watch.status
        if watch.hidden and self._was_ready() and await self._port_closed():
            self.log.warning(
                "Nothing listens any more where job %s of %s served, and Slurm does not show the job: cancelling it",
                self.job_id,
                self._log_name,
            )
            in_background(
                cancel_surely(self.job_id, self.cancellation(self._username or self.user.name, self.identity))
            )
            await self._remember_closed()
            return 1
        if status is None or not self._over(watch):
            metrics.adopted(self, "running")
            there = status is not None and status.phase in _SERVES and self.known.pending != "spawn"
            if there and self._served_at is None:
                self._served_at = 0.0  # since before this hub
            if self._served_at is not None:
                self._look_out()
            return None
        if status.phase is not Phase.ENDED:
            self.log.warning(
                "Slurm put job %s of %s back; its server is gone: cancelling it", self.job_id, self._log_name
            )
            in_background(
                cancel_surely(self.job_id, self.cancellation(self._username or self.user.name, self.identity))
            )
        await self._remember_end(status)
        code = status.exit_code.partition(":")[0]
        self.log.info("Job %s of %s has ended: %s", self.job_id, self._log_name, sentence(status))
        return int(code) if code.isdigit() and int(code) else 1

    def _was_ready(self) -> bool:
        """The server has answered the hub, now or before a restart."""
        return self.known.pending is None and bool(self.known.server)

    async def _port_closed(self) -> bool:
        """Whether nothing listens any more where the server did, at several looks in a row; this is one of them."""
        url = urlsplit(await self.get_url())
        if self._closed_port is None:
            self._closed_port = ClosedPort()
        return await self._closed_port.look(url.hostname or "", url.port or 0)

    async def stop(self, now: bool = False) -> None:  # noqa: FBT001, FBT002 - JupyterHub's signature
        """Cancel the job; unless ``now``, wait a while until Slurm says that it ends, and until the hub can note it."""
        if self.job_id:
            await self._end_job(now=now)
        await self.noted(TO_STOP)

    async def _end_job(self, *, now: bool) -> None:
        self._stopping = True
        self.log.info("Stopping %s: cancelling job %s", self._log_name, self.job_id)
        trusted_until = self._trusted_until if self.job is None else 0.0
        cancel = self.cancellation(self._username or self.user.name, self.identity, trusted_until=trusted_until)
        try:
            await cancel(self.job_id)
        except GPUSpawnerError:  # the hub forgets the server all the same
            in_background(cancel_surely(self.job_id, cancel))
            return
        if not now:
            await first_of(self._until_ending(), asyncio.sleep(self.stop_wait))

    def cancellation(self, username: str, identity: JobIdentity, *, trusted_until: float | None = 0.0) -> Cancellation:
        """What cancels a job as this user, if it is the one of ``identity``."""
        return Cancellation(
            self.connection().client,
            identity,
            prefix=command_prefix(self.exec_prefix, username),
            environment={"USER": username, "LOGNAME": username},
            trusted_until=trusted_until,
        )

    def _record_start(self) -> None:
        """Before sbatch, so that a job that loses its server is known for this hub's; raises RecordFailed."""
        orm_spawner = self.known.orm_spawner
        session = inspect(orm_spawner).session if orm_spawner is not None else None
        if session is not None:
            StartRecords(session).add(self._start_id, Start(self.user.name, self.name))

    def slurm_site(self) -> GPUSlurmSpawner:
        """A spawner with the settings of all Slurm servers."""
        return self

    async def _until_ending(self) -> None:
        watch = self._watching()
        watch.hurry()
        with suppress(RuntimeError):  # the hub has forgotten the server meanwhile: its start has failed, too
            while not watch.hidden and (watch.status is None or watch.status.phase not in (Phase.ENDING, Phase.ENDED)):
                await watch.changed()

    async def get_url(self) -> str:
        """Where the server is; after a restart of the hub, where one that was starting has arrived."""
        if not self.address or (self.server and self.server.port == self.reported_port):
            url: str = await super().get_url()
            return url
        proto = "https" if self.internal_ssl else "http"
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{proto}://{host}:{self.reported_port}{self.server.base_url if self.server else '/'}"

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        """One event for each change: job, state and reason, place in line, node, GPUs.

        It reads what the watcher knows. While the job waits the cluster is looked at, once for all who read.
        """
        known, told, told_at = None, dict[str, Any](), 0.0
        while True:
            await self.see_the_line(0.0)
            facts = self.start_facts()
            due = time.monotonic() - told_at > _SIGN_OF_LIFE
            if facts != known or due:
                known, now = facts, event(facts, now=time.time())
                if now != told or due:
                    yield now if now["message"] != told.get("message") else {"gpuspawner": now["gpuspawner"]}
                    told, told_at = now, time.monotonic()
            if self.placed.is_set():
                await asyncio.sleep(_NEWS)
            else:  # a server that is ready at once shall not be there before its placement is told
                await first_of(self.placed.wait(), asyncio.sleep(_NEWS))

    # --- state: the job's facts -----------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """Job id, what tells the job from another one under this id, when its start is given up, and report."""
        state: dict[str, Any] = {"job_id": self.job_id} if self.job_id else {}
        identity = self._watch.identity if self._watch is not None else self._identity
        if self.job_id and identity is not None:
            state["identity"] = identity.to_json()
        if self.job_id and self._start_by:
            state.update(self._start_by.to_state())
        if self.job_id and self._reached:
            state["reached"] = dict(self._reached)
        return {**state, **self.report_state(), **({} if self.job_id else self.ending_state())}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take the job up again; a job id that is no number is dropped."""
        job_id = str(state.get("job_id", ""))
        if job_id and not _JOB_ID.fullmatch(job_id):
            self.log.error("The stored job id %r of %s is no number and is dropped", job_id, self._log_name)
            job_id = ""
        self.job_id = job_id
        self._username = self.user.name if self.user else ""
        self._identity = parse_identity(state.get("identity"))
        metrics.restored(self)
        self._start_by = parse_deadline(state)  # batchspawner stores none: its servers are taken for started
        self._least_left = _AFTER_RESTART
        reached = state.get("reached")
        self._reached = {
            str(stage): at
            for stage, at in (reached.items() if isinstance(reached, dict) else ())
            if isinstance(at, (int, float))
        }
        self.load_report(state)
        self.load_ending(state)

    def clear_state(self) -> None:
        """Forget the job; only the hub says when."""
        Spawner.clear_state(self)
        self._stop_watching()
        self._served_at = None
        self.job_id = ""
        self._identity, self._trusted_until = None, 0.0
        self._reached = None
        self.forget_report()


def _refuse_options(_spawner: GPUSlurmSpawner, user_options: Mapping[str, object]) -> None:
    """Without profiles there is nothing to choose."""
    for name in user_options:
        error = RequestError(
            f"{str(name)[:40]!r} is no option here.", field=str(name)[:40], hint="No options are offered."
        )
        raise spawn_failure(error)


named.watch(__name__)
