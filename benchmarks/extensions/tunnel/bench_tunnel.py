"""What a tunnel costs: time to ready, a WebSocket's echo and throughput, two hundred forwards, and outages.

    python -m benchmarks.extensions.tunnel.bench_tunnel [--starts 5] [--without-hub] [--table FILE]

Hub, login node and node are namespaces of this host, with a real sshd, and a real Slurm and JupyterHub for the time to
ready; ``--without-hub`` leaves that out. Needs root. ``--table`` writes the figures there, too.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from tornado.websocket import WebSocketClientConnection, websocket_connect

from jupyterhub_gpuspawner.demo.slurm_cluster import DEMO_CLUSTER, PrivateSlurm
from jupyterhub_gpuspawner.extensions.tunnel.master import Master
from jupyterhub_gpuspawner.extensions.tunnel.server import no_routes
from jupyterhub_gpuspawner.extensions.tunnel.ssh import Forward, tunnel_words
from jupyterhub_gpuspawner.extensions.tunnel.tunnels import Tunnels
from jupyterhub_gpuspawner.tasks import in_background
from tests.extensions.tunnel.far_hub import far_hub, far_nodes
from tests.extensions.tunnel.machines import PORTS, Machines, free_range, machines
from tests.fixtures.users import accounts

FORWARDS = 200
ECHOES = 500
MESSAGES, MIB = 200, 1 << 20
OUTAGE = 30.0
SERVER = """
import asyncio, sys
from tornado.web import Application
from tornado.websocket import WebSocketHandler
class Answers(WebSocketHandler):
    async def on_message(self, message):
        if message.startswith("send "):
            for _ in range(int(message[5:])):
                await self.write_message(bytes(1 << 20), binary=True)
        else:
            self.write_message(message)
