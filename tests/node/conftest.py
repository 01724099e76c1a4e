"""The launcher as a job runs it, the server that it becomes, and the stand-in NVML.

The stand-in is asked in a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from jupyterhub_gpuspawner.batch.carried import Carried, cargo_of
from jupyterhub_gpuspawner.batch.launcher import launcher_archive
from jupyterhub_gpuspawner.batch.script import render
from jupyterhub_gpuspawner.extension import installed
from jupyterhub_gpuspawner.placement.topology import from_document
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles
from jupyterhub_gpuspawner.profiles.resolve import JobRequest, resolve
from jupyterhub_gpuspawner.profiles.sections import ServerCommand
from jupyterhub_gpuspawner.wire.documents import LaunchPlan
from tests.standins import c_library, nvml
from tests.standins.report_hub import ReportHub

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from jupyterhub_gpuspawner.placement.topology import NodeTopology

_ASK = """
import json, os, sys
from jupyterhub_gpuspawner.node import nvml
from jupyterhub_gpuspawner.placement.topology import to_document
for text, nodes, devices in json.load(sys.stdin):
    with open(os.environ["STANDIN_NVML"], "w") as file:
        file.write(text)
    try:
        print(json.dumps(to_document(nvml.read(nodes, devices))), flush=True)
    except (OSError, nvml.NvmlError) as error:
        print(json.dumps(str(error)), flush=True)
"""


class StandinNvml:
    """The stand-in for NVML, asked by Python code in processes of their own."""

    def __init__(self, library: Path, folder: Path) -> None:
        self.machine = folder / "machine.txt"
        self.environ = {
            "LD_LIBRARY_PATH": str(library),
            "STANDIN_NVML": str(self.machine),
            "STANDIN_NVML_CLOCK": str(folder / "clock"),
        }

    def run(self, code: str, machine: str = "", document: object = None) -> list[Any]:
        """What ``code`` prints, as JSON in each line; ``document`` is its input, as JSON."""
        self.machine.write_text(machine)
        done = subprocess.run(
            [sys.executable, "-c", code],
            input=json.dumps(document),
            env=os.environ | self.environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return [json.loads(line) for line in done.stdout.splitlines()]


class AskNvml:
    """Our NVML reader over the stand-in, by the Python code of a process of its own."""

    def __init__(self, standin: StandinNvml, code: str) -> None:
        self.standin, self.code = standin, code

    def __call__(self, *texts: str, nodes: Sequence[int] = (), devices: Sequence[str] = ()) -> list[NodeTopology]:
        """Serve each text in turn; returns what our reader makes of it."""
        return [from_document(answer) for answer in self.answers(*texts, nodes=nodes, devices=devices)]

    def answers(self, *texts: str, nodes: Sequence[int] = (), devices: Sequence[str] = ()) -> list[Any]:
        """The same as documents; a text says why NVML is not available."""
        return self.standin.run(self.code, document=[[text, list(nodes), list(devices)] for text in texts])


@pytest.fixture(scope="session")
def nvml_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the stand-in, for ``LD_LIBRARY_PATH``."""
    if c_library.compiler() is None:
        pytest.skip("no C compiler to build the stand-in NVML with")
    return nvml.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def ask_nvml(nvml_folder: Path) -> AskNvml:
    """Our NVML reader over the stand-in."""
    return AskNvml(StandinNvml(nvml_folder, nvml_folder), _ASK)


@pytest.fixture
def standin(nvml_folder: Path, tmp_path: Path) -> StandinNvml:
    return StandinNvml(nvml_folder, tmp_path)


@pytest.fixture
def hub() -> Iterator[ReportHub]:
    with ReportHub() as server:
        yield server


@pytest.fixture
def own_descriptors() -> Iterator[None]:
    """What this process keeps open across exec, by descriptors from 100 on, is closed with the test."""
    before = set(Path("/proc/self/fd").iterdir())
    yield
    for path in set(Path("/proc/self/fd").iterdir()) - before:
        if int(path.name) >= 100:
            os.close(int(path.name))


def all_carried() -> tuple[Carried, ...]:
    """What all extensions that are installed add to the launcher."""
    return tuple(extension.load(extension.launcher) for extension in installed() if extension.launcher)


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The launcher."""
    path = tmp_path_factory.mktemp("launcher") / "main.pyz"
    path.write_bytes(launcher_archive(all_carried()))
    return path


def dies(pid: int) -> bool:
    """True if the process ends within some seconds, a zombie of a process that does not wait for it included."""
    ends_at = time.monotonic() + 10
    while time.monotonic() < ends_at:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


def request_of(document: Mapping[str, Any]) -> JobRequest:
    """What Ada asks for with a profile that has these fields."""
    profiles = parse_profiles([{"display_name": "P", **document}], name="c.profiles")
    return resolve(profiles, {}, username="ada", groups=(), server_name="", now=datetime.now(timezone.utc))


def job_script(command: Sequence[str], setup: str = "", carried: Sequence[Carried] = ()) -> str:
    """The script of a job that runs the launcher and ``command``.

    ``setup``: the profile's own shell lines; ``carried``: what extensions add, which read no settings.
    """
    request = request_of({"environment": {"setup": setup}} if setup else {})
    cargo = cargo_of(request, carried, {})
    names = {"tag": "t", "log_path": "/dev/null", "job_name": "j", "chdir": "/"}
    launcher, plan = launcher_archive(cargo.carried), cargo.on(LaunchPlan())
    return render(
        request, launcher=launcher, plan=plan, before_server=cargo.lines, command=ServerCommand(tuple(command)), **names
    )


_SERVER = """
import os, socket, time
url = os.environ["JUPYTERHUB_SERVICE_URL"]
server = socket.create_server(("127.0.0.1", int(url.split(":")[2].split("/")[0])))
print(url, flush=True)
time.sleep(60)
"""


class LaunchedServer:
    """A launcher that became a server, with the process that it left beside it."""

    def __init__(self, archive: Path, environ: Mapping[str, str], plan: LaunchPlan) -> None:
        self.archive = str(archive)
        self.process = subprocess.Popen(
            [sys.executable, self.archive, "--plan", plan.dumps(), "--", sys.executable, "-c", _SERVER],
            env={"PATH": os.environ["PATH"], **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def url(self) -> str:
        """Its URL, once it listens."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def beside(self) -> list[psutil.Process]:
        """Processes of the launcher that are not the server."""
        return [
            process
            for process in psutil.process_iter(["cmdline"])
            if self.archive in (process.info["cmdline"] or []) and process.pid != self.process.pid
        ]


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[Callable[..., LaunchedServer]]:
    """Start a server with this environment, and these settings of its plan."""
    archive = tmp_path / "launch.pyz"
    archive.write_bytes(launcher_archive(all_carried()))
    servers: list[LaunchedServer] = []

    def launch(environ: Mapping[str, str], **plan: Any) -> LaunchedServer:
        servers.append(LaunchedServer(archive, environ, LaunchPlan(**plan)))
        return servers[-1]

    yield launch
    for server in servers:
        server.process.kill()
        server.process.communicate()
