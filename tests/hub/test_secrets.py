"""Slurm's commands get none of the hub's secrets, and no token appears where others can read it."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import requests
from typing_extensions import Self

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.fixtures.hubs import IN_THE_END, LIGHT, StartHub
from tests.standins.slurm_commands import COMMANDS, SeenCommands

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

SECRETS = {
    "JUPYTERHUB_CRYPT_KEY": "c0" * 32,
    "CONFIGPROXY_AUTH_TOKEN": "the-proxys-own-token",
    "OAUTH_CLIENT_SECRET": "the-oauth-secret",
    "AWS_SECRET_ACCESS_KEY": "the-clouds-key",
    "MYSQL_PWD": "the-databases-password",
}
FAILS = """
- display_name: Fails
  slug: fails
  slurm: {partition: batch, cpus: 1, memory: 100M, time: "0:10:00"}
  environment: {setup: "env | grep _API_TOKEN; exit 3"}
  command: [/bin/true]
"""
NOT_OURS = r"_|PWD|SHLVL|OLDPWD"
"""Variables that a shell sets itself."""


@pytest.fixture(scope="module")
def commands(slurm_cluster: PrivateSlurm, tmp_path_factory: pytest.TempPathFactory) -> SeenCommands:
    """Slurm's commands, wrapped to record each call."""
    return SeenCommands(tmp_path_factory.mktemp("commands"), slurm_cluster.bin_dir)


@pytest.fixture(scope="module")
def hub(start_light_hub: StartHub, commands: SeenCommands) -> HubProcess:
    """A hub with secrets in its environment, which logs at DEBUG level."""
    lines = f"c.GPUSlurmSpawner.slurm_bin_dir = {str(commands.bin)!r}\nc.JupyterHub.log_level = 'DEBUG'\n{IN_THE_END}"
    return start_light_hub(lines=lines, profiles=LIGHT + FAILS, **SECRETS)


class CommandLines:
    """Samples the command lines of all processes on this host."""

    def __init__(self) -> None:
        self.command_lines: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample)

    def _sample(self) -> None:
        while not self._stop.wait(0.02):
            for pid in psutil.pids():
                try:
                    self.command_lines.add(Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace"))
                except OSError:
                    continue

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


@pytest.fixture(scope="module")
def started(hub: HubProcess) -> Iterator[tuple[str, str, CommandLines]]:
    """The token and the job of a server, and all command lines seen during its start."""
    with CommandLines() as lines:
        hub.spawn("ann", {"profile": "light"})
    environ = requests.get(f"{hub.url}/user/ann/environ", timeout=10).json()
    yield environ["JUPYTERHUB_API_TOKEN"], environ["SLURM_JOB_ID"], lines
    hub.end("ann")


@pytest.mark.usefixtures("started")
def test_slurms_commands_get_a_minimal_environment(commands: SeenCommands, slurm_cluster: PrivateSlurm) -> None:
    """The set of variables is fixed; sbatch also gets those of the server, which the job takes over from it."""
    names: dict[str, set[str]] = {}
    for command in COMMANDS:
        for text in commands.texts(command, "environ"):
            variables = {line.partition("=")[0] for line in text.splitlines() if re.match(r"[A-Za-z_]\w*=", line)}
            names.setdefault(command, set()).update(name for name in variables if not re.fullmatch(NOT_OURS, name))
    own = {"PATH", "LANG", "SLURM_CONF", "TZ"}
    readers = own | {"SLURM_TIME_FORMAT", "USER", "LOGNAME"}
    servers = names.pop("sbatch") - own

    assert "squeue" in names
    assert [
        (command, name) for command, command_variables in names.items() for name in command_variables - readers
    ] == []
    assert {name for name in servers if not name.startswith("JUPYTERHUB_")} <= {
        *("USER", "LOGNAME", "HOME", "SHELL", "TZ", "MEM_LIMIT", "CPU_LIMIT", "MEM_GUARANTEE", "CPU_GUARANTEE"),
        "JPY_API_TOKEN",
    }


@pytest.mark.usefixtures("started")
def test_no_secret_of_the_hubs_reaches_a_command_or_a_server(hub: HubProcess, commands: SeenCommands) -> None:
    """Neither the names nor the values of the hub's secrets appear in a command or a server."""
    server = requests.get(f"{hub.url}/user/ann/environ", timeout=10).json()
    texts = [text for command in COMMANDS for what in ("environ", "cmdline") for text in commands.texts(command, what)]
    held = Path(f"/proc/{hub.process.pid}/environ").read_text() if hub.process else ""

    assert [name for name in SECRETS if name not in held] == []
    assert [
        name for name, value in SECRETS.items() for text in (*texts, str(server)) if name in text or value in text
    ] == []


def test_a_token_stands_in_no_command_line_script_record_or_log(
    hub: HubProcess, started: tuple[str, str, CommandLines], slurm_cluster: PrivateSlurm, commands: SeenCommands
) -> None:
    """No token appears in the log even at DEBUG level, nor on a command line while the server starts."""
    token, job, lines = started
    job_log = next((hub.folder / "homes" / "ann").rglob("jupyterhub-*.log"))
    texts = {
        "command lines": "\n".join(lines.command_lines),
        "arguments": "\n".join(text for command in COMMANDS for text in commands.texts(command, "cmdline")),
        "record": slurm_cluster.run("scontrol", "show", "job", "-d", job),
        "script": slurm_cluster.run("scontrol", "write", "batch_script", job, "-"),
        "hub's log": hub.log.read_text(),
        "job's log": job_log.read_text(),
        "REST": hub.api("GET", "/users/ann").text,
        "slurmctld's log": (slurm_cluster.logs / "slurmctld.log").read_text(errors="replace"),
    }

    assert len(token) >= 32
    assert any("sbatch" in line for line in lines.command_lines) or "sbatch" in texts["arguments"]
    assert "GPUSPAWNER_LAUNCHER" in texts["script"]
    assert [source for source, text in texts.items() if token in text] == []


def test_a_token_that_a_job_prints_is_not_shown(hub: HubProcess) -> None:
    """If the site's own lines print the environment, the page of the failed start still contains no token."""
    hub.api("POST", "/users/ben")
    answer = hub.api("POST", "/users/ben/server", {"profile": "fails"})
    log = next((hub.folder / "homes" / "ben").rglob("jupyterhub-*.log")).read_text()
    token = re.search(r"^JUPYTERHUB_API_TOKEN=(\w+)$", log, re.MULTILINE)

    assert token is not None
    assert answer.status_code == 500
    assert '_API_TOKEN=(not shown)"' in answer.json()["message"]
    assert token[1] not in answer.text
    assert token[1] not in hub.log.read_text()
