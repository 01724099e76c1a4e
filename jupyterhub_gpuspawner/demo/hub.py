"""A JupyterHub process that is started, used over REST and stopped, for the demo and the tests."""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import requests
from typing_extensions import Self

from jupyterhub_gpuspawner.demo.sign_in import LINK_PATH
from jupyterhub_gpuspawner.demo.slurm_cluster import free_ports
from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError
from jupyterhub_gpuspawner.node.child import has_variable

CONFIG = Path(__file__).parent / "jupyterhub_config.py"
SINGLEUSER = Path(sys.executable).parent / "jupyterhub-singleuser"


_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def _end_with_parent() -> None:
    """Have the kernel send the hub a SIGTERM when its parent ends, for whatever reason (prctl(2), Linux)."""
    if hasattr(_LIBC, "prctl"):
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


class HubFailed(GPUSpawnerError):
    """The hub did not start; the message ends with the last lines of its log."""


class HubUnreachable(HubFailed):
    """The hub runs and answers, but not through its proxy: another program has the proxy's port."""


PROXY_SECONDS = 15.0
"""How long a hub that answers itself may take to answer through its proxy."""


@dataclass
class HubProcess:
    """A JupyterHub and its proxy in their own folder; a context manager that starts and stops them."""

    folder: Path
    config: Path = CONFIG
    environment: Mapping[str, str] = field(default_factory=dict)
    """Additional environment variables for the hub, such as SLURM_CONF."""
    port: int = 0
    """The public port; 0 picks a free one."""
    arguments: Sequence[str] = ()
    prefix: Sequence[str] = ()
    """Words before the hub's command that run it as another user. They must exec the command."""
    token: str = field(default_factory=lambda: secrets.token_hex(16))
    password: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    people: Sequence[str] = ()
    """The names that may sign in with the password; empty: any name."""
    link_key: str = ""
    """The key of :attr:`link`; empty: there is none."""
    account: str = ""
    """The account that servers run as, if it is not the hub's."""
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._choose_ports(())
        self.proxy_pid_file = self.folder / "proxy.pid"
        self.log = self.folder / "hub.log"

    @property
    def link(self) -> str:
        """An address that signs in once."""
        return f"{self.url}/hub{LINK_PATH}#{self.link_key}"

    def _choose_ports(self, but: Sequence[int]) -> None:
        free = [port for port in free_ports(3 + len(but)) if port not in but]
        self.ports = (self.port or free[0], free[1], free[2])
        self.url = f"http://127.0.0.1:{self.ports[0]}"

    def start(self, *, timeout: float = 60.0) -> None:
        """Start the hub and wait until it answers; raises ConfigError, or HubFailed with the end of the log.

        Another program may take one of the free ports before the hub does, and may have left it again by the time that
        the start has failed: the first start is tried once more, with others, if the hub ran and did not answer.
        """
        first = self.process is None and self._proxy() is None
        if first and self._used_ports():
            self._choose_ports(self.ports)
        try:
            self._start(timeout)
        except HubFailed as error:
            if not first or not (isinstance(error, HubUnreachable) or self._used_ports()):
                raise
            self._choose_ports(self.ports)
            self._start(timeout)

    def _start(self, timeout: float) -> None:
        if shutil.which("configurable-http-proxy", path=self._environment()["PATH"]) is None:
            raise ConfigError(
                "configurable-http-proxy is not on the PATH.", hint="Install it: npm install -g configurable-http-proxy"
            )
        if self._proxy() is None:  # otherwise the hub itself ends the proxy that a killed hub left behind
            for port, error in self._used_ports().items():
                raise ConfigError(
                    f"Port {port} of 127.0.0.1 is not available: {error.strerror}.",
                    hint="Choose another one with --port, or 0 for a free one.",
                ) from error
        self.log.touch(mode=0o600)
        with self.log.open("ab") as log:
            self.process = self._run(log)
        deadline = time.monotonic() + timeout
        unreachable_at = None
        while not self.answers():
            now = time.monotonic()
            unreachable_at = (unreachable_at or now + PROXY_SECONDS) if self._answers_directly() else None
            ended = self.process.poll() is not None
            unreachable = not ended and unreachable_at is not None and now > unreachable_at
            if ended or unreachable or now > deadline:
                self.stop()
                failed = HubUnreachable if unreachable else HubFailed
                raise failed(f"The hub did not start. The end of {self.log}:\n{self.log_end()}")
            time.sleep(0.2)

    def _arguments(self) -> list[str]:
        return ["-f", str(self.config), *self.arguments]

    def _run(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        """A process in a session of its own that runs JupyterHub and writes into ``log``; it ends with this one."""
        return subprocess.Popen(
            [*self.prefix, sys.executable, "-m", "jupyterhub", *self._arguments()],
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=_end_with_parent,  # noqa: PLW1509 - one call to the kernel, prepared before the fork
        )

    def restart(self) -> None:
        """Kill the hub with SIGKILL, and start it again with the same database."""
        self.kill()
        self.start()

    def _used_ports(self) -> dict[int, OSError]:
        """Those of this hub's ports that another program has, with the kernel's answer."""
        errors = {}
        for port in self.ports:
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError as error:
                    errors[port] = error
        return errors

    def _proxy(self) -> int | None:
        """The process id of this hub's proxy, if it is alive."""
        try:
            pid = int(self.proxy_pid_file.read_text())
            command = Path("/proc", str(pid), "cmdline").read_bytes()
        except (OSError, ValueError):
            return None
        own = str(self.ports[2]).encode() in command.split(b"\0")  # another hub's may have got the same id
        return pid if own and b"configurable-http-proxy" in command else None

    def _environment(self) -> dict[str, str]:
        inherited = {key: os.environ[key] for key in ("PATH", "LANG", "TERM", "TZ") if key in os.environ}
        path = f"{Path(sys.executable).parent}:{inherited.get('PATH', '/usr/bin:/bin')}"
        return {**inherited, **self._demo_variables(), "HOME": str(self.folder), "PATH": path, **self.environment}

    def _demo_variables(self) -> dict[str, str]:
        """The environment variables that the demo's configuration reads; the kernel shows them to its account alone."""
        return {
            "GPUSPAWNER_DEMO_FOLDER": str(self.folder),
            "GPUSPAWNER_DEMO_PORTS": ",".join(map(str, self.ports)),
            "GPUSPAWNER_DEMO_TOKEN": self.token,
            "GPUSPAWNER_DEMO_PASSWORD": self.password,
            "GPUSPAWNER_DEMO_LINK_KEY": self.link_key,
            "GPUSPAWNER_DEMO_PEOPLE": ",".join(self.people),
            "GPUSPAWNER_DEMO_ACCOUNT": self.account,
            "GPUSPAWNER_DEMO_SINGLEUSER": str(SINGLEUSER),
        }

    def write_configuration(self) -> Path:
        """Write a configuration file for ``gpuspawner check`` and ``show``, without secrets, and return its path."""
        variables = {
            **self._demo_variables(),
            "GPUSPAWNER_DEMO_TOKEN": "",
            "GPUSPAWNER_DEMO_PASSWORD": "",
            "GPUSPAWNER_DEMO_LINK_KEY": "",
            **self.environment,
        }
        path = self.folder / "jupyterhub_config.py"
        path.write_text(
            "# The configuration of this demo's hub, for gpuspawner check and gpuspawner show.\n"
            f"import os\n\nos.environ.update({variables!r})\nload_subconfig({str(self.config)!r})  # noqa: F821\n"
        )
        return path

    def answers(self) -> bool:
        """Whether the hub answers, both directly and through its proxy."""
        return self._answers_directly() and _is_healthy(self.url)

    def _answers_directly(self) -> bool:
        return _is_healthy(f"http://127.0.0.1:{self.ports[1]}")

    def log_end(self, lines: int = 20) -> str:
        """The last lines of the hub's log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def stop(self, *, timeout: float = 60.0) -> None:
        """Ask the hub to end, which stops its servers first, and make sure that hub and proxy are gone."""
        if self.process is not None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout)
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None
        self._end_proxy()

    def _end_proxy(self) -> None:
        """End the proxy of a hub that was killed; it is in a process group of its own."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            ends_at = time.monotonic() + 5.0
            while (pid := self._proxy()) is not None and time.monotonic() < ends_at:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
                time.sleep(0.1)

    def end_servers(self) -> None:
        """End the servers that a hub which was killed has left on this machine, with what these have started."""
        ours = f"JUPYTERHUB_API_URL=http://127.0.0.1:{self.ports[1]}/hub/api"
        for number in (signal.SIGTERM, signal.SIGKILL):
            ends_at = time.monotonic() + 5.0
            while time.monotonic() < ends_at:
                left = [
                    pid for pid in (int(path.name) for path in Path("/proc").glob("[0-9]*")) if has_variable(pid, ours)
                ]
                if not left:
                    return
                for pid in left:
                    with suppress(ProcessLookupError):
                        os.kill(pid, number)
                time.sleep(0.1)

    def kill(self) -> None:
        """Kill the hub with SIGKILL; its proxy and its servers keep running."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # --- REST ------------------------------------------------------------------------------------

    def api(self, method: str, path: str, body: Any = None, *, token: str | None = None) -> requests.Response:
        """Call the hub's REST API and return the response."""
        return requests.request(
            method,
            f"{self.url}/hub/api{path}",
            json=body,
            headers={"Authorization": f"token {token or self.token}"},
            timeout=60,
        )

    def spawn(
        self, user: str, options: Mapping[str, Any], *, server: str = "", timeout: float = 120.0
    ) -> dict[str, Any]:
        """Start a server, wait until it is ready, and return its placement document. Raises HubFailed."""
        self.api("POST", f"/users/{user}")
        answer = self.api("POST", server_path(user, server), dict(options))
        if answer.status_code >= 400:
            raise HubFailed(f"{user}'s server was refused: {answer.json().get('message', answer.text)}")
        self.wait(user, server, ready=True, timeout=timeout)
        placement: dict[str, Any] = self.api("GET", f"/gpuspawner/placement/{user}/{server}".rstrip("/")).json()
        return placement

    def server(self, user: str, server: str = "") -> dict[str, Any] | None:
        """The hub's model of a server; None if it is not active."""
        model = self.api("GET", f"/users/{user}").json()
        active: dict[str, Any] | None = model.get("servers", {}).get(server)
        return active

    def wait(self, user: str, server: str = "", *, ready: bool, timeout: float = 120.0) -> None:
        """Wait until a server is ready or, with ``ready=False``, gone."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            model = self.server(user, server)
            if ready and model is not None and model["ready"]:
                return
            if not ready and (model is None or not (model["ready"] or model["pending"])):
                return
            if ready and model is None:
                break
            time.sleep(0.3)
        raise HubFailed(
            f"{user}'s server did not become {'ready' if ready else 'gone'}. The hub's log:\n{self.log_end()}"
        )

    def end(self, user: str, server: str = "") -> None:
        """Stop a server and wait until it is gone."""
        self.api("DELETE", server_path(user, server))
        self.wait(user, server, ready=False)


def server_path(user: str, server: str = "") -> str:
    return f"/users/{user}/servers/{server}" if server else f"/users/{user}/server"


def _is_healthy(url: str) -> bool:
    try:
        return requests.get(f"{url}/hub/health", timeout=2).ok
    except requests.RequestException:
        return False
