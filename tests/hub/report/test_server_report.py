"""A server's reports: what is accepted when, what is shown, and what a restarted hub knows of them."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jupyterhub import objects, orm
from sqlalchemy.exc import OperationalError

from jupyterhub_gpuspawner.errors import ReportError
from jupyterhub_gpuspawner.hub.extension import WithServer
from jupyterhub_gpuspawner.hub.extensions import ServerExtensions
from jupyterhub_gpuspawner.hub.report.server_report import ReportTooEarly, ServerReport
from jupyterhub_gpuspawner.hub.site.database import StoredState
from jupyterhub_gpuspawner.wire.documents import NodeReport, PlacementDocument, PortReport, StartFailure
from tests.fixtures.databases import hub_session

LOG = logging.getLogger("test")
PLACEMENT = PlacementDocument(job_id="7", node="g1", cpus="0-3")
REPORT = NodeReport(20001, PLACEMENT, {"version": 1})


class Proxy:
    """Remembers the routes that were changed."""

    def __init__(self) -> None:
        self.changed: list[str] = []

    async def add_user(self, _user: object, name: str) -> None:
        self.changed.append(f"add {name}")

    async def delete_user(self, _user: object, name: str) -> None:
        self.changed.append(f"delete {name}")


class Spawner:
    """A spawner as JupyterHub knows it, without a row in the database."""

    orm_spawner: Any = None
    log = LOG
    _log_name = "ann:lab"
    cluster = ""
    watch = SimpleNamespace(notify=lambda: None)
    server_extensions = ServerExtensions()

    def __init__(self, job_id: str = "7") -> None:
        self.job_id = job_id
        self.server: Any = None
        self.name = "lab"
        self.pending: str | None = "spawn"
        self.proxy = Proxy()
        self.user = SimpleNamespace(settings={"proxy": self.proxy})

    @property
    def ready(self) -> bool:
        return self.server is not None and self.pending is None

    def serve(self, port: int) -> None:
        """The server has answered JupyterHub at this port."""
        self.server, self.pending = SimpleNamespace(port=port), None

    def get_state(self) -> dict[str, Any]:
        return {"port": self.server.port} if self.server is not None else {}


class Stored(StoredState):
    """Counts how often the state is stored."""

    times = 0

    def store(self) -> None:
        self.times += 1


async def _background_ended() -> None:
    """Wait until the hub has done what it does after it has answered a report."""
    await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))


class Away(StoredState):
    """In a database that may take no changes."""

    away = False

    def store(self) -> None:
        if self.away:
            raise OperationalError("UPDATE", {}, Exception("disk I/O error"))
        super().store()


class Server:
    """A Slurm job's server and its report."""

    def __init__(self, job_id: str = "7") -> None:
        self.spawner = Spawner(job_id)
        self.state = Stored(self.spawner, server="ann:lab", log=LOG)
        self.report = ServerReport(self.spawner, self.state)


def test_a_report_is_stored_and_its_placement_waits_for_slurm() -> None:
    """The port and the topology count at once."""
    server = Server()
    server.report.accept(REPORT)
    report = server.report

    assert (report.port, report.topology, report.claimed, report.placement) == (20001, REPORT.topology, PLACEMENT, None)
    assert (report.reported.is_set(), server.state.times) == (True, 1)

    report.place(PLACEMENT)

    assert report.placement == PLACEMENT


REFUSED: dict[str, tuple[str, str | None, type[ReportError], str]] = {
    "another job": ("8", "spawn", ReportError, "placement.job_id: must be 8, the job of this server"),
    "sbatch has not returned": ("", "spawn", ReportTooEarly, "server: its job is not known yet"),
    "nothing starts": ("", None, ReportError, "server: it is not being started"),
}


