"""A server on a node that the hub cannot reach, and that cannot reach the hub: a real hub, Slurm and sshd."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import pytest
import requests

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from jupyterhub_gpuspawner.extensions.tunnel import words
from jupyterhub_gpuspawner.extensions.tunnel.tunnels import ROUTE_SECONDS
from tests.extensions.tunnel.far_hub import BACK, FIRST, LAST, answers, far_hub, far_nodes, masters, node_address
from tests.fixtures.hubs import needs_proxy
from tests.fixtures.login_node import LoginNode, missing
from tests.hub.visitor import Visitor
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.users, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def machines(two_users: tuple[str, str], slurm_cluster: PrivateSlurm, site_folder: Path) -> Iterator[LoginNode]:
    """The login node, and the nodes behind it."""
    if reason := missing():
        pytest.skip(reason)
    with far_nodes(site_folder / "login", slurm_cluster, two_users) as made:
        yield made


@pytest.fixture(scope="module")
def hub(machines: LoginNode, site_folder: Path, public_command: str) -> Iterator[HubProcess]:
    """A hub there, whose servers are stand-ins."""
    needs_proxy()
    with far_hub(machines, site_folder / "hub-behind", public_command) as started:
        yield started


def local_port(hub: HubProcess, person: str) -> int:
    """The port of the hub's machine to which the proxy leads for this person's server; 0: nowhere."""
    routes = hub.api("GET", "/proxy").json()
    target = routes.get(f"/user/{person}/", {}).get("target", "")
    assert target.startswith("http://127.0.0.1:") or not target
    return int(target.rpartition(":")[2] or 0)


def has_other_port(hub: HubProcess, person: str, others: Collection[int]) -> bool:
    """Whether the proxy leads to none of these."""
    return local_port(hub, person) not in others


def listens(machines: LoginNode, port: int) -> bool:
    """Whether something accepts connections at this port of the hub's machine."""
    return machines.run("sh", "-c", f"ss -Hltn sport = :{port}").stdout.strip() != ""


def test_a_server_starts_on_a_node_that_the_hub_cannot_reach(hub: HubProcess, machines: LoginNode) -> None:
    """It reports and is reached by ssh alone; its port is closed when its route is gone."""
    direct = machines.run("python3", "-c", f"import socket; socket.create_connection(('{node_address(machines)}', 22))")
    placement = hub.spawn(machines.person, {"profile": "one"})
    port = local_port(hub, machines.person)
    opened = listens(machines, port)
    answered = answers(hub, machines.person)
    reports = [line for line in hub.log.read_text().splitlines() if "/hub/api/gpuspawner/report" in line]
    hub.end(machines.person)
    wait_until(lambda: not listens(machines, port), "the port is closed")

    assert "Network is unreachable" in direct.stderr
    assert len(placement["gpus"]) == 1
    assert 26000 <= port <= 27999
    assert (opened, answered) == (True, True)
    assert all(line.endswith(")") or "@127.0.0.1" in line for line in reports)
    assert reports
    assert len(masters(machines)) == 1  # for the way back to the hub


def test_a_restarted_hub_cuts_no_connection(hub: HubProcess, machines: LoginNode) -> None:
    """The ssh that forwards is not the hub's child, and the proxy lives: the server answers all the time."""
    hub.spawn(machines.person, {"profile": "one"})
    assert answers(hub, machines.person)
    port, before = local_port(hub, machines.person), [process.pid for process in masters(machines)]
    hub.kill()
    answered = answers(hub, machines.person)
    hub.start()
    after = [process.pid for process in masters(machines)]
    server = hub.server(machines.person)

    assert port
    assert answered
    assert answers(hub, machines.person)
    assert server is not None
    assert server["ready"]
    assert (local_port(hub, machines.person), after) == (port, before)

    hub.end(machines.person)
    wait_until(lambda: not listens(machines, port), "the port is closed")


@pytest.mark.nightly
def test_a_login_node_that_goes_away_ends_no_server(hub: HubProcess, machines: LoginNode) -> None:
    """Neither while the hub runs nor when it is restarted meanwhile; the card says it; all is back by itself."""
    person = Visitor(hub, machines.person)
    hub.spawn(machines.person, {"profile": "one"})
    machines.stop_sshd()
    wait_until(lambda: words.INTERRUPTED in person.look("/hub/home").text, "the card says it")
    answered = answers(hub, machines.person)
    hub.kill()
    hub.start()
    machines.start_sshd()
    wait_until(lambda: answers(hub, machines.person), "the server is back")
    server = hub.server(machines.person)
    wait_until(lambda: words.INTERRUPTED not in person.look("/hub/home").text, "the card says it")

    assert not answered
    assert server is not None
    assert server["ready"]

    hub.end(machines.person)


TAKES = """
import socket, sys
ports = [int(word) for word in sys.argv[1:]]
print("begun", flush=True)
while True:
    for port in ports:
        try:
            taken = socket.create_server(("127.0.0.1", port))
        except OSError:
            continue
        print("taken", flush=True)
        while True:
            print(taken.accept()[0].recv(65536), flush=True)
"""
"""A neighbour, who listens as soon as the connection is gone, and prints what requests it gets."""


