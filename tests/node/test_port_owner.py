"""Who listens at a port, by the kernel's own table: real sockets, of this user's and of another's."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.hub.report.server_report import parse_report
from jupyterhub_gpuspawner.node import port as listeners
from jupyterhub_gpuspawner.node import report
from jupyterhub_gpuspawner.node.port import NOBODY, OTHERS, OURS, PROCESS, USER, PortOwner, Socket
from jupyterhub_gpuspawner.wire.documents import NodeReport, PlacementDocument, PortReport
from tests.standins.report_hub import ReportHub

ALL = "0.0.0.0"
SOMEBODY = 64_001
"""A user without an account, as whom only root can act."""
LISTEN = """
import os, socket, sys, time
host, port, uid = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if uid:
    os.setgid(uid)
    os.setuid(uid)
family = socket.AF_INET6 if ":" in host else socket.AF_INET
door = socket.socket(family)
door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
if family == socket.AF_INET6:
    door.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, sys.argv[4] == "only")
door.bind((host, port))
door.listen()
print(door.getsockname()[1], flush=True)
time.sleep(120)
"""
Listens = Callable[..., tuple[int, int]]


def port_owner(port: int, server: int, token: str) -> PortOwner:
    """Whose the port is, as the kernel shows it now."""
    return listeners.owner_of_port(listeners.listening(port), server, token)


@pytest.fixture
def listens() -> Iterator[Listens]:
    """Start a process that listens: ``listens(host, port=0, uid=0, token="", kind="only")``; its pid and port."""
    with ExitStack() as stack:

        def start(
            host: str = "127.0.0.1", port: int = 0, *, uid: int = 0, token: str = "", kind: str = "only"
        ) -> tuple[int, int]:
            if uid and os.geteuid() != 0:
                pytest.skip("only root can act as another user")
            words = [*_PYTHON, "-c", LISTEN, host, str(port), str(uid), kind]
            process = subprocess.Popen(
                words, stdout=subprocess.PIPE, text=True, env={"JUPYTERHUB_API_TOKEN": token}, start_new_session=True
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            assert process.stdout is not None
            return process.pid, int(process.stdout.readline())

        yield start


_PYTHON = (sys.executable, "-S", "-E")


@pytest.mark.parametrize("net", ["", listeners.NET], ids=["on request", "in the kernel's files"])
def test_a_socket_is_told_with_address_user_and_inode(listens: Listens, net: str) -> None:
    """Of both families, as Python's own module names the addresses; IPv4 within IPv6 is IPv6."""
    sockets = {}
    for host, kind in (("127.0.0.1", ""), (ALL, ""), ("::1", "only"), ("::", "both"), ("::ffff:127.0.0.1", "")):
        pid, port = listens(host, kind=kind)
        [listener] = listeners.listening(port, net)
        sockets[host] = (listener.address, listener.uid, f"socket:[{listener.inode}]" in _open(pid))

    assert sockets == {host: (host, os.geteuid(), True) for host in sockets}


