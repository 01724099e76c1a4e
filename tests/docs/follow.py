"""Follows the tutorials and the guide about the proxy on a fresh machine: ``python -m tests.docs.follow FOLDER ENV``.

It runs as root, in namespaces of its own.

The machine has a Slurm, an account ``ada`` with a password, and the virtual environment ENV in place of what the page
installs by pip and npm. Its folders that the page writes to are overlays, so that nothing remains. Each block of the
pages is done in its order: configuration is written where the page says, the unit is run as systemd would, and each
command is run as it stands there. The output is a JSON document with the commands, what the pages show and what they
said. FOLDER is an empty folder that every user may enter.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from configparser import RawConfigParser
from dataclasses import asdict, dataclass
from grp import getgrnam
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import requests
import websocket

from jupyterhub_gpuspawner.demo.slurm_cluster import DEMO_CLUSTER, PrivateSlurm
from tests.hub.visitor import Visitor
from tests.waiting import wait_until

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.demo.hub import HubProcess

ROOT = Path(__file__).parents[2]
OVERLAID = ("/etc", "/home", "/opt", "/usr/local", "/var/lib")
INSTALLED = Path("/opt/jupyterhub")
PROXY = "howto/network.md#Restart the hub without cutting connections"
PASSWORD = "correct horse battery staple"
_FENCE = re.compile(r"^(?P<indent> *)```(?P<kind>\w+)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Step:
    """A command of the page."""

    command: str
    shown: str
    """The output that the page shows."""
    output: str | None
    """The output, of which standard error is a part; None if something stood in for the command."""
    status: int


def section(page: str, title: str) -> str:
    """The section of a page with this title."""
    sections = (ROOT / "docs" / page).read_text("utf-8").split("\n## ")
    return next(text for text in sections if text.startswith(f"{title}\n"))


def blocks(page: str) -> Iterator[tuple[str, str]]:
    """The blocks of a page: their kinds and texts."""
    for block in _FENCE.finditer(page):
        yield block["kind"], textwrap.dedent(block["text"])


def commands(text: str) -> list[tuple[str, str]]:
    """The commands of a console block, each with the output that follows it; all have the prompt of the first."""
    prompt = re.escape(text[0])
    return re.findall(rf"^{prompt} (.+)\n((?:(?!{prompt} ).*\n)*)", text, re.MULTILINE)


def run(command: str, folder: Path) -> tuple[int, str]:
    """The exit status and the output of a line of shell."""
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": f"{INSTALLED}/bin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=300,
    )
    return done.returncode, done.stdout


def end_of(log: Path) -> str:
    """The last lines of the hub's log that are not about the questions asked here again and again."""
    lines = [
        line
        for file in (log, *Path("/home/ada").glob("*.log"))
        for line in file.read_text(errors="replace").splitlines()
    ]
    return "\n".join([line for line in lines if not re.search("/health|/api/status|errno|code:|syscall", line)][-40:])


class Hub:
    """A hub that the page starts, by a unit or by a command."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "hub.log"
        self.url = "http://127.0.0.1:8000"
        self._process: subprocess.Popen[bytes] | None = None
        self._start: Callable[[], subprocess.Popen[bytes]] | None = None

    def start(self, make: Callable[[], subprocess.Popen[bytes]]) -> None:
        """Start it, and wait until it answers."""
        self._start = make
        self._process = process = make()
        wait_until(
            lambda: process.poll() is not None or self.answers(),
            lambda: f"the hub does not answer; the log ends:\n{end_of(self.log)}",
            seconds=150,
        )
        assert process.poll() is None, self.log.read_text()

    def stop(self) -> None:
        """Stop it as systemd does."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)

    def restart(self) -> None:
        """Stop it and start it again."""
        self.stop()
        assert self._start is not None
        self.start(self._start)

    def answers(self) -> bool:
        """Whether it answers through its proxy."""
        try:
            return requests.get(f"{self.url}/hub/health", timeout=5).ok
        except requests.RequestException:
            return False

    def by_command(self, command: str, folder: Path) -> None:
        """Start it by a line of shell."""
        path = f"{INSTALLED}/bin:/usr/local/bin:/usr/bin:/bin"
        with self.log.open("ab") as log:
            self.start(
                lambda: subprocess.Popen(
                    ["sh", "-c", f"exec {command}"], cwd=folder, env={"PATH": path}, stdout=log, stderr=log
                )
            )

    def by_unit(self, file: Path) -> None:
        """Start it as systemd does."""
        self.start(lambda: start_unit(file, self.log))


