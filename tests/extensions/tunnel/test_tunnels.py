"""Forwards of a real ssh, over a real sshd, to a node that this host cannot reach."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from jupyterhub_gpuspawner.extensions.tunnel import master as of_master
from jupyterhub_gpuspawner.extensions.tunnel import tunnels as module
from jupyterhub_gpuspawner.extensions.tunnel.master import Master
from jupyterhub_gpuspawner.extensions.tunnel.ports import TunnelError
from jupyterhub_gpuspawner.extensions.tunnel.server import closes_at_once, no_routes
from jupyterhub_gpuspawner.extensions.tunnel.ssh import Forward, Reverse, tunnel_words
from jupyterhub_gpuspawner.extensions.tunnel.tunnels import Tunnels
from tests.extensions.tunnel.machines import BACK, NODE_IPV6, PORTS, Machines, free_range

pytestmark = [pytest.mark.users, pytest.mark.timeout(120)]

FIRST = PORTS[0]
SECONDS = 60.0


async def answers(port: int, patience: float = 2.0) -> bool:
    """Whether the node's server sends back what it gets at this port of the hub's machine, in so many seconds."""
    try:
        reader, writer = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), patience)
        try:
            writer.write(b"word")
            return await asyncio.wait_for(reader.read(4), patience) == b"word"
        finally:
            writer.close()
    except (OSError, asyncio.TimeoutError):
        return False


async def until(condition: Callable[[], Awaitable[object]], seconds: float = SECONDS) -> float:
    """Wait until this is true, and return after how many seconds."""
    began = time.monotonic()
    while not await condition():
        assert time.monotonic() - began < seconds
        await asyncio.sleep(0.05)
    return time.monotonic() - began


def nothing() -> None:
    """A port that is never lost."""


@pytest.fixture
async def tunnels() -> AsyncIterator[Tunnels]:
    """Those of a hub, with six hundred ports; they are looked after until the test ends."""
    hub = Tunnels()
    hub.use_ports(*free_range(600))
    yield hub
    await hub.stop()


def master_of(tunnels: Tunnels, machines: Machines, number: int = 1) -> Master:
    """The connection to the login node."""
    return tunnels.master(tunnel_words(machines.tunnel, where="tunnel"), number)


async def test_a_node_that_cannot_be_reached_is_reached(running: Machines, tunnels: Tunnels) -> None:
    """Also where ssh's configuration has ClearAllForwardings, with which ssh would forward nothing, and say nothing."""
    with pytest.raises(OSError, match=r"No route to host|Network is unreachable"):
        await asyncio.open_connection(running.node_address, FIRST)
    text = running.ssh_config.read_text()
    try:
        running.ssh_config.write_text(f"{text}    ClearAllForwardings yes\n    ControlPersist 1\n")
        master = master_of(tunnels, running)
        forward = await tunnels.open(master, running.node_address, FIRST, nothing)
        assert await answers(forward.local)
    finally:
        running.ssh_config.write_text(text)
    await tunnels.close(master, forward, no_routes)
    assert not await answers(forward.local)


async def test_a_node_with_an_ipv6_address_is_reached(running: Machines, tunnels: Tunnels) -> None:
    """At the ports that PermitOpen lists for it, and at no other."""
    master = master_of(tunnels, running)
    closed = []
    for port in (FIRST, 22):
        forward = await tunnels.open(master, NODE_IPV6, port, nothing)
        closed.append(await closes_at_once(forward.local))
        assert await answers(forward.local) is (port == FIRST)
    assert closed == [False, True]


async def test_two_hundred_forwards_share_a_connection(running: Machines, tunnels: Tunnels) -> None:
    """Each leads to its own port of the node; when the master is killed, each is told, and has another port."""
    master = master_of(tunnels, running)
    ports = range(FIRST, FIRST + 200)
    lost: list[int] = []

    async def open_one(port: int) -> Forward:
        return await tunnels.open(master, running.node_address, port, partial(lost.append, port))

    forwards = await asyncio.gather(*map(open_one, ports))
    assert len({forward.local for forward in forwards}) == 200
    assert [forward.port for forward in forwards] == [*ports]
    assert all(await asyncio.gather(*(answers(forward.local, SECONDS) for forward in forwards)))
    assert len(running.masters()) == 1

    async def all_answer() -> bool:
        return all(await asyncio.gather(*(answers(forward.local, SECONDS) for forward in forwards)))

    before = master.pid
    running.end_masters()
    await until(lambda: asyncio.sleep(0, len(lost) == 200))
    assert sorted(lost) == [*ports]
    forwards = await asyncio.gather(*map(open_one, ports))
    await until(all_answer)
    assert master.pid != before
    assert len(running.masters()) == 1


