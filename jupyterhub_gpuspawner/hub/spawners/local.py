"""The spawner of servers on the hub's own machine: the launcher binds them and reports as in a job."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from traitlets import Bool, Enum, Unicode, default

from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError
from jupyterhub_gpuspawner.hub.ending.failure import contact_of, database_away, spawn_failure, start_failed
from jupyterhub_gpuspawner.hub.ending.record import Ending
from jupyterhub_gpuspawner.hub.jupyterhub_compat import LogName, UserOptions, checked_server_name
from jupyterhub_gpuspawner.hub.registered import require_registration
from jupyterhub_gpuspawner.hub.report.server_report import ServerReport
from jupyterhub_gpuspawner.hub.report.usage import ServerUsage
from jupyterhub_gpuspawner.hub.site.account import account_of, refuse_root
from jupyterhub_gpuspawner.hub.site.bounded import Folder, Seconds, UsageInterval
from jupyterhub_gpuspawner.hub.site.database import TO_START, TO_STOP, TO_TELL, takes_changes
from jupyterhub_gpuspawner.hub.site.slurm_settings import SHORTEST_LOOK
from jupyterhub_gpuspawner.hub.site.stored_state import StoredState
from jupyterhub_gpuspawner.hub.site.tasks import connected, first_of
from jupyterhub_gpuspawner.hub.spawner_bases import LocalProcessSpawner
from jupyterhub_gpuspawner.hub.spawners.launcher_file import LAUNCHER
from jupyterhub_gpuspawner.hub.start.liveness import status_or_running
from jupyterhub_gpuspawner.hub.text import wait
from jupyterhub_gpuspawner.placement.choice import MEMORY_POLICIES, POLICIES
from jupyterhub_gpuspawner.profiles.environment import CLAIM_FOLDER
from jupyterhub_gpuspawner.slurm.commands import checked_user_name
from jupyterhub_gpuspawner.wire.documents import DEADLINE_LIMIT, LaunchPlan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jupyterhub_gpuspawner.profiles.resolve import JobRequest
    from jupyterhub_gpuspawner.wire.documents import NodeReport, PlacementDocument


class GPULocalSpawner(LogName, LocalProcessSpawner):
    """Starts servers as processes on the hub's own machine, bound and reported like a job's."""

    as_hub_account = Bool(
        default_value=False,
        config=True,
        help="Run every server as the hub's own account. For demos only: users can access each other's files.",
    )
    home_dir_template = Unicode(
        "/tmp/{username}",  # noqa: S108 - only with as_hub_account, and the admin's to set
        config=True,
        help="Home folder of each user if `as_hub_account` is set; `{username}` is replaced.",
    )
    placement_policy = Enum(POLICIES, "best-effort", config=True, help="Placement policy if the profile sets none.")
    memory_policy = Enum(MEMORY_POLICIES, "preferred", config=True, help="Memory policy if the profile sets none.")
    topology_file = Unicode("", config=True, help="Path of a topology file to use instead of discovery.")
    claim_folder = Folder("/var/tmp", config=True, help=CLAIM_FOLDER)  # noqa: S108 - what is in it is guarded
    observe_timeout = Seconds(
        3.0,
        low=SHORTEST_LOOK,
        high=DEADLINE_LIMIT,
        config=True,
        help="Time limit for reading the hardware, in seconds.",
    )
    usage_interval = UsageInterval(config=True)

    user_options = UserOptions()

    request: JobRequest | None = None
    """What was asked for; None in a hub without profiles, and after a restart."""
    wrapper: Any = None
    """The spawner that JupyterHub knows, where that is another one."""
    if TYPE_CHECKING:
        cmd: list[str]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        name = {"server": self._log_name, "log": self.log}
        self._state = StoredState(lambda: self.known, **name)
        self._report = ServerReport(lambda: self.known, self._state, **name)
        self.usage = ServerUsage(self)

    @property
    def known(self) -> Any:
        """The spawner that JupyterHub knows: the wrapper, or this one."""
        return self.wrapper if self.wrapper is not None else self

    @property
    def placement(self) -> PlacementDocument | None:
        """Where the server runs and what it got; None before its report."""
        return self._report.placement

    @property
    def topology(self) -> Mapping[str, Any] | None:
        """The topology document of the hub's machine."""
        return self._report.topology

    @property
    def reported_port(self) -> int:
        """Where the server listens; 0 while it does not, or while another process has its port."""
        return self._report.port

    def accept_report(self, report: NodeReport) -> None:
        """Take a report of the launcher's; see :meth:`ServerReport.accept`."""
        self._report.accept(report)

    @default("ip")
    def _ip_default(self) -> str:
        return "127.0.0.1"

    def plan(self) -> LaunchPlan:
        """The plan for the launcher."""
        request = self.request
        resources = request.resources if request is not None else None
        rules = request.placement if request is not None else None
        claim = rules.claim if rules is not None else None
        return LaunchPlan(
            gpus=claim or (resources.gpus if resources is not None else None),
            cpus=resources.cpus if resources is not None else None,
            policy=(rules.policy if rules is not None else None) or self.placement_policy,
            memory_policy=(rules.memory_policy if rules is not None else None) or self.memory_policy,
            port_range=request.port_range if request is not None else None,
            topology_file=self.topology_file or None,
            deadline=self.observe_timeout,
            claim=self.claim_folder if claim else None,
            usage_interval=self.usage_interval,
        )

    def get_env(self) -> dict[str, str]:
        """The server's environment, with the profile's variables."""
        env: dict[str, str] = super().get_env()
        if self.request is not None:
            env.update(self.request.environment.variables)
        return env

    async def start(self) -> tuple[str, int]:
        """Start the launcher, wait for its report and the server, return where it listens."""
        self._report.forget()
        self.usage.forget()
        try:
            require_registration()
            checked_server_name(self.name)
            await self._launch()
        except GPUSpawnerError as error:
            raise spawn_failure(error, server=self._log_name, contact=contact_of(self)) from error
        self._state.store_soon()
        await self._until_ready()
        self._report.hand_over()
        if not await self._noted(TO_START):
            raise database_away()
        self.port = self.reported_port
        return self._report.address, self.port

    async def _launch(self) -> None:
        if self.as_hub_account:
            checked_user_name(self.user.name)
        else:
            await refuse_root(self.user.name)
            await account_of(self.user.name)
        given = self.cmd
        command = self.request.command if self.request is not None else None
        plan = self.plan().dumps()
        try:
            self.cmd = [sys.executable, "-I", str(LAUNCHER.path()), "--plan", plan, "--", *(command or given)]
            await super().start()
        except (OSError, subprocess.SubprocessError) as error:
            raise ConfigError(
                f"The server of {self.user.name} could not be started on the hub's machine: {error}.",
                where="c.GPULocalSpawner",
                hint="The hub must be root to start servers as their users.",
            ) from error
        finally:
            self.cmd = given

    async def _until_ready(self) -> None:
        await first_of(self._arrive(), self._until_ended())

    async def _arrive(self) -> None:
        await self._report.reported.wait()
        self._report.address = self.ip or "127.0.0.1"
        await first_of(self._listens(), asyncio.sleep(self.http_timeout))
        if not self.reported_port:
            problems = self.placement.problems[-1:] if self._report.port_taken and self.placement is not None else ()
            for_admin = f"The server on the hub's machine did not listen on its port within {self.http_timeout} s."
            for_admin = " ".join((for_admin, *problems))
            self.log.error("%s", for_admin)
            what = wait.UNANSWERED.format(time=wait.span(self.http_timeout))
            advice = wait.NO_ANSWER_ADVICE.format(contact=contact_of(self))
            ending = Ending(what, advice=advice, hint=for_admin)
            raise start_failed(what, reason="timeout", status_code=503, ending=ending)

    async def _listens(self) -> None:
        """Return when the server accepts connections at the port that was reported last."""
        while True:
            port = self.reported_port
            if port:
                await first_of(connected(self._report.address, port), self._another_port(port))
                if port == self.reported_port:
                    return
            else:
                await self._another_port(port)

    async def _another_port(self, port: int) -> None:
        while port == self.reported_port:  # noqa: ASYNC110 - one task, and a report comes once or twice
            await asyncio.sleep(0.05)

    async def _until_ended(self) -> None:
        while (status := await self.poll()) is None:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.3)
        raise start_failed(
            f"The server on the hub's machine ended before it was ready, with exit code {status}. See the hub's log.",
            reason="process_ended",
        )

    async def poll(self) -> int | None:
        """None while the process runs, or while the hub cannot note its end; else its exit code, 0 if unknown."""
        return await status_or_running(self._status(), name=self._log_name, log=self.log)

    async def _status(self) -> int | None:
        status: int | None = 0
        if self.proc is not None:
            status = self.proc.poll()
        elif self.pid and await self._signal(0):
            status = None
        return status if status is None or await self._noted(TO_TELL) else None

    async def stop(self, now: bool = False) -> None:  # noqa: FBT001, FBT002 - JupyterHub's signature
        """End the process, and wait until the hub can note it."""
        await super().stop(now=now)
        await self._noted(TO_STOP)

    async def _noted(self, timeout: float) -> bool:
        """Whether the database takes changes within ``timeout`` seconds; the wrapper of a child asks that itself."""
        return self.wrapper is not None or await takes_changes(self.orm_spawner, timeout)

    async def progress(self) -> Any:
        """Two events: the start, and the report."""
        yield {"progress": 20, "message": "Starting on the hub's own machine."}
        await self._report.reported.wait()
        yield {"progress": 80, "message": "Bound and reported. The server is starting."}

    def make_preexec_fn(self, name: str) -> Any:
        """What runs between fork and exec: become the user, or go to the home of the hub's account."""
        if not self.as_hub_account:
            return super().make_preexec_fn(name)
        home = self._home()

        def enter_home() -> None:
            os.makedirs(home, mode=0o700, exist_ok=True)  # noqa: PTH103 - between fork and exec, as little as can be
            os.chdir(home)

        return enter_home

    def user_env(self, env: dict[str, str]) -> dict[str, str]:
        """USER, HOME and SHELL of the account that the server runs as."""
        if not self.as_hub_account:
            of_account: dict[str, str] = super().user_env(env)
            return of_account
        return {**env, "USER": self.user.name, "HOME": self._home(), "SHELL": "/bin/bash"}

    async def move_certs(self, paths: dict[str, str]) -> dict[str, str]:
        """Move the certificates to the user; for the hub's own account they stay where they are."""
        return paths if self.as_hub_account else await super().move_certs(paths)

    def _home(self) -> str:
        return self.home_dir_template.replace("{username}", self.user.name)

    def load_state(self, state: dict[str, Any]) -> None:
        """The process id and the report."""
        super().load_state(state)
        self._report.load(state)

    def get_state(self) -> dict[str, Any]:
        """The process id and the report."""
        return {**super().get_state(), **self._report.to_state()}

    def clear_state(self) -> None:
        """Forget process and report."""
        super().clear_state()
        self._report.forget()
        self.usage.forget()