def start_unit(file: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start a service as systemd does, as far as the unit's settings matter here (systemd.exec(5))."""
    unit = RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    for path in (file, *sorted(Path(f"{file}.d").glob("*.conf"))):
        unit.read_string(path.read_text("utf-8").replace("\\\n", " "))
    service = unit["Service"]
    account = pwd.getpwnam(service.get("User", "nobody"))  # the account of DynamicUser= exists only while it runs
    for kind, parent in (("StateDirectory", "/var/lib"), ("RuntimeDirectory", "/run")):
        if kind in service:
            folder = Path(parent, service[kind])
            folder.mkdir(mode=int(service[f"{kind}Mode"], 8), exist_ok=True)
            os.chown(folder, account.pw_uid, account.pw_gid)
    assignments = [service["Environment"]]
    variables = Path(service.get("EnvironmentFile", "-").removeprefix("-"))
    if variables.is_file():
        assignments += variables.read_text("utf-8").splitlines()
    with log.open("ab") as output:
        return subprocess.Popen(
            service["ExecStart"].split(),
            cwd=service.get("WorkingDirectory", "/"),
            env={
                "HOME": account.pw_dir,
                "USER": account.pw_name,
                "LANG": "C.UTF-8",
                **dict(line.split("=", 1) for line in assignments),
            },
            user=account.pw_uid,
            group=account.pw_gid,
            extra_groups=[getgrnam(name).gr_gid for name in service.get("SupplementaryGroups", "").split()],
            umask=int(service.get("UMask", "0022"), 8),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )


def read_passwords(unit: Path) -> None:
    """Choose the last of the three ways to sign in: nobody but PAM checks passwords on this machine."""
    unit.write_text(unit.read_text("utf-8").replace("#SupplementaryGroups=", "SupplementaryGroups="), "utf-8")


class Reader:
    """Somebody who follows one page."""

    def __init__(self, page: str, folder: Path, config: Path) -> None:
        self.page = section(*page.split("#")) if "#" in page else (ROOT / "docs" / page).read_text("utf-8")
        self.folder = folder
        self.config = config
        self.hub = Hub(folder)
        self.steps: list[Step] = []
        self.unit = Path("/etc/systemd/system/jupyterhub.service")
        self.stand_ins: dict[str, Callable[[str], None]] = {
            "sacctmgr ": lambda _: None,  # only for clusters that hide jobs, and this one has no accounting
            "apt-get install ": lambda _: None,
            "gpuspawner demo": lambda _: None,  # it has a test of its own
            "python3 -m venv /opt/jupyterhub": lambda _: None,  # the environment of the tests is mounted there
            "/opt/jupyterhub/bin/pip install ": lambda _: None,
            "pip install ": lambda _: None,
            "npm install ": lambda _: None,
            "systemctl daemon-reload": lambda _: None,  # there is no systemd in the namespaces
            "systemctl enable --now jupyterhub": lambda _: self.hub.by_unit(self.unit),
            "journalctl ": lambda _: None,
            "ansible-playbook ": lambda _: None,  # the role has a test of its own
            "jupyterhub -f ": lambda command: self.hub.by_command(command, self.config.parent),
        }
        """What is done instead of a command, by its beginning."""
        self.before: dict[str, Callable[[], None]] = {'squeue -o "%i %u %T %j"': self.start_a_notebook}
        """What the page's text says before a command."""

    def follow(self) -> None:
        """Do what the page says."""
        for kind, text in blocks(self.page):
            if kind == "python":
                self.config.parent.mkdir(exist_ok=True)
                with self.config.open("a") as file:
                    file.write(text)
            elif kind == "console":
                for command, shown in commands(text):
                    self.step(command, shown)

    def step(self, command: str, shown: str) -> None:
        """Run a command, or what stands in for it."""
        self.before.get(command, lambda: None)()
        if "'16Q'" in shown:  # the page shows what the command says to a mistake
            right = self.config.read_text()
            self.config.write_text(right.replace('"16G"', '"16Q"'))
            self.steps.append(Step(command, shown, run(command, self.folder)[1], 0))
            self.config.write_text(right)
            return
        instead = next((act for beginning, act in self.stand_ins.items() if command.startswith(beginning)), None)
        if instead is not None:
            instead(command)
            self.steps.append(Step(command, shown, None, 0))
            return
        status, output = run(command, self.folder)
        self.steps.append(Step(command, shown, output, status))

    @property
    def account(self) -> str:
        """The account of the hub's process, as its database has it."""
        return Path("/var/lib/jupyterhub/jupyterhub.sqlite").owner()

    # --- what is done in a browser --------------------------------------------------------------

    def start_a_notebook(self) -> None:
        """Sign in as ada, and start *One GPU*."""
        self.visitor = Visitor(cast("HubProcess", SimpleNamespace(url=self.hub.url, password=PASSWORD)), "ada")
        self.visitor.start({"profile": "one-gpu"})
        wait_until(
            self.serves,
            lambda: f"the notebook's server does not answer; the log ends:\n{end_of(self.hub.log)}",
            seconds=150,
        )

    def serves(self) -> bool:
        """Whether ada's server answers."""
        answer = self.visitor.session.get(f"{self.hub.url}/user/ada/api/status", timeout=30)
        if answer.status_code == 403:  # it runs, and has yet to ask the hub who this is, as it does for pages
            self.visitor.session.get(f"{self.hub.url}/user/ada/", timeout=60)
        return answer.ok and "started" in answer.text

    def started(self) -> str:
        """Since when ada's server has been running."""
        since: str = self.visitor.session.get(f"{self.hub.url}/user/ada/api/status", timeout=30).json()["started"]
        return since

    def connect(self) -> Any:
        """Open a WebSocket to ada's server, as JupyterLab does."""
        cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in self.visitor.session.cookies)
        url = self.hub.url.replace("http:", "ws:")
        return websocket.create_connection(f"{url}/user/ada/api/events/subscribe", cookie=cookies, timeout=60)

    def stop_it(self) -> None:
        """Stop the server as the home page does."""
        token = next(cookie.value or "" for cookie in self.visitor.session.cookies if cookie.name == "_xsrf")
        self.visitor.session.delete(
            f"{self.hub.url}/hub/api/users/ada/server",
            headers={"X-XSRFToken": token, "Referer": f"{self.hub.url}/hub/home"},
            timeout=60,
        )