@pytest.mark.parametrize(("job_id", "pending", "kind", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_a_report_of_another_start_is_refused(
    job_id: str, pending: str | None, kind: type[ReportError], message: str
) -> None:
    """Nothing of it is kept."""
    server = Server(job_id)
    server.spawner.pending = pending
    with pytest.raises(ReportError) as refused:
        server.report.accept(REPORT)

    assert (type(refused.value), str(refused.value)) == (kind, message)
    assert (server.report.port, server.report.claimed, server.state.times) == (0, None, 0)


def test_a_server_that_is_ready_may_report_again_and_say_nothing_new() -> None:
    """The same report is a launcher's second try; another placement is refused."""
    server = Server()
    server.report.accept(REPORT)
    server.spawner.serve(20001)
    server.report.accept(NodeReport(20001, PLACEMENT, REPORT.topology, PortReport("process")))

    with pytest.raises(ReportError, match="server: it is ready and has already reported"):
        server.report.accept(NodeReport(20001, PlacementDocument(job_id="7", node="g2")))
    assert server.report.claimed == PLACEMENT


@pytest.mark.parametrize(("port", "door", "route"), [(20002, None, "add lab"), (0, PortReport("taken"), "delete lab")])
async def test_the_hub_follows_a_server_to_another_port(port: int, door: PortReport | None, route: str) -> None:
    """Its address and the proxy's route; if its port is taken the route goes, so nobody is led to another process."""
    server = Server()
    server.report.accept(REPORT)
    server.report.hand_over()
    server.spawner.serve(20001)
    server.report.accept(NodeReport(port, PLACEMENT, door=door))
    await _background_ended()

    assert (server.report.port, server.spawner.server.port, server.spawner.proxy.changed) == (port, port, [route])


@pytest.mark.parametrize(("port", "door", "route"), [(20002, None, "add lab"), (0, PortReport("taken"), "delete lab")])
async def test_the_proxy_follows_a_server_while_the_database_takes_no_changes(
    tmp_path: Path, port: int, door: PortReport | None, route: str
) -> None:
    """The launcher is not answered, so it reports again; what it reported is stored then, the address included."""
    with hub_session(f"sqlite:///{tmp_path}/hub.sqlite") as db:
        user = orm.User(name="ann")
        row = orm.Spawner(name="lab", user=user, server=orm.Server(ip="g1", port=20001))
        db.add_all([user, row])
        db.commit()
        server = Server()
        server.spawner.orm_spawner = row
        server.report = ServerReport(server.spawner, state := Away(server.spawner, server="ann:lab", log=LOG))
        server.report.accept(REPORT)
        server.report.hand_over()
        server.spawner.server, server.spawner.pending = objects.Server(orm_server=row.server), None
        moved = NodeReport(port, PLACEMENT, door=door)
        state.away = True
        with pytest.raises(OperationalError):
            server.report.accept(moved)
        db.rollback()
        await _background_ended()
        routes, stored_before = list(server.spawner.proxy.changed), row.server.port
        state.away = False
        server.report.accept(moved)
        db.expire_all()

        assert (routes, stored_before, row.server.port, row.state) == ([route], 20001, port, {"port": port})


class Ways(WithServer):
    """Makes the hub's way to the server: another port for each place."""

    def __init__(self) -> None:
        super().__init__(None)
        self.asked: list[tuple[str, int]] = []

    async def reach(self, host: str, port: int) -> tuple[str, int]:
        """The next port."""
        self.asked.append((host, port))
        return "127.0.0.1", 26000 + len(self.asked)


@pytest.mark.parametrize(
    ("port", "door", "routes", "asked", "local"),
    [
        (20002, None, ["delete lab", "add lab"], [("g1", 20002)], 26001),
        (0, PortReport("taken"), ["delete lab", "delete lab"], [], 0),
    ],
)
async def test_the_way_to_a_server_follows_it_when_its_route_is_gone(
    port: int, door: PortReport | None, routes: list[str], asked: list[tuple[str, int]], local: int
) -> None:
    """Where an extension makes that way, JupyterHub has its port, and the route goes before another way is made."""
    server, ways = Server(), Ways()
    server.spawner.server_extensions = ServerExtensions([("ways", ways)])
    server.report.accept(REPORT)
    server.report.address, server.report.entrance = "g1", ("127.0.0.1", 26000)
    at_first = server.report.where
    server.report.hand_over()
    server.spawner.serve(26000)
    server.report.accept(NodeReport(port, PLACEMENT, door=door))
    at_once = server.spawner.server.port
    await _background_ended()

    assert (at_first, at_once) == (("127.0.0.1", 26000), 0)
    assert (server.report.port, server.spawner.server.port, server.spawner.proxy.changed) == (port, local, routes)
    assert ways.asked == asked


@pytest.mark.parametrize("ready", [True, False])
async def test_a_first_report_that_comes_late_does_not_take_the_port_away(ready: bool) -> None:
    """It was written before the server listened, and was on its way for longer than the report after it."""
    server = Server()
    server.report.accept(REPORT)
    server.report.hand_over()
    if ready:
        server.spawner.serve(20001)
    server.report.accept(NodeReport(0, PLACEMENT))
    await _background_ended()

    assert (server.report.port, server.report.accepted, server.spawner.proxy.changed) == (20001, REPORT, [])


async def test_a_port_that_changes_during_the_start_changes_no_route() -> None:
    """JupyterHub has not been given an address yet."""
    server = Server()
    server.report.accept(NodeReport(0, PLACEMENT, door=PortReport("taken")))
    server.report.accept(NodeReport(20002, PLACEMENT))
    await _background_ended()

    assert (server.report.port, server.report.port_taken, server.spawner.proxy.changed) == (20002, True, [])


def test_a_hub_without_jobs_on_several_nodes_refuses_the_report_of_another_node() -> None:
    """Nothing of it is kept."""
    server = Server()
    with pytest.raises(ReportError, match=r"^other_node: nothing in this hub takes the report of another node$"):
        server.report.accept(NodeReport(0, PlacementDocument(job_id="7", node="g2"), other_node=True))
    assert server.report.to_state() == {}


def test_a_restarted_hub_knows_what_was_reported() -> None:
    """The placement that was shown, or the claim that was to be compared."""
    before, after = Server(), Server()
    before.report.accept(REPORT)
    claim_state = before.report.to_state()
    before.report.place(PLACEMENT)
    placement_state = before.report.to_state()
    after.report.load(claim_state)

    assert claim_state == {"port": 20001, "claimed": PLACEMENT.to_json(), "topology": REPORT.topology}
    assert placement_state == {"port": 20001, "placement": PLACEMENT.to_json(), "topology": REPORT.topology}
    assert (after.report.claimed, after.report.placement, after.report.reported.is_set()) == (PLACEMENT, None, True)

    after.report.load(placement_state)

    assert (after.report.placement, after.report.to_state()) == (PLACEMENT, placement_state)


def test_the_memory_that_was_requested_is_kept_with_the_placement() -> None:
    """A node does not say it, and a later report, after a restart of the hub, does not take it away."""
    before, after = Server(), Server()
    before.report.accept(NodeReport(0, replace(PLACEMENT, memory_mib=7)), memory_mib=4096)
    after.report.load(before.report.to_state())
    after.report.accept(REPORT)
    assert [server.report.claimed for server in (before, after)] == [replace(PLACEMENT, memory_mib=4096)] * 2


def test_a_new_start_knows_nothing_of_the_last_one() -> None:
    """Who waits for its report, waits."""
    server = Server()
    server.report.accept(REPORT)
    server.report.place(PLACEMENT)
    server.report.forget()

    assert server.report.to_state() == {}
    assert (server.report.reported.is_set(), server.report.placement, server.report.address) == (False, None, "")


FULL = StartFailure("home_full", "/home/ada")
MISSING = StartFailure("command", "jupyterhub-singleuser")
ENDED = StartFailure("server", line="Killed")


@pytest.mark.parametrize(
    ("failures", "reason"),
    [
        ((ENDED,), ENDED),
        ((FULL, ENDED), replace(FULL, line="Killed")),
        ((FULL, MISSING, ENDED), MISSING),
        ((MISSING, ENDED), MISSING),
    ],
)
def test_why_a_start_fails_is_kept_by_what_says_most(failures: tuple[StartFailure, ...], reason: StartFailure) -> None:
    """That the server has ended follows from everything before, but it may have written why; restarted hubs know it."""
    before, after = Server(), Server()
    for failure in failures:
        before.report.accept(NodeReport(0, PlacementDocument(job_id="7"), failure=failure))
    after.report.load(json.loads(json.dumps(before.report.to_state())))

    assert (before.report.failure, after.report.failure) == (reason, reason)


def test_only_a_folders_fault_comes_with_a_placement() -> None:
    """A job that ends has no server to be placed; what it wrote is shown without secrets."""
    starts, ends = Server(), Server()
    starts.report.accept(replace(REPORT, failure=FULL))
    ends.report.accept(NodeReport(0, PLACEMENT, failure=replace(ENDED, line="token=abcdef123456 refused")))

    assert (starts.report.port, starts.report.claimed) == (REPORT.port, PLACEMENT)
    assert (ends.report.reported.is_set(), ends.report.claimed) == (False, None)
    assert ends.report.failure == replace(ENDED, line="token=(not shown) refused")


def test_a_server_that_is_ready_has_started() -> None:
    """Whatever its job reports later."""
    server = Server()
    server.report.accept(REPORT)
    server.spawner.serve(REPORT.port)
    server.report.accept(NodeReport(0, PLACEMENT, failure=ENDED))

    assert (server.report.failure, server.report.port) == (None, REPORT.port)
