"""The way to one server: what it leads to, what is stored of it, and what is said while there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from jupyterhub_gpuspawner.extensions.tunnel import server as module
from jupyterhub_gpuspawner.extensions.tunnel import words
from jupyterhub_gpuspawner.extensions.tunnel.master import Master
from jupyterhub_gpuspawner.extensions.tunnel.part import parts_of
from jupyterhub_gpuspawner.extensions.tunnel.ports import Ports, TunnelError
from jupyterhub_gpuspawner.extensions.tunnel.server import ServerTunnel, Way, stored_way
from jupyterhub_gpuspawner.extensions.tunnel.ssh import Forward
from jupyterhub_gpuspawner.extensions.tunnel.tunnels import Tunnels
from jupyterhub_gpuspawner.hub.spawners.server import Server
from tests.extensions.tunnel.machines import free_range

SSH = "ssh -F /etc/config tunnel"
WORDS = tuple(SSH.split())
FIRST, LAST = free_range(3)
STORED = {"ssh": list(WORDS), "number": 1, "pid": 7, "local": FIRST, "host": "g1", "port": 20000}


class Connection(Master):
    """A connection that is there, or is not."""

    there = True

    async def keep_up(self) -> None:
        self.fault = None if self.there else TunnelError("no login node.", hint="Look.")
        if self.fault is not None:
            raise self.fault
        self.made = set(self.wanted)

    def made_by(self, forward: Any) -> int:  # noqa: ARG002 - all are made by one
        return 7

    async def holder(self) -> str:
        return "/run/tunnel-ports"

    async def end(self, forward: Any) -> None:
        self.wanted.discard(forward)
        self.made.discard(forward)


class Hub(Tunnels):
    """The tunnels of a hub, which nobody looks after."""

    def __init__(self) -> None:
        super().__init__()
        self.connections: dict[Any, Connection] = {}

    def master(self, words: Any, number: int) -> Master:
        return self.connections.setdefault((tuple(words), number), Connection(words, number))


@pytest.fixture(autouse=True)
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The holder holds everything; ports are free when a test ends."""
    hubs: list[Ports] = []
    make = Ports.__init__

    def known(self: Ports, ports: Iterable[int]) -> None:
        make(self, ports)
        hubs.append(self)

    async def holds(*_: object) -> bool:
        return True

    monkeypatch.setattr(Ports, "__init__", known)
    for name in ("keep", "drop", "held_again"):
        monkeypatch.setattr(Ports, name, holds)
    yield
    for ports in hubs:
        ports.close()


class Proxy:
    """Leads nowhere."""

    async def get_all_routes(self) -> Mapping[str, Any]:
        return {}


def spawner_with(tunnel: str = SSH, *, port_range: str = "20000-20009", hub: Hub | None = None) -> Any:
    """A spawner as far as the way asks it."""
    tunnels = hub or Hub()
    return SimpleNamespace(
        tunnel=tunnel,
        tunnel_ports=f"{FIRST}-{LAST}",
        tunnel_connections=1,
        tunnel_to_hub=False,
        port_range=port_range,
        hub_state=SimpleNamespace(of={Tunnels: tunnels}.get),
        name="",
        _log_name="ada",
        user=SimpleNamespace(name="ada", settings={"proxy": Proxy()}),
        watch=SimpleNamespace(notify=lambda: None),
        report=SimpleNamespace(port=20000, entrance=None),
        server=SimpleNamespace(port=FIRST),
    )


async def test_without_a_tunnel_the_hub_connects_itself() -> None:
    """Nothing is stored, said or opened."""
    way = ServerTunnel(spawner_with(""))

    assert await way.reach("g1", 20000) is None
    assert (way.carries(), dict(way.to_state()), way.awaits(), await way.unreached()) == (False, {}, "", "")
    assert await way.reached_again()


async def test_a_server_has_its_port_until_it_listens_elsewhere() -> None:
    """Two servers have two; that of a server that has ended is free again."""
    hub = Hub()
    one, two = (ServerTunnel(spawner_with(hub=hub)) for _ in range(2))
    first = [await one.reach("g1", 20000), await two.reach("g1", 20001), await one.reach("g1", 20000)]
    stored = dict(one.to_state())
    moved = await one.reach("", 20005)
    await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))
    two.forget()
    await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))
    again = [await two.reach("g1", 20006)]

    assert first == [("127.0.0.1", FIRST), ("127.0.0.1", FIRST + 1), ("127.0.0.1", FIRST)]
    assert stored == {"tunnel": STORED}
    assert moved == ("127.0.0.1", LAST)
    assert one.way is not None
    assert one.way.forward == Forward(LAST, "g1", 20005)
    assert again == [("127.0.0.1", FIRST)]