def test_a_neighbour_gets_no_request_when_a_connection_ends(hub: HubProcess, machines: LoginNode) -> None:
    """Neither while the hub runs nor while it is restarted, though somebody sends requests with a cookie all the time.

    The server has another port each time, and answers again.
    """
    hub.spawn(machines.person, {"profile": "one"})
    ports = [local_port(hub, machines.person)]
    path = f"{hub.url}/user/{machines.person}/process"
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            with suppress(requests.RequestException):
                requests.get(path, cookies={"secret": "of this user"}, timeout=5)

    asking = threading.Thread(target=ask)
    asking.start()
    printed = b""
    try:
        for restarts in (False, True):
            command = [*machines.entry, "/usr/bin/python3", "-c", TAKES, str(ports[-1])]
            with subprocess.Popen(command, stdout=subprocess.PIPE) as neighbour, ExitStack() as stack:
                stack.callback(neighbour.kill)
                assert neighbour.stdout is not None
                assert neighbour.stdout.readline() == b"begun\n"
                if restarts:
                    hub.kill()
                for master in masters(machines):
                    master.kill()
                if restarts:
                    hub.start()
                others = (0, ports[-1])
                wait_until(partial(has_other_port, hub, machines.person, others), "the server has another port")
                ports.append(local_port(hub, machines.person))
                wait_until(lambda: answers(hub, machines.person), "the server answers")
                time.sleep(2 * ROUTE_SECONDS)  # and then the neighbour has the old port
                neighbour.kill()
                printed += neighbour.stdout.read()
    finally:
        done.set()
        asking.join()

    assert printed == b"taken\n" * 2
    assert ports[0] != ports[1] != ports[2]
    hub.end(machines.person)


@pytest.mark.nightly
def test_check_tries_the_way_there_and_back(hub: HubProcess, machines: LoginNode) -> None:
    """With a small job, beside a hub that runs and with its connection, or without one."""
    config = hub.write_configuration()
    command = ("gpuspawner", "check", "-f", str(config), "--user", machines.person, "--submit")
    printed = machines.run("gpuspawner", "tunnel", "-f", str(config))
    beside = machines.run(*command, "--profile", "one")
    before = [process.pid for process in masters(machines)]
    hub.kill()
    for master in masters(machines):
        master.kill()
    try:
        alone = machines.run(*command, "--profile", "one")
        after = masters(machines)
    finally:
        hub.start()

    assert [of_tunnel(done.stdout) for done in (beside, alone)] == [ALL_IN_ORDER, ALL_IN_ORDER], beside.stdout
    assert len(before) == 1
    assert after == []
    assert printed.stdout.splitlines() == [
        "AllowTcpForwarding yes",
        f"PermitOpen {' '.join(f'{node_address(machines)}:{port}' for port in range(FIRST, LAST + 1))}",
        f"PermitListen {machines.address}:{BACK}",
        "GatewayPorts clientspecified",
    ]


ALL_IN_ORDER = [
    "ok    c.GPUSlurmSpawner.tunnel: the login node of `SSH` accepts the connection",
    "ok    c.GPUSlurmSpawner.tunnel_ports: no other account can sign in to this machine and listen there",
    "the ways to the hub and back are in order",
]


def of_tunnel(printed: str) -> list[str]:
    """The lines about the tunnel, without paths."""
    lines = [re.sub("`ssh .*`", "`SSH`", line) for line in printed.splitlines()]
    ways = "the ways to the hub and back are in order"
    return sorted(line for line in lines if "tunnel" in line) + [ways for line in lines if ways in line]


@pytest.mark.nightly
def test_a_place_that_sshd_does_not_permit_is_named(hub: HubProcess, machines: LoginNode) -> None:
    """In the hub's log for administrators, and by check; the user reads that there is no connection."""
    config = machines.folder / "sshd_config"
    text = config.read_text()
    command = ("gpuspawner", "check", "-f", str(hub.write_configuration()), "--user", machines.person, "--submit")
    try:
        config.write_text(re.sub("PermitOpen .*", "PermitOpen 192.0.2.1:1", text))
        restart(machines)
        checked = machines.run(*command, "--profile", "one")
        failed = start(hub, machines.person)
    finally:
        config.write_text(text)
        restart(machines)

    refused = f"The login node closes each connection to {node_address(machines)}, port "
    assert "the hub has no connection to its node" in failed
    assert refused in hub.log.read_text()
    assert [line for line in checked.stdout.splitlines() if "[node-unreachable]" in line and refused in line]


def restart(machines: LoginNode) -> None:
    """Have sshd read its configuration, in connections that there are, too."""
    machines.stop_sshd()
    machines.start_sshd()


def start(hub: HubProcess, person: str) -> str:
    """Start the person's server, and return the message with which that fails."""
    hub.api("POST", f"/users/{person}")
    answer = hub.api("POST", f"/users/{person}/server", {"profile": "one"})
    return str(answer.json()["message"])