async def main():
    Application([("/", Answers)]).listen(int(sys.argv[1]), "0.0.0.0")
    print("ready", flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""
"""Sends back each message, or as many MiB as it is told."""


def serve(namespace: str, port: int) -> subprocess.Popen[bytes]:
    """Have :data:`SERVER` listen at this port of a namespace."""
    command = ["ip", "netns", "exec", namespace, sys.executable, "-c", SERVER, str(port)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    return server


async def connected(host: str, port: int) -> WebSocketClientConnection:
    """A WebSocket there."""
    return await websocket_connect(f"ws://{host}:{port}/", max_message_size=2 * MIB)


async def echo(socket: WebSocketClientConnection) -> float:
    """Seconds until a message of 100 bytes is back."""
    began = time.perf_counter()
    await socket.write_message("x" * 100)
    assert await socket.read_message() == "x" * 100
    return time.perf_counter() - began


async def transfer(host: str, port: int) -> tuple[list[float], float]:
    """The times of echoes, and MiB/s of a download."""
    socket = await connected(host, port)
    times = [await echo(socket) for _ in range(ECHOES)]
    began = time.perf_counter()
    await socket.write_message(f"send {MESSAGES}")
    for _ in range(MESSAGES):
        await socket.read_message()
    seconds = time.perf_counter() - began
    socket.close()
    return times, MESSAGES / seconds


async def seconds_until(condition: Callable[[], Awaitable[bool]]) -> float:
    """Seconds until this is true."""
    began = time.perf_counter()
    while not await condition():  # noqa: ASYNC110 - another process has no event
        await asyncio.sleep(0.02)
    return time.perf_counter() - began


async def answers(port: int) -> bool:
    """Whether a new WebSocket at this port of the hub's machine is answered."""
    with suppress(Exception):
        socket = await asyncio.wait_for(connected("127.0.0.1", port), 1)
        await asyncio.wait_for(echo(socket), 1)
        socket.close()
        return True
    return False


async def of_forwards(behind: Machines, say: Callable[[str, str], None]) -> None:
    """Forwards, a WebSocket through one, and outages."""
    tunnels = Tunnels()
    tunnels.use_ports(*free_range(2 * FORWARDS + 100))
    words = tunnel_words(behind.tunnel, where="tunnel")
    master = tunnels.master(words, 1)
    began = time.perf_counter()
    first = await tunnels.open(master, behind.node_address, PORTS[0], list)
    say("connection and first forward", f"{(time.perf_counter() - began) * 1000:.0f} ms")
    times = []
    for port in range(PORTS[0] + 1, PORTS[0] + 51):
        began = time.perf_counter()
        forward = await tunnels.open(master, behind.node_address, port, list)
        times.append((time.perf_counter() - began) * 1000)
        await tunnels.close(master, forward, no_routes)
    say("one more forward, median of 50", f"{statistics.median(times):.1f} ms")

    nodes, login = serve(behind.node, PORTS[0]), serve(behind.login, PORTS[0])
    try:
        for name, host, port in (
            ("direct (one hop less)", behind.login_address, PORTS[0]),
            ("through the tunnel", "127.0.0.1", first.local),
        ):
            echoes, rate = await transfer(host, port)
            p95 = statistics.quantiles(echoes, n=20)[-1]
            say(
                f"WebSocket {name}",
                f"echo p50 {statistics.median(echoes) * 1000:.2f} ms, p95 {p95 * 1000:.2f} ms; {rate:.0f} MiB/s",
            )
        await _two_hundred(behind, tunnels, master, say)
        await _outages(behind, tunnels, master, say)
    finally:
        await tunnels.stop()
        for server in (nodes, login):
            server.kill()
            server.communicate()


async def _two_hundred(behind: Machines, tunnels: Tunnels, master: Master, say: Callable[[str, str], None]) -> None:
    began = time.perf_counter()
    await asyncio.gather(
        *(tunnels.open(master, behind.node_address, PORTS[0] + 1 + number, list) for number in range(FORWARDS))
    )
    say(f"{FORWARDS} forwards at once", f"{(time.perf_counter() - began) * 1000:.0f} ms")
    restarted = Master(master.words, 1)  # as a hub that is restarted
    for forward in master.made:
        if isinstance(forward, Forward):
            restarted.expect(forward, master.pid)
    began = time.perf_counter()
    await restarted.keep_up()
    say(f"{len(restarted.made)} forwards adopted by a restarted hub", f"{(time.perf_counter() - began) * 1000:.0f} ms")


async def _outages(behind: Machines, tunnels: Tunnels, master: Master, say: Callable[[str, str], None]) -> None:
    port = 0

    async def open_again() -> None:
        nonlocal port
        port = (await tunnels.open(master, behind.node_address, PORTS[0], lost)).local

    def lost() -> None:
        in_background(open_again())

    await open_again()
    behind.end_masters()
    say("ssh killed: until a new WebSocket is answered", f"{await seconds_until(lambda: answers(port)):.1f} s")

    socket = await connected("127.0.0.1", port)
    behind.cut()
    waiting = asyncio.ensure_future(echo(socket))
    await asyncio.sleep(OUTAGE)
    behind.mend()
    back = time.perf_counter()
    await asyncio.wait_for(waiting, 60)
    say(
        f"network cut for {OUTAGE:.0f} s: the open WebSocket",
        f"lives; its message is answered {time.perf_counter() - back:.1f} s after the network is back",
    )
    socket.close()

    await asyncio.to_thread(behind.stop_sshd)
    await asyncio.sleep(OUTAGE)
    assert master.fault is not None
    await asyncio.to_thread(behind.start_sshd)
    say(
        f"login node away for {OUTAGE:.0f} s (connections lost)",
        f"a new WebSocket is answered {await seconds_until(lambda: answers(port)):.1f} s after its sshd is back",
    )


def time_to_ready(starts: int, say: Callable[[str, str], None]) -> None:
    """Start servers of a real hub, with a tunnel and where hub and nodes reach each other."""
    with tempfile.TemporaryDirectory(prefix="gpuspawner-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        server = folder / "single_user.py"
        server.write_text(Path("tests/standins/single_user.py").read_text("utf-8"))
        command = f"[/usr/bin/python3, {server}]"
        with (
            accounts(folder, {"a": "/bin/sh", "b": "/bin/sh"}) as users,
            PrivateSlurm(DEMO_CLUSTER, folder / "slurm") as slurm,
        ):
            for far in (False, True):
                own = folder / ("far" if far else "near")
                with (
                    far_nodes(own, slurm, list(users.values()), far=far) as nodes,
                    far_hub(nodes, folder / f"hub-{own.name}", command, far=far) as hub,
                ):
                    times = []
                    for _ in range(starts):
                        hub.spawn(nodes.person, {"profile": "one"})
                        text = hub.log.read_text("utf-8")
                        times.append(float(re.findall(r"took ([0-9.]+) seconds to start", text)[-1]))
                        hub.end(nodes.person)
                    of = "through a tunnel, both ways" if far else "without a tunnel"
                    say(
                        f"time to ready {of}, {starts} starts",
                        f"median {statistics.median(times):.2f} s ({min(times):.2f} to {max(times):.2f})",
                    )


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--without-hub", action="store_true")
    parser.add_argument("--table", type=Path)
    arguments = parser.parse_args()
    rows: list[tuple[str, str]] = []

    def say(what: str, figure: str) -> None:
        rows.append((what, figure))
        print(f"{what}: {figure}", flush=True)

    with tempfile.TemporaryDirectory(prefix="gpt-") as name, machines(Path(name) / "m") as behind:
        asyncio.run(of_forwards(behind, say))
    if not arguments.without_hub:
        time_to_ready(arguments.starts, say)
    if arguments.table is not None:
        lines = ["| | |", "| --- | --- |", *(f"| {what} | {figure} |" for what, figure in rows)]
        arguments.table.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