def prepare(folder: Path, environment: Path) -> None:
    """Make this host a machine named jupyter. All of it ends with the namespaces."""
    proxy = shutil.which("configurable-http-proxy")
    quietly = ["hostname jupyter", "ip link set lo up", f"mount -t tmpfs -o mode=755 none {folder}"]
    for number, path in enumerate(OVERLAID):
        work = f"{folder}/overlay{number}"
        quietly.append(f"mkdir -p {work}/upper {work}/work && chmod 755 {work}/upper")
        options = f"lowerdir={path},upperdir={work}/upper,workdir={work}/work"
        quietly.append(f"mount -t overlay overlay -o {options} {path}")
    quietly += [
        f"mkdir -p {INSTALLED} && mount --bind {environment} {INSTALLED}",
        f"ln -sfn {os.path.realpath(proxy or '')} /usr/local/bin/configurable-http-proxy",
        "echo 127.0.0.1 jupyter >>/etc/hosts",
        "ip addr add 10.0.0.10/32 dev lo",
    ]
    for line in quietly:
        done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{line}: {done.stderr.strip()}")


def cluster(folder: Path) -> PrivateSlurm:
    """The machine's Slurm, which is not started yet; with it there are a user and what servers need."""
    Path("/usr/local/bin/jupyterhub-singleuser").symlink_to(INSTALLED / "bin/jupyterhub-singleuser")  # a shared folder
    for command, password in (
        (["useradd", "--create-home", "--shell", "/bin/bash", "ada"], ""),
        (["chpasswd"], PASSWORD),
    ):
        subprocess.run(command, input=f"ada:{password}", text=True, check=True, capture_output=True)
    slurm = PrivateSlurm(DEMO_CLUSTER, folder / "slurm")
    # A machine of a cluster has a Slurm of its own. /etc is an overlay here, and a link there is removed, not followed.
    subprocess.run(["rm", "-rf", "/etc/slurm"], check=True)
    Path("/etc/slurm").mkdir()
    Path("/etc/slurm/slurm.conf").symlink_to(slurm.folder / "slurm.conf")
    return slurm


