"""Each port leads to one server at most, and nobody else listens there while the hub has it."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.extensions.tunnel.ports import Ports, TunnelError
from tests.extensions.tunnel.machines import free_range, processes_with


def listens(port: int, *, host: str = "127.0.0.1", reuse: bool = True) -> bool:
    """Whether another program may listen there."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
        try:
            other.bind((host, port))
            other.listen()
        except OSError:
            return False
    return True


@pytest.fixture
def ports_of() -> Iterator[Callable[[int, int], Ports]]:
    """Makes a hub's ports, which are closed at the end."""
    with ExitStack() as stack:
        yield lambda first, last: stack.enter_context(closing(Ports(range(first, last + 1))))


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[Path]:
    """Where the holder of a test listens; it is ended."""
    path = tmp_path / "tunnel-ports"
    yield path
    for process in processes_with(str(path)):
        process.kill()


def test_a_port_that_was_given_back_is_used_again_last(ports_of: Callable[[int, int], Ports]) -> None:
    """As late as possible: somebody may still be connecting to it."""
    first, last = free_range(3)
    ports = ports_of(first, last)
    taken = [ports.take(), ports.take()]
    ports.give_back(first)

    assert taken == [first, first + 1]
    assert [ports.take(), ports.take()] == [last, first]
    with pytest.raises(TunnelError, match="all 3 ports of tunnel_ports are taken"):
        ports.take()


def test_a_port_of_before_a_restart_is_taken_by_one_server_alone(ports_of: Callable[[int, int], Ports]) -> None:
    """Also one of another range, which is not used again."""
    first, last = free_range(2)
    ports = ports_of(first, last)

    assert [ports.take_again(first), ports.take_again(first), ports.take_again(99)] == [True, False, True]
    assert ports.take() == last
    ports.give_back(99)
    ports.give_back(first)
    ports.give_back(first)
    assert ports.take() == first
    with pytest.raises(TunnelError):
        ports.take()


def test_a_hub_without_a_tunnel_has_no_port() -> None:
    """Until it is told which."""
    assert not Ports(()).known
    assert Ports(range(5, 6)).known


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize("reuse", [False, True])
def test_nobody_else_listens_at_a_port_that_is_taken(
    ports_of: Callable[[int, int], Ports], host: str, *, reuse: bool
) -> None:
    """Not while ssh listens, nor when it no longer does, even who was bound to the port before; until it is free."""
    first, last = free_range(1)
    with socket.socket() as early:
        early.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
        ports = ports_of(first, last)
        port = ports.take()
        seen = {"taken": listens(port, host=host, reuse=reuse)}
        with ports.opened(port):
            if reuse:
                early.bind((host, port))
            ssh = socket.create_server(("127.0.0.1", port))
        seen["forwards"] = listens(port, host=host, reuse=reuse)
        socket.create_connection(("127.0.0.1", port)).close()
        ssh.accept()[0].close()
        ssh.close()
        seen["gone"] = listens(port, host=host, reuse=reuse)
        if reuse:
            with suppress(OSError):
                early.listen()
                seen["early"] = True
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    ports.give_back(port)

    assert seen == {"taken": False, "forwards": False, "gone": False}
    assert listens(port)


def test_a_port_at_which_another_program_listens_is_left_out(ports_of: Callable[[int, int], Ports]) -> None:
    """It is used when the other one has ended."""
    first, last = free_range(2)
    ports = ports_of(first, last)
    with socket.create_server(("127.0.0.1", first)):
        assert ports.take() == last
    assert ports.take() == first


async def test_ports_are_held_while_the_hub_is_restarted(ports_of: Callable[[int, int], Ports], holder: Path) -> None:
    """By the holder, which gives them to the next hub, and ends when its socket is gone and it holds nothing."""
    first, last = free_range(3)
    hub = ports_of(first, last)
    one, two = hub.take(), hub.take()
    await hub.keep(one, str(holder))
    await hub.keep(two, str(holder))
    for port in (one, two):  # as the end of the process does
        hub.give_back(port)
    between = [listens(port) for port in (one, two, last)]

    restarted = ports_of(first, last)
    assert [restarted.take_again(port) for port in (one, last)] == [True, True]
    held = [await restarted.held_again(port, str(holder)) for port in (one, one, last, two)]
    await restarted.drop(one, str(holder))
    dropped = listens(one)
    restarted.give_back(one)

    assert between == [False, False, True]
    assert held == [True, True, False, False]
    assert (dropped, listens(one), listens(two)) == (False, True, False)
    assert (await asyncio.to_thread(holder.stat)).st_mode & 0o077 == 0
    assert len(processes_with(str(holder))) == 1


async def test_a_holder_that_was_ended_is_started_again_with_all_ports(
    ports_of: Callable[[int, int], Ports], holder: Path
) -> None:
    """It has those that it held before, too."""
    first, last = free_range(3)
    ports = ports_of(first, last)
    taken = [ports.take() for _ in range(3)]
    await ports.keep(taken[0], str(holder))
    await ports.keep(taken[1], str(holder))
    for process in processes_with(str(holder)):
        process.send_signal(signal.SIGKILL)
        process.wait(5)
    await ports.keep(taken[2], str(holder))
    for port in taken:
        ports.give_back(port)

    assert [listens(port) for port in taken] == [False, False, False]


async def test_no_holder_is_needed(ports_of: Callable[[int, int], Ports], tmp_path: Path) -> None:
    """Where none can be started, the caller is told; what is asked of none is answered."""
    first, last = free_range(1)
    ports = ports_of(first, last)
    port, nowhere = ports.take(), str(tmp_path / "no" / "folder")
    with pytest.raises(OSError, match="nothing can listen at"):
        await ports.keep(port, nowhere)
    await ports.drop(port, nowhere)
    ports.give_back(port)
    ports.take_again(port)
    assert not await ports.held_again(port, nowhere)