async def test_a_login_node_that_is_rebooted_is_tunnelled_again(
    running: Machines, tunnels: Tunnels, caplog: pytest.LogCaptureFixture
) -> None:
    """Meanwhile the fault is known; nothing is done to the server."""
    caplog.set_level(logging.INFO, "traitlets")
    master = master_of(tunnels, running)
    lost: list[str] = []
    forward = await tunnels.open(master, running.node_address, FIRST, lambda: lost.append("the server's"))
    running.stop_sshd()
    await until(lambda: asyncio.sleep(0, master.fault is not None))
    gone = await answers(forward.local)
    fault = master.fault
    await asyncio.to_thread(running.start_sshd)
    await until(lambda: asyncio.sleep(0, lost))
    again = await tunnels.open(master, running.node_address, FIRST, nothing)
    assert await answers(again.local)

    assert (gone, lost) == (False, ["the server's"])
    assert fault is not None
    assert fault.message.startswith(
        "the login node of the tunnel: the login node cannot be reached by ssh (ssh: connect"
    )
    assert master.fault is None
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


async def test_faults_that_alternate_are_said_once_an_hour(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As sshd's MaxStartups makes ssh say now this and now that; each is said again an hour later."""
    faults = itertools.cycle([TunnelError("reset."), TunnelError("closed.")])

    async def fail(self: Master) -> None:
        self.fault = next(faults)
        raise self.fault

    monkeypatch.setattr(Master, "keep_up", fail)
    monkeypatch.setattr(module, "KEEP_SECONDS", 0.001)
    hub = Tunnels()
    hub.master(("ssh", "far"), 1).wanted.add(Reverse("10.0.0.1", BACK, "127.0.0.1", 9))
    await asyncio.sleep(0.3)
    said = [record.getMessage() for record in caplog.records]
    caplog.clear()
    monkeypatch.setattr(module, "SAY_SECONDS", 0.01)
    await until(lambda: asyncio.sleep(0, len(caplog.records) >= 4))
    await hub.stop()

    assert said == [f"Servers behind far are not reached now: {text}." for text in ("reset", "closed")]


@pytest.mark.parametrize("restarted", [False, True], ids=["the hub runs", "the hub is restarted"])
async def test_a_master_whose_socket_is_removed_is_replaced(
    running: Machines, tunnels: Tunnels, caplog: pytest.LogCaptureFixture, *, restarted: bool
) -> None:
    """As by what cleans up old files, whether or not the hub runs then: it is ended, and keeps no port."""
    lost: list[Forward] = []
    hub, master = tunnels, master_of(tunnels, running)
    forward = await hub.open(master, running.node_address, FIRST, lambda: lost.append(forward))
    before = master.pid
    if restarted:
        await tunnels.stop()
        hub = Tunnels()
        hub.use_ports(forward.local, forward.local + 299)
        master = master_of(hub, running)
        hub.adopt(master, forward, before, lambda: lost.append(forward))
    (running.folder / "t-1").unlink()
    await until(lambda: asyncio.sleep(0, lost))
    again = await hub.open(master, running.node_address, FIRST, nothing)

    assert await answers(again.local)
    assert (lost, [process.pid for process in running.masters()]) == ([forward], [master.pid])
    assert master.pid != before
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    await hub.stop()


async def test_a_master_that_nobody_knows_is_ended(
    running: Machines, tunnels: Tunnels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One without a socket, and without a server: it has the port of the login node that leads to the hub."""
    monkeypatch.setattr(of_master, "CONNECT_SECONDS", 1.5)
    back = Reverse(running.inner_address, BACK, "127.0.0.1", 9)
    first = master_of(tunnels, running)
    first.wanted.add(back)
    await first.keep_up()
    await tunnels.stop()
    (running.folder / "t-1").unlink()
    await asyncio.sleep(2)
    restarted = Tunnels()
    master = master_of(restarted, running)
    master.wanted.add(back)
    await until(lambda: asyncio.sleep(0, back in master.made))

    assert [process.pid for process in running.masters()] == [master.pid]
    await restarted.stop()


async def test_a_forward_that_could_not_be_closed_is_closed_when_the_master_answers_again(
    running: Machines, tunnels: Tunnels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its port would lead to the node for as long as the connection is there."""
    master = master_of(tunnels, running)
    stays = await tunnels.open(master, running.node_address, FIRST, nothing)
    ended = await tunnels.open(master, running.node_address, FIRST + 1, nothing)
    monkeypatch.setattr(of_master, "COMMAND_SECONDS", 0.5)
    running.end_masters(signal.SIGSTOP)
    await tunnels.close(master, ended, no_routes)
    running.end_masters(signal.SIGCONT)
    monkeypatch.undo()

    async def is_closed() -> bool:
        return not await answers(ended.local)

    await until(is_closed)
    await until(lambda: answers(stays.local))


async def test_a_hub_that_is_restarted_goes_on_with_what_is_there(running: Machines, tunnels: Tunnels) -> None:
    """The connection is the same, an open one through it goes on, and its port is no other server's."""
    forward = await tunnels.open(master_of(tunnels, running), running.node_address, FIRST, nothing)
    pid = master_of(tunnels, running).pid
    reader, writer = await asyncio.open_connection("127.0.0.1", forward.local)
    await tunnels.stop()
    restarted = Tunnels()
    restarted.use_ports(forward.local, forward.local + 299)
    master = master_of(restarted, running)
    adopted = restarted.adopt(master, forward, pid, nothing)
    twice = restarted.adopt(master, Forward(forward.local, running.node_address, FIRST + 1), pid, nothing)
    await master.keep_up()
    writer.write(b"word")
    other = await restarted.open(master, running.node_address, FIRST + 1, nothing)

    assert (adopted, twice) == (True, False)
    assert await reader.read(4) == b"word"
    assert master.pid == pid
    assert other.local != forward.local
    writer.close()
    await restarted.stop()


async def test_a_port_is_closed_and_used_again_when_no_route_leads_there(
    running: Machines, tunnels: Tunnels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor while the proxy does not answer: it may have one when it is back."""
    monkeypatch.setattr(module, "ROUTE_SECONDS", 0.05)
    small = Tunnels()
    small.use_ports(*free_range(2))
    master = master_of(small, running)
    first, second = [await small.open(master, running.node_address, FIRST + n, nothing) for n in range(2)]
    routes: list[Any] = [
        OSError("away"),
        {"/user/ada/": {"target": f"http://127.0.0.1:{first.local}"}},
        {"/user/ben/": {"target": f"http://127.0.0.1:{second.local}"}},
    ]
    seen: list[bool] = []

    async def answer() -> Mapping[str, Any]:
        seen.append(await answers(first.local))
        with pytest.raises(TunnelError, match="all 2 ports of tunnel_ports are taken"):
            small.ports.take()
        now = routes.pop(0)
        if isinstance(now, OSError):
            raise now
        return dict(now)

    await small.close(master, first, answer)

    assert seen == [True, True, True]
    assert not await answers(first.local)
    assert (await small.open(master, running.node_address, FIRST + 2, nothing)).local == first.local
    await small.stop()


async def test_a_port_that_another_program_has_is_no_servers(running: Machines, tunnels: Tunnels) -> None:
    """The next one is taken."""
    master, (first, last) = master_of(tunnels, running), free_range(3)
    own = Tunnels()
    own.use_ports(first, last)
    with socket.create_server(("127.0.0.1", first)):
        forward = await own.open(master, running.node_address, FIRST, nothing)
    assert forward.local == first + 1
    assert await answers(forward.local)
    await own.stop()


NEIGHBOUR = """
import os, socket, sys
os.setuid(65534)
ports = [int(word) for word in sys.argv[1:]]
taken = {}
print("begun", flush=True)
while os.getppid() == int(os.environ["PARENT"]):
    for port in ports:
        for host in ("127.0.0.1", "0.0.0.0"):
            other = taken.get((port, host)) or socket.socket()
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                if (port, host) not in taken:
                    other.bind((host, port))
                    taken[port, host] = other
                other.listen()
                print(port, flush=True)
                sys.exit()
            except OSError:
                if (port, host) not in taken:
                    other.close()
"""
"""Another account of the hub's machine, which tries to listen at these ports, and says at which it does."""


@contextmanager
def neighbour(*ports: int) -> Iterator[subprocess.Popen[bytes]]:
    """It tries for as long as this lasts."""
    environment = os.environ | {"PARENT": str(os.getpid())}
    program = subprocess.Popen(
        [sys.executable, "-c", NEIGHBOUR, *map(str, ports)], stdout=subprocess.PIPE, env=environment
    )
    with program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"begun\n"
        try:
            yield program
        finally:
            program.kill()


@pytest.mark.parametrize("restarted", [False, True], ids=["the hub runs", "the hub is restarted"])
async def test_a_neighbour_never_listens_where_a_connection_has_ended(
    running: Machines, tunnels: Tunnels, *, restarted: bool
) -> None:
    """Neither while it is away nor when it is back: servers get other ports, and one is free when no route leads there.

    Also where it ends while the hub is restarted.
    """
    lost: list[Forward] = []
    master = master_of(tunnels, running)
    forwards: list[Forward] = []
    for number in range(3):
        told = partial(lambda at: lost.append(forwards[at]), number)
        forwards.append(await tunnels.open(master, running.node_address, FIRST + number, told))
    ports = [forward.local for forward in forwards]
    with neighbour(*ports) as other:
        if restarted:
            pid = master.pid
            await tunnels.stop()
            running.end_masters()
            await asyncio.sleep(0.5)
            hub = Tunnels()
            hub.use_ports(min(ports), min(ports) + 299)
            master = master_of(hub, running)
            for forward in forwards:
                assert hub.adopt(master, forward, pid, partial(lost.append, forward))
        else:
            hub = tunnels
            running.end_masters()
        await until(lambda: asyncio.sleep(0, len(lost) == 3))
        again = [await hub.open(master, running.node_address, forward.port, nothing) for forward in forwards]
        await asyncio.sleep(0.5)
        assert not {forward.local for forward in again} & set(ports)
        assert [await answers(forward.local) for forward in again] == [True] * 3
        assert [await answers(port) for port in ports] == [False] * 3
        assert other.poll() is None

        await hub.close(master, forwards[1], no_routes)
        assert (await asyncio.to_thread(other.communicate))[0] == f"{ports[1]}\n".encode()
    await hub.stop()


async def test_a_place_that_sshd_does_not_permit_is_not_reached(running: Machines, tunnels: Tunnels) -> None:
    """ssh says that all is well; what is behind it is closed at once, as a port at which nothing listens is."""
    master = master_of(tunnels, running)
    cases = {
        "permitted": (running.node_address, FIRST),
        "nothing listens": (running.node_address, PORTS[1]),
        "another port": (running.node_address, 22),
        "another host": (running.inner_address, FIRST),
        "the login node": ("127.0.0.1", running.port),
    }
    closed = {}
    for name, (host, port) in cases.items():
        forward = await tunnels.open(master, host, port, nothing)
        closed[name] = await closes_at_once(forward.local)

    assert closed == {name: name != "permitted" for name in cases}


@pytest.mark.parametrize(
    ("listen", "port", "permitted"),
    [("inner", BACK, True), ("inner", BACK + 1, False), ("0.0.0.0", BACK, False), ("login", BACK, False)],
)
async def test_a_node_reaches_the_hub_at_the_permitted_address_alone(
    running: Machines, tunnels: Tunnels, listen: str, port: int, permitted: bool
) -> None:
    """By a forward in the other direction."""
    address = {"inner": running.inner_address, "login": running.login_address}.get(listen, listen)
    with socket.create_server(("127.0.0.1", 0)) as hub:
        hub.settimeout(10)
        master = master_of(tunnels, running)
        back = Reverse(address, port, "127.0.0.1", hub.getsockname()[1])
        master.wanted.add(back)
        await master.keep_up()
        assert (back in master.made) is permitted
        if permitted:
            running.connect_from_node(running.inner_address, port)
            hub.accept()[0].close()
