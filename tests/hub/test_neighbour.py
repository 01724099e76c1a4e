"""Another user of the node takes the port of a user's server: the hub connects only to the server."""

from __future__ import annotations

import os
import pwd
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import requests

from jupyterhub_gpuspawner.demo.hub import HubProcess
from tests.fixtures.hubs import offer
from tests.fixtures.site import PYTHON
from tests.waiting import wait_until

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
def hub(users_hub: HubProcess, public_command: str, ports: tuple[int, int]) -> HubProcess:
    """A hub whose servers use a range of ports, as in the sample configuration."""
    command = public_command.strip("[]").replace(",", "")
    slurm = f"{{partition: batch, cpus: 1, memory: 100M, time: 0:10:00}}\n  port_range: {ports[0]}-{ports[1]}"
    profiles = f"""
- display_name: Slow
  slug: slow
  slurm: {slurm}
  command: [/bin/sh, -c, "sleep {SLOW}; exec {command} # slow"]
- display_name: Stubborn
  slug: stubborn
  slurm: {slurm}
  command: [/bin/sh, -c, "sleep {SLOW}; {command}; sleep 600 # stubborn"]
"""
    offer(users_hub, "neighbour", profiles)
    return users_hub


Attack = Callable[[str], Path]


@pytest.fixture
def attack(two_users: tuple[str, str], public_copy: Callable[[Path], Path], ports: tuple[int, int]) -> Iterator[Attack]:
    """``attack(word)``: the second user waits for a server with this word on its command line.

    Returns the file to which the attacking process writes.
    """
    person, other = two_users
    neighbour = public_copy(NEIGHBOUR)
    with ExitStack() as stack:

        def start(word: str) -> Path:
            record = Path(pwd.getpwnam(other).pw_dir) / f"told-{word}"
            words = [PYTHON, neighbour, *ports, pwd.getpwnam(person).pw_uid, f"# {word}", record]
            command = ["runuser", "-u", other, "--", *map(str, words)]
            process = stack.enter_context(subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True))
            stack.callback(os.killpg, process.pid, signal.SIGKILL)
            until(record, "ready")
            return record

        yield start


def until(file: Path, word: str) -> None:
    """Wait for a line that starts with this word."""
    wait_until(
        lambda: file.exists() and any(line.startswith(word) for line in file.read_text().splitlines()),
        f"{file} never had {word!r}",
        seconds=60,
    )


def requests_to(record: Path) -> list[str]:
    """The requests that the neighbour received."""
    return [line for line in record.read_text().splitlines() if line.startswith("asked")]


def test_the_hub_goes_to_the_server_and_never_to_a_neighbour_who_was_quicker(
    hub: HubProcess, two_users: tuple[str, str], attack: Attack, ports: tuple[int, int]
) -> None:
    """The user's own server runs on another port; the neighbour gets no request, and the page reports the attempt."""
    person = two_users[0]
    neighbour = attack("slow")
    placement = hub.spawn(person, {"profile": "slow"})
    process = requests.get(f"{hub.url}/user/{person}/process", timeout=10).json()
    record = neighbour.read_text()
    hub.end(person)

    assert "taken" in record.splitlines()
    assert process["uid"] == pwd.getpwnam(person).pw_uid
    assert requests_to(neighbour) == []
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
    sentence = f"Port {ports[1]} was taken by another user (uid {pwd.getpwnam(other).pw_uid}) of this node."

    assert requests_to(neighbour) == []
    assert f"its server at 127.0.0.1 did not listen on its port within 6 s. {sentence}" in hub.log.read_text()
