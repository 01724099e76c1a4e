"""What the other accounts of a machine get of a demo that runs on it: real accounts try, as they would."""

from __future__ import annotations

import json
import os
import pwd
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest

from jupyterhub_gpuspawner.demo.account import command_prefix, works
from jupyterhub_gpuspawner.demo.hub import HubProcess
from tests.fixtures.hubs import needs_proxy
from tests.hub.visitor import Visitor
from tests.waiting import wait_until

pytestmark = [pytest.mark.users, pytest.mark.slurm, pytest.mark.hub]

OTHER_ACCOUNT = Path(__file__).parents[1] / "standins" / "other_account.py"
NOTHING: dict[str, object] = {"signed in": [], "answered by ports": [], "files": [], "secrets": [], "step": ""}


@dataclass
class Demo:
    """``gpuspawner demo``, as it was started at a terminal."""

    process: subprocess.Popen[str]
    printed: str
    folder: Path
    by: str
    """The account that started it; empty: root."""

    @property
    def url(self) -> str:
        """The address of the hub."""
        return self._found(r"(http://127\.0\.0\.1:\d+),")

    @property
    def password(self) -> str:
        """The password."""
        return self._found(r"with the password\s+(\S+)")

    @property
    def key(self) -> str:
        """The link's secret."""
        return self._found(r"/hub/demo#(\S+)")

    @property
    def runs_servers_as(self) -> str:
        """The account of its servers."""
        return self.by or "nobody"

    def _found(self, pattern: str) -> str:
        found = re.search(pattern, self.printed)
        assert found is not None, self.printed
        return found[1]

    def processes(self) -> list[psutil.Process]:
        """All of its processes."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def ports(self) -> list[int]:
        """The ports on which it listens."""
        own = {process.pid for process in self.processes()}
        connections = [one for one in psutil.net_connections("tcp") if one.pid in own and one.status == "LISTEN"]
        return sorted({cast("Any", connection.laddr).port for connection in connections})

    def servers(self) -> dict[str, str]:
        """The owners of the processes of single-user servers, by the user's name in the hub."""
        owners = {}
        for process in self.processes():
            environment = process.environ()
            if "JUPYTERHUB_SERVICE_PREFIX" in environment:
                owners[environment["JUPYTERHUB_USER"]] = process.username()
        return owners

    def visitor(self, name: str) -> Visitor:
        """Somebody who has the password."""
        return Visitor(cast("HubProcess", SimpleNamespace(url=self.url, password=self.password)), name)


def start(*servers: tuple[Visitor, str]) -> None:
    """Start a server of a profile for each of them on the page, and wait until all are ready."""
    for visitor, profile in servers:
        visitor.click("/hub/spawn", profile=profile)

    def is_ready(visitor: Visitor) -> bool:
        model = visitor.session.get(f"{visitor.hub.url}/hub/api/user", headers=visitor.headers, timeout=60).json()
        return bool(model["servers"].get("", {}).get("ready"))

    wait_until(lambda: all(is_ready(visitor) for visitor, _ in servers), "the servers are ready", seconds=120)