def main(folder: Path, environment: Path) -> None:
    """Follow the pages, restart the hub while a notebook runs, stop it, and print what was seen.

    The last restart comes after the guide about a proxy with a service of its own, while a WebSocket is open.
    """
    subprocess.run(["mount", "-t", "proc", "proc", "/proc"], check=True)
    prepare(folder, environment)
    with cluster(folder) as slurm:
        root = folder / "root"
        root.mkdir()
        first = Reader("tutorial/first-hub.md", root, root / "jupyterhub_config.py")
        first.follow()
        first.hub.stop()

        own = Reader("tutorial/hub-without-root.md", root, Path("/etc/jupyterhub/jupyterhub_config.py"))
        own.config.parent.mkdir()
        own.config.write_text("c.Spawner.http_timeout = 120  # this machine may be busy\n")
        own.before["systemctl daemon-reload"] = lambda: read_passwords(own.unit)
        own.follow()
        since = own.started()
        own.hub.restart()
        wait_until(
            own.serves, lambda: f"the notebook's server is lost; the log ends:\n{end_of(own.hub.log)}", seconds=150
        )
        survived = own.started() == since

        proxy = Reader(PROXY, root, own.config)
        unit = own.unit.with_name("jupyterhub-proxy.service")
        proxy.stand_ins = {
            "systemctl daemon-reload": lambda _: None,
            "systemctl stop jupyterhub": lambda _: own.hub.stop(),
            "systemctl enable --now jupyterhub-proxy": lambda _: proxies.append(start_unit(unit, own.hub.log)),
            "systemctl start jupyterhub": lambda _: own.hub.by_unit(own.unit),
        }
        proxies: list[subprocess.Popen[bytes]] = []
        proxy.follow()
        wait_until(
            own.serves, lambda: f"the notebook's server is lost; the log ends:\n{end_of(own.hub.log)}", seconds=150
        )
        connection = own.connect()
        own.hub.restart()
        connection.ping()
        connected = connection.recv_data_frame(control_frame=True)[0] == websocket.ABNF.OPCODE_PONG
        own.stop_it()
        wait_until(
            lambda: slurm.run("squeue", "-h") == "",
            lambda: f"the job goes on; the log ends:\n{end_of(own.hub.log)}",
            seconds=150,
        )
        own.hub.stop()
        for process in proxies:
            process.terminate()
        steps = [asdict(step) for step in (*first.steps, *own.steps, *proxy.steps)]
        print(json.dumps({"kept": survived, "connected": connected, "hub": own.account, "steps": steps}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