def test_the_files_are_read_where_the_kernel_does_not_answer(listens: Listens, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose seccomp profile refuses such sockets."""

    def refused(*_: object, **__: object) -> socket.socket:
        raise PermissionError("Operation not permitted")

    _, port = listens("127.0.0.1")
    with monkeypatch.context() as patch:
        patch.setattr(socket, "socket", refused)
        sockets = listeners.listening(port)

    assert [listener.address for listener in sockets] == ["127.0.0.1"]


def _open(pid: int) -> set[str]:
    return {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()}


def test_the_server_is_known_by_its_process(listens: Listens) -> None:
    """By its pid, an ancestor, or, if it has detached from its parent, its token; the user alone is not enough."""
    pid, port = listens(token="mine")
    address = ("127.0.0.1",)

    assert port_owner(port, pid, "") == PortOwner(OURS, PROCESS, address)
    assert port_owner(port, os.getpid(), "") == PortOwner(OURS, PROCESS, address)
    assert port_owner(port, 1 << 22, "mine") == PortOwner(OURS, PROCESS, address)
    assert port_owner(port, 1 << 22, "another") == PortOwner(OTHERS, uid=os.geteuid())


def test_nobody_listens_before_the_server_does() -> None:
    """A port that is bound but not listened on counts as free of listeners."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))

        assert port_owner(bound.getsockname()[1], os.getpid(), "") == PortOwner(NOBODY)


def test_another_user_is_seen_at_the_port(listens: Listens) -> None:
    """Alone, and beside the server on another address, by which the hub might come."""
    _, port = listens(uid=SOMEBODY)

    assert port_owner(port, os.getpid(), "") != PortOwner(OTHERS, uid=SOMEBODY)  # root sees whose child it is
    assert port_owner(port, 1 << 22, "") == PortOwner(OTHERS, uid=SOMEBODY)

    pid, port = listens("127.0.0.1")
    listens("127.0.0.2", port, uid=SOMEBODY)

    assert port_owner(port, pid, "") == PortOwner(OTHERS, uid=SOMEBODY)


OWNERS = {
    "the server's process": ([Socket(ALL, 7, 1)], {1}, set(), PortOwner(OURS, PROCESS, (ALL,))),
    "on both families": (
        [Socket(ALL, 7, 1), Socket("::", 7, 2)],
        {1, 2},
        set(),
        PortOwner(OURS, PROCESS, (ALL, "::")),
    ),
    "a user whom a container made of ours": ([Socket("::", 100_999, 1)], {1}, set(), PortOwner(OURS, PROCESS, ("::",))),
    "its user, by a process that cannot be seen": ([Socket("::", 7, 1)], set(), set(), PortOwner(OURS, USER, ("::",))),
    "its user's other process": ([Socket("::", 7, 1)], set(), {1}, PortOwner(OTHERS, uid=7)),
    "another user": ([Socket("::", 8, 1)], set(), set(), PortOwner(OTHERS, uid=8)),
    "another user beside it": ([Socket(ALL, 7, 1), Socket("::", 8, 2)], {1}, set(), PortOwner(OTHERS, uid=8)),
    "nobody": ([], set(), set(), PortOwner(NOBODY)),
}


@pytest.mark.parametrize(("sockets", "ours", "others", "owner"), OWNERS.values(), ids=OWNERS.keys())
def test_one_socket_of_somebody_elses_is_enough(
    sockets: list[Socket], ours: set[int], others: set[int], owner: PortOwner
) -> None:
    """The port counts as the server's if every socket that listens on it is the server's."""
    assert listeners.classify(sockets, uid=7, ours=ours, others=others) == owner


def test_the_user_of_all_unknown_users_tells_nothing() -> None:
    """In a user namespace, unmapped users share one uid."""
    sockets = [Socket("::", 65534, 1)]

    assert listeners.classify(sockets, uid=65534, ours=(), others=()) == PortOwner(OTHERS, uid=65534)
    assert listeners.classify(sockets, uid=65534, ours={1}, others=()) == PortOwner(OURS, PROCESS, ("::",))


# --- and what the hub is told -------------------------------------------------------------------------


@pytest.fixture
def beside(listens: Listens, tmp_path: Path) -> Iterator[Callable[[ReportHub, int, int], None]]:
    """``beside(hub, port, server)``: the process beside a server, in a process of its own."""
    children: list[int] = []

    def start(hub: ReportHub, port: int, server: int) -> None:
        child = os.fork()
        if child == 0:
            try:
                placement = PlacementDocument(node="g1")
                report.PortReporter(NodeReport(0, placement), port, hub.environ, server, is_reported=True).run()
            finally:
                os._exit(0)
        children.append(child)

    yield start
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def reports(hub: ReportHub, count: int) -> list[NodeReport]:
    """Wait for so many."""
    ends_at = time.monotonic() + 30
    while len(hub.requests) < count and time.monotonic() < ends_at:
        time.sleep(0.02)
    return [parse_report(request.body) for request in hub.requests]


def foreign_owner_report(uid: int, port: int) -> NodeReport:
    """The report that another user has the port."""
    problem = f"Port {port} was taken by another user (uid {uid}) of this node."
    return NodeReport(0, PlacementDocument(node="g1", problems=(problem,)), door=PortReport("taken"))


def test_the_hub_is_told_of_another_user_and_not_of_the_port(
    listens: Listens, beside: Callable[[ReportHub, int, int], None]
) -> None:
    """Whose user number is in the report."""
    server, _ = listens()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with ReportHub() as hub:
        beside(hub, port, server)
        listens(port=port, uid=SOMEBODY)

        assert reports(hub, 1) == [foreign_owner_report(SOMEBODY, port)]


def test_another_user_who_comes_after_the_port_was_told_is_told_too(
    listens: Listens, beside: Callable[[ReportHub, int, int], None]
) -> None:
    """At an address of the node on which the server does not listen."""
    server, port = listens("127.0.0.1")
    port_report = NodeReport(port, PlacementDocument(node="g1"), door=PortReport("process", ("127.0.0.1",)))
    with ReportHub() as hub:
        beside(hub, port, server)
        first = reports(hub, 1)
        listens("127.0.0.2", port, uid=SOMEBODY)

        assert (first, reports(hub, 2)) == ([port_report], [port_report, foreign_owner_report(SOMEBODY, port)])


def test_where_the_kernel_does_not_tell_a_connection_is_enough(
    listens: Listens, beside: Callable[[ReportHub, int, int], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The server starts anyway, and the report says that the process could not be identified."""
    monkeypatch.setattr(listeners.listening, "__defaults__", (str(tmp_path / "no-such-folder"),))
    server, port = listens()
    with ReportHub() as hub:
        beside(hub, port, server)
        [report] = reports(hub, 1)

    assert (report.port, report.door) == (port, PortReport("unseen"))
    assert report.placement.problems == (f"This node does not show which process listens on port {port}.",)