@contextmanager
def running(by: str, folder: Path, servers: Mapping[str, str]) -> Iterator[Demo]:
    """A demo of this account with such servers, by user the name of the profile."""
    program = str(Path(sys.executable).with_name("gpuspawner"))
    command = [*command_prefix(by), program, "demo", "--empty", "--port", "0", "--folder"]
    process = subprocess.Popen([*command, str(folder)], cwd="/", stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        lines: list[str] = []
        while "Ctrl-C" not in "".join(lines):
            line = process.stderr.readline()
            assert line, "".join(lines)
            lines.append(line)
        demo = Demo(process, "".join(lines), folder, by)
        start(*((demo.visitor(name), profile) for name, profile in servers.items()))
        yield demo
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


@pytest.fixture(
    scope="module",
    params=[pytest.param("root", id="root"), pytest.param("a user", id="a user", marks=pytest.mark.nightly)],
)
def by(request: pytest.FixtureRequest, needs_slurm: None, two_users: tuple[str, str]) -> str:
    """The account that starts the demo; empty: root."""
    needs_proxy()
    by = "" if request.param == "root" else two_users[0]
    if not works(by or "nobody", sys.executable, "-c", "import jupyterhub_gpuspawner.demo.run"):
        pytest.skip(f"{by or 'nobody'} cannot read this clone")
    return by


def folder_for(by: str, public_folder: Path, name: str) -> Path:
    """A folder that is not there yet, in one that everybody can enter."""
    folder = public_folder / by / name
    folder.parent.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def demo(by: str, public_folder: Path) -> Iterator[Demo]:
    """A demo with a server of each kind."""
    with running(by, folder_for(by, public_folder, "demo"), {"ada": "local", "bob": "monitor"}) as demo:
        yield demo


@pytest.fixture(scope="module")
def attack(demo: Demo, two_users: tuple[str, str], public_copy: Callable[[Path], Path]) -> Callable[..., object]:
    """``attack(links=..., **sign_ins)``: what the other account gets, by :data:`NOTHING`'s keys."""

    def run(sign_ins: dict[str, dict[str, str]], links: dict[str, dict[str, str]]) -> object:
        question = {
            "url": demo.url,
            "folder": str(demo.folder),
            "ports": demo.ports(),
            "secrets": {"password": demo.password, "key": demo.key},
            "sign_ins": sign_ins,
            "links": links,
        }
        done = subprocess.run(
            [*command_prefix(two_users[1]), "/usr/bin/python3", str(public_copy(OTHER_ACCOUNT))],
            input=json.dumps(question),
            cwd="/",
            capture_output=True,
            text=True,
            check=True,
        )
        return json.loads(done.stdout)

    return run


def test_another_account_gets_nothing(demo: Demo, attack: Callable[..., object]) -> None:
    """Not by the password of earlier demos, nor by a guess; no port, file, process or step of Slurm helps."""
    sign_ins = {
        "the password of earlier demos": {"username": "ada", "password": "demo"},
        "a wrong one": {"username": "admin", "password": "wrong"},
        "none": {"username": "ada", "password": ""},
        "an administrator by the key of the link": {"username": "admin", "password": demo.key},
    }
    links = {"a wrong key": {"key": "wrong"}, "no key": {"key": ""}, "the password as key": {"key": demo.password}}

    assert attack(sign_ins, links) == NOTHING


def test_the_attacks_work_for_whoever_knows_the_secrets(demo: Demo, attack: Callable[..., object]) -> None:
    """So that it is not the attack that fails; the link works once, and names that are not the demo's are refused."""
    right = {"username": "ada", "password": demo.password}
    sign_ins = {"right": right, "unknown": {**right, "username": "eve"}, "root": {**right, "username": "root"}}
    links = {"the link": {"key": demo.key}, "again": {"key": demo.key}}

    assert attack(sign_ins, links) == {**NOTHING, "signed in": ["right", "the link"]}
    log = (demo.folder / "hub.log").read_text()
    assert [secret in log for secret in (demo.password, demo.key)] == [False, False]


def test_servers_are_never_of_root(demo: Demo) -> None:
    """Both the one on this machine and that of a job; the homes are theirs alone."""
    owners = demo.servers()
    home = (demo.folder / "homes" / "ada").stat()

    assert owners == {"ada": demo.runs_servers_as, "bob": demo.runs_servers_as}
    assert (pwd.getpwuid(home.st_uid).pw_name, home.st_mode & 0o777) == (demo.runs_servers_as, 0o700)


@pytest.mark.nightly
def test_nothing_is_left_at_its_end(by: str, public_folder: Path) -> None:
    """Not even the folder of a launcher whose job was killed before it could remove it, as by the kernel."""
    with running(by, folder_for(by, public_folder, "ended"), {"bob": "monitor"}) as demo:
        processes = demo.processes()
        launchers = {process.environ().get("GPUSPAWNER_LAUNCHER", "") for process in processes}
        folders = {Path(launcher).parent for launcher in launchers}
        (folder,) = [folder for folder in folders if folder.name.startswith("gpuspawner.")]
        words = {process: process.cmdline()[-1:] for process in processes}
        (script,) = [process for process, last in words.items() if last and "slurm_script" in last[0]]
        script.kill()

        os.kill(demo.process.pid, signal.SIGINT)
        demo.process.communicate(timeout=60)

    _, left = psutil.wait_procs(processes, timeout=20)  # until init has reaped those that lost their parent
    assert (demo.process.returncode, left) == (0, [])
    assert not folder.exists()


SERVE = Path(__file__).parents[2] / "scripts" / "serve_slurm.py"


def test_the_slurm_of_an_ordinary_user_runs_nothing_for_others(
    needs_slurm: None, two_users: tuple[str, str], public_folder: Path
) -> None:
    """Its slurmd can become nobody else: a step that another account asks for would run as that user."""
    own, other = two_users
    if not works(own, sys.executable, "-c", "import jupyterhub_gpuspawner.demo.slurm_cluster"):
        pytest.skip(f"{own} cannot read this clone")
    (public_folder / own).chmod(0o755)
    folder = public_folder / own / "slurm"
    command = [sys.executable, str(SERVE), str(folder)]

    def step(account: str) -> str:
        words = [*command_prefix(account), "timeout", "10", "srun", "id", "-un"]
        environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        done = subprocess.run(words, env=environment, cwd="/", capture_output=True, text=True, check=False)
        return done.stdout.strip()

    with subprocess.Popen([*command_prefix(own), *command], cwd="/", stdout=subprocess.PIPE, text=True) as slurm:
        try:
            assert slurm.stdout is not None
            assert "Slurm is running" in slurm.stdout.readline()
            assert (step(own), step(other)) == (own, "")
        finally:
            slurm.terminate()
