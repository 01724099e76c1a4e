"""Another user of the node takes the port of a user's server: the hub connects only to the server."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import requests

from jupyterhub_gpuspawner.demo.hub import HubProcess
from tests.fixtures.hubs import STAND_IN, StartHub
from tests.hub.test_users import CONFIG, PYTHON

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.users]

NEIGHBOUR = Path(__file__).parents[1] / "standins" / "neighbour.py"
PORTS = 5
SLOW = 2
"""Seconds until the server listens; JupyterLab takes as long, which is enough time for the neighbour."""


def free_range() -> tuple[int, int]:
    """A range of free ports below the kernel's range for outgoing connections."""
    for first in range(21000, 31000, 50):
        try:
            for port in range(first, first + PORTS):
                socket.create_server(("", port)).close()
        except OSError:
            continue
        return first, first + PORTS - 1
    raise AssertionError("there are no free ports")


@pytest.fixture(scope="module")
def ports() -> tuple[int, int]:
    """The range of ports for the hub's servers."""
    return free_range()


@pytest.fixture(scope="module")
def hub(
    start_light_hub: StartHub, two_users: tuple[str, str], public_folder: Path, ports: tuple[int, int]
) -> HubProcess:
    """A hub whose servers use a range of ports, as in the sample configuration."""
    if shutil.which("sudo") is None:
        pytest.skip("sudo is not installed")
    if not Path(PYTHON).exists():
        pytest.skip(f"there is no {PYTHON} for the users' servers")
    for file in (STAND_IN, NEIGHBOUR):
        shutil.copy(file, public_folder / file.name)
        (public_folder / file.name).chmod(0o644)
    server = public_folder / STAND_IN.name
    slurm = "{partition: batch, cpus: 1, memory: 100M, time: 0:10:00}"
    return start_light_hub(
        lines=f"{CONFIG}\nc.GPUSlurmSpawner.port_range = '{ports[0]}-{ports[1]}'\nc.Spawner.http_timeout = 15",
        profiles=f"""
- display_name: Slow
  slug: slow
  slurm: {slurm}
  command: [/bin/sh, -c, "sleep {SLOW}; exec {PYTHON} {server} # slow"]
- display_name: Stubborn
  slug: stubborn
  slurm: {slurm}
  command: [/bin/sh, -c, "sleep {SLOW}; {PYTHON} {server}; sleep 600 # stubborn"]
""",
    )


Attack = Callable[[str], Path]


@pytest.fixture
def attack(two_users: tuple[str, str], public_folder: Path, ports: tuple[int, int]) -> Iterator[Attack]:
    """``attack(word)``: the second user waits for a server with this word on its command line.

    Returns the file to which the attacking process writes.
    """
    person, other = two_users
    with ExitStack() as stack:

        def start(word: str) -> Path:
            told = Path(pwd.getpwnam(other).pw_dir) / f"told-{word}"
            words = [PYTHON, public_folder / NEIGHBOUR.name, *ports, pwd.getpwnam(person).pw_uid, f"# {word}", told]
            command = ["runuser", "-u", other, "--", *map(str, words)]
            process = stack.enter_context(subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True))
            stack.callback(os.killpg, process.pid, signal.SIGKILL)
            until(told, "ready")
            return told

        yield start


def until(file: Path, word: str, seconds: float = 60.0) -> None:
    """Wait for a line that starts with this word."""
    ends_at = time.monotonic() + seconds
    while not (file.exists() and any(line.startswith(word) for line in file.read_text().splitlines())):
        assert time.monotonic() < ends_at, f"{file} never had {word!r}"
        time.sleep(0.05)


def asked(told: Path) -> list[str]:
    """The requests that the neighbour received."""
    return [line for line in told.read_text().splitlines() if line.startswith("asked")]


def test_the_hub_goes_to_the_server_and_never_to_a_neighbour_who_was_quicker(
    hub: HubProcess, two_users: tuple[str, str], attack: Attack, ports: tuple[int, int]
) -> None:
    """The user's own server runs on another port; the neighbour gets no request, and the page reports the attempt."""
    person = two_users[0]
    neighbour = attack("slow")
    placement = hub.spawn(person, {"profile": "slow"})
    process = requests.get(f"{hub.url}/user/{person}/process", timeout=10).json()
    told = neighbour.read_text()
    hub.end(person)

    assert "taken" in told.splitlines()
    assert process["uid"] == pwd.getpwnam(person).pw_uid
    assert asked(neighbour) == []
    lost = (
        f"Another process took port {ports[1]} before the server listened there; the server was started again on "
        "another port."
    )
    assert lost in placement["problems"]
    assert lost in hub.log.read_text()


def test_a_server_that_does_not_end_without_its_port_is_given_up_in_words(
    hub: HubProcess, two_users: tuple[str, str], attack: Attack, ports: tuple[int, int]
) -> None:
    """The start fails with a message that names the neighbour's user id; the neighbour gets no request."""
    person, other = two_users
    neighbour = attack("stubborn")
    hub.api("POST", f"/users/{person}")
    hub.api("POST", f"/users/{person}/server", {"profile": "stubborn"})
    until(neighbour, "taken")
    hub.wait(person, ready=False)
    taken = f"Port {ports[1]} was taken by another user (uid {pwd.getpwnam(other).pw_uid}) of this node."

    assert asked(neighbour) == []
    assert f"its server at 127.0.0.1 did not listen on its port within 15 s. {taken}" in hub.log.read_text()