async def test_a_server_whose_connection_has_ended_gets_another_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where there is no other: then its own, once no route leads there."""
    monkeypatch.setattr(module, "AGAIN_SECONDS", 0.01)
    hub, where = Hub(), []
    servers = [ServerTunnel(spawner_with(hub=hub)) for _ in range(3)]
    for number in (0, 1, 0, 2, 0):
        way = servers[number].way
        if way is not None:
            hub.master(way.words, way.number).wanted.discard(way.forward)  # as with the connection
        where.append((await servers[number].reach("g1", 20000 + number))[1] - FIRST)  # type: ignore[index]
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))

    assert where == [0, 1, 2, 0, 2]


@pytest.mark.parametrize(
    ("host", "port", "fault"),
    [
        ("g1", 22, "port 22, which the job has reported, is not in port_range."),
        ("g1", 20010, "port 20010, which the job has reported, is not in port_range."),
        ("g1:22 -R 1:g1", 20000, "'g1:22 -R 1:g1' is no host to which a tunnel can lead."),
        ("", 20000, "'' is no host to which a tunnel can lead."),
    ],
)
async def test_a_job_does_not_choose_where_its_tunnel_leads(host: str, port: int, fault: str) -> None:
    """Its host is the node that Slurm names, and its port one of the range; administrators read why it is refused."""
    way = ServerTunnel(spawner_with())
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(way.reach(host, port), 0.05)

    assert (way.way, await way.unreached(), way.awaits()) == (None, fault, words.MISSING)


async def test_a_start_waits_for_the_login_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page says so meanwhile; no port is lost by the tries."""
    monkeypatch.setattr(module, "AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(Connection, "there", False)
    way = ServerTunnel(spawner_with())
    reaching = asyncio.ensure_future(way.reach("g1", 20000))
    await asyncio.sleep(0.2)
    said = way.awaits(), await way.unreached()
    monkeypatch.setattr(Connection, "there", True)

    where = await reaching
    assert where in [("127.0.0.1", port) for port in range(FIRST, LAST + 1)]
    assert said == (words.MISSING, "no login node. Look.")
    assert (way.awaits(), dict(way.to_state())) == ("", {"tunnel": {**STORED, "local": where[1]}})


@pytest.mark.parametrize("leads_back", [False, True])
async def test_a_start_whose_job_cannot_report_says_so(leads_back: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where jobs report through the tunnel, and until the connection is back."""
    spawner = spawner_with()
    spawner.tunnel_to_hub = leads_back
    way, back = ServerTunnel(spawner), spawner.hub_state.of(Tunnels).master(WORDS, 1)
    said = [way.awaits()]
    for there in (False, True):
        monkeypatch.setattr(Connection, "there", there)
        with suppress(TunnelError):
            await back.keep_up()
        said.append(way.awaits())

    assert said == ["", words.MISSING if leads_back else "", ""]


async def test_a_start_that_is_cancelled_leaves_no_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not there was a connection."""
    hub = Hub()
    monkeypatch.setattr(Connection, "there", False)
    for _ in range(5):
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(ServerTunnel(spawner_with(hub=hub)).reach("g1", 20000), 0.02)
    monkeypatch.setattr(Connection, "there", True)

    ways = [await ServerTunnel(spawner_with(hub=hub)).reach("g1", 20000 + number) for number in range(3)]
    assert sorted(filter(None, ways)) == [("127.0.0.1", FIRST + number) for number in range(3)]


@pytest.mark.parametrize(
    ("stored", "way"),
    [
        (STORED, Way(WORDS, 1, Forward(FIRST, "g1", 20000), 7)),
        ({**STORED, "pid": 0}, Way(WORDS, 1, Forward(FIRST, "g1", 20000))),
        (None, None),
        ({}, None),
        ([STORED], None),
        ({**STORED, "ssh": []}, None),
        ({**STORED, "ssh": [1]}, None),
        ({**STORED, "ssh": SSH}, None),
        ({**STORED, "local": "26000"}, None),
        ({**STORED, "host": "g1 -R 1:g1:22"}, None),
        ({name: value for name, value in STORED.items() if name != "port"}, None),
    ],
)
def test_a_stored_way_is_read_as_a_whole_or_not_at_all(stored: object, way: Way | None) -> None:
    """The state may be another version's."""
    assert stored_way(stored) == way
    assert way is None or stored_way(way.to_state()) == way


async def test_a_restarted_hub_goes_on_with_a_way_and_gives_it_to_one_server() -> None:
    """Also where the setting is another one by now."""
    hub = Hub()
    one, two, new = (ServerTunnel(spawner_with(tunnel, hub=hub)) for tunnel in ("", SSH, SSH))
    one.load({"tunnel": STORED})
    two.load({"tunnel": STORED})

    assert (one.way, two.way) == (stored_way(STORED), None)
    assert [way.spawner.report.entrance for way in (one, two)] == [("127.0.0.1", FIRST), None]
    assert await one.reached_again()
    assert await one.reach("g1", 20000) == ("127.0.0.1", FIRST)
    assert await new.reach("g1", 20001) == ("127.0.0.1", FIRST + 1)


async def test_a_restarted_hub_keeps_a_server_whose_way_is_not_there_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The card says so, too."""
    monkeypatch.setattr(Connection, "there", False)
    way = ServerTunnel(spawner_with())
    way.load({"tunnel": STORED})

    assert not await way.reached_again()
    assert way.is_interrupted


@pytest.mark.parametrize(
    ("server", "there", "shown"),
    [
        (Server(ready=True), False, [words.INTERRUPTED]),
        (Server(ready=True), True, []),
        (Server(pending="spawn"), False, []),
        (Server(), False, []),
    ],
)
async def test_a_card_says_that_the_connection_is_gone(
    monkeypatch: pytest.MonkeyPatch, server: Server, *, there: bool, shown: list[str]
) -> None:
    """Of a server that runs, alone."""
    monkeypatch.setattr(Connection, "there", there)
    way = ServerTunnel(spawner_with())
    way.load({"tunnel": STORED})
    await way.reached_again()
    monkeypatch.setattr("jupyterhub_gpuspawner.extensions.tunnel.part.kept_with", lambda _spawner, _kind: way)

    assert [part.shown for part in parts_of(None, server)] == shown
