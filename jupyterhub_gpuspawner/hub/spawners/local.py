"""Servers on the hub's own machine: the same launcher, the same binding, the same report."""

from __future__ import annotations

import asyncio
import atexit
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyterhub.spawner import LocalProcessSpawner
from traitlets import Bool, Enum, Unicode, default

from jupyterhub_gpuspawner.batch.launcher import launcher_archive
from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError
from jupyterhub_gpuspawner.hub import named
from jupyterhub_gpuspawner.hub.ending.failure import database_away, spawn_failure, start_failed
from jupyterhub_gpuspawner.hub.jupyterhub_compat import UserOptions, checked_server_name
from jupyterhub_gpuspawner.hub.report.node_report import ReportedPlacement
from jupyterhub_gpuspawner.hub.site.account import account_of, refuse_root
from jupyterhub_gpuspawner.hub.site.bounded import Folder, Seconds
from jupyterhub_gpuspawner.hub.site.database import TO_START, TO_STOP, TO_TELL, LogName
from jupyterhub_gpuspawner.hub.site.slurm_settings import SHORTEST_LOOK
from jupyterhub_gpuspawner.hub.start.waiting import connected, first_of
from jupyterhub_gpuspawner.placement.policies import MEMORY_POLICIES, POLICIES
from jupyterhub_gpuspawner.profiles.placement_rules import CLAIM_FOLDER
from jupyterhub_gpuspawner.slurm.run_as import checked_user_name
from jupyterhub_gpuspawner.wire.documents import DEADLINE_LIMIT, LaunchPlan

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.profiles.resolve import JobRequest


class LauncherFile:
    """The launcher as a file that every user may read and only the hub may write; made when it is first needed.

    A cleaner of temporary folders may take it from a hub that runs for weeks. Then the next start makes another one.
    Until then the folder is locked (flock(2)), which systemd-tmpfiles(8) respects, and each start sets its times to
    now, for cleaners that go by age. Inodes are compared before it is used: once it is gone, any user may make one of
    the same name.
    """

    def __init__(self) -> None:
        self._path: Path | None = None
        self._folder = self._file = -1

    def path(self) -> Path:
        """Where it is now; raises OSError where it cannot be made."""
        if self._path is None or not self._is_there(self._path):
            self.remove()
            self._path = self._make()
        return self._path

    def _make(self) -> Path:
        folder = _new_folder()
        path = folder / "launch.pyz"
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._folder, fcntl.LOCK_SH)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        with os.fdopen(os.dup(self._file), "wb") as file:
            file.write(launcher_archive())
        path.chmod(0o644)
        folder.chmod(0o755)
        return path

    def _is_there(self, path: Path) -> bool:
        try:
            for descriptor, place in ((self._folder, path.parent), (self._file, path)):
                os.utime(descriptor)
                if not os.path.samestat(os.fstat(descriptor), os.lstat(place)):
                    return False
            return os.fstat(self._file).st_size == len(launcher_archive())
        except OSError:
            return False

    def remove(self) -> None:
        """Remove what is left of it, if that is ours."""
        if self._path is not None and self._folder >= 0:
            with suppress(OSError):
                if os.path.samestat(os.fstat(self._folder), os.lstat(self._path.parent)):
                    shutil.rmtree(self._path.parent, ignore_errors=True)
        for descriptor in (self._folder, self._file):
            if descriptor >= 0:
                os.close(descriptor)
        self._path, self._folder, self._file = None, -1, -1


def _new_folder() -> Path:
    """In TMPDIR, or where that is gone in one of the usual places; raises OSError."""
    for place in (tempfile.gettempdir(), "/tmp"):  # noqa: S108 - mkdtemp makes a folder that was not there
        with suppress(OSError):
            return Path(tempfile.mkdtemp(prefix="gpuspawner-launcher-", dir=place))
    return Path(tempfile.mkdtemp(prefix="gpuspawner-launcher-", dir="/var/tmp"))


LAUNCHER = LauncherFile()
"""Of this hub."""
atexit.register(LAUNCHER.remove)


class GPULocalSpawner(LogName, ReportedPlacement, LocalProcessSpawner):
    """Starts servers as processes on the hub's own machine, bound and reported like a job's."""

    as_hub_account = Bool(
        default_value=False,
        config=True,
        help="Run every server as the hub's own account. For demos: it keeps no user from another's files.",
    )
    home_dir_template = Unicode(
        "/tmp/{username}",  # noqa: S108 - only with as_hub_account, and the admin's to set
        config=True,
        help="Home of each user where `as_hub_account` is set; `{username}` is replaced.",
    )
    placement_policy = Enum(POLICIES, "best-effort", config=True, help="Policy where the profile names none.")
    memory_policy = Enum(MEMORY_POLICIES, "preferred", config=True, help="Memory policy where the profile names none.")
    topology_file = Unicode("", config=True, help="A topology file that stands in for discovery.")
    claim_folder = Folder("/var/tmp", config=True, help=CLAIM_FOLDER)  # noqa: S108 - what is in it is guarded
    observe_timeout = Seconds(
        3.0,
        low=SHORTEST_LOOK,
        high=DEADLINE_LIMIT,
        config=True,
        help="Seconds that looking at the hardware may take.",
    )

    user_options = UserOptions()

    request: JobRequest | None = None
    if TYPE_CHECKING:
        cmd: list[str]

    @default("ip")
    def _ip_default(self) -> str:
        return "127.0.0.1"

    def plan(self) -> LaunchPlan:
        """What the launcher is told."""
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
        )

    def get_env(self) -> dict[str, str]:
        """The server's environment, with the profile's variables."""
        env: dict[str, str] = super().get_env()
        if self.request is not None:
            env.update(self.request.environment.variables)
        return env

    async def start(self) -> tuple[str, int]:
        """Start the launcher, wait for its report and the server, return where it listens."""
        self.forget_report()
        try:
            named.require()
            checked_server_name(self.name)
            await self._launch()
        except GPUSpawnerError as error:
            raise spawn_failure(error) from error
        self.store_soon()
        await self._until_ready()
        self.hand_over()
        if not await self.noted(TO_START):
            raise database_away()
        self.port = self.reported_port
        return self.address, self.port

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
        await self.reported.wait()
        self.address = self.ip or "127.0.0.1"
        await first_of(self._listens(), asyncio.sleep(self.http_timeout))
        if not self.reported_port:
            problems = self.placement.problems[-1:] if self._taken and self.placement is not None else ()
            told = f"The server on the hub's machine did not listen at its port within {self.http_timeout} s."
            raise start_failed(" ".join((told, *problems)), reason="timeout", status_code=503)

    async def _listens(self) -> None:
        """Return when the server accepts connections at the port that was reported last."""
        while True:
            port = self.reported_port
            if port:
                await first_of(connected(self.address, port), self._another_port(port))
                if port == self.reported_port:
                    return
            else:
                await self._another_port(port)

    async def _another_port(self, port: int) -> None:
        while port == self.reported_port:  # noqa: ASYNC110 - one task, and a report comes once or twice
            await asyncio.sleep(0.05)

    async def _until_ended(self) -> None:
        while (status := await self.poll()) is None:  # noqa: ASYNC110 - nothing tells of a process's end
            await asyncio.sleep(0.3)
        raise start_failed(
            f"The server on the hub's machine ended before it was ready, with exit code {status}. See the hub's log.",
            reason="process_ended",
        )

    async def poll(self) -> int | None:
        """None while the process lives or the hub cannot note its end, else its exit code; it keeps the state."""
        status: int | None = 0
        if self.proc is not None:
            status = self.proc.poll()
        elif self.pid and await self._signal(0):
            status = None
        return status if status is None or await self.noted(TO_TELL) else None

    async def stop(self, now: bool = False) -> None:  # noqa: FBT001, FBT002 - JupyterHub's signature
        """End the process, and wait until the hub can note it."""
        await super().stop(now=now)
        await self.noted(TO_STOP)

    async def progress(self) -> Any:
        """What happens, told once each."""
        yield {"progress": 20, "message": "Starting on the hub's own machine."}
        await self.reported.wait()
        yield {"progress": 80, "message": "Bound and reported. The server is starting."}

    def make_preexec_fn(self, name: str) -> Any:
        """Become the user, unless every server runs as the hub's own account."""
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
        """Certificates stay where they are for the hub's own account."""
        return paths if self.as_hub_account else await super().move_certs(paths)

    def _home(self) -> str:
        return self.home_dir_template.replace("{username}", self.user.name)

    def load_state(self, state: dict[str, Any]) -> None:
        """The process id and the report."""
        super().load_state(state)
        self.load_report(state)

    def get_state(self) -> dict[str, Any]:
        """The process id and the report."""
        return {**super().get_state(), **self.report_state()}

    def clear_state(self) -> None:
        """Forget process and report."""
        super().clear_state()
        self.forget_report()


named.watch(__name__)
