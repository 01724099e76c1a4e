"""The check for idle servers: one pass over all servers of a hub, and a hub that is restarted meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from jupyterhub import orm
from sqlalchemy import event
from sqlalchemy.orm import Session
from traitlets.config import Config

from jupyterhub_gpuspawner.hub.idle import SERVERS, NotKept, State, due_since
from jupyterhub_gpuspawner.hub.idle_watch import IdleWatch, idle_record
from jupyterhub_gpuspawner.hub.report.server_report import Use
from jupyterhub_gpuspawner.hub.spawners.server import keep_server, server_of
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.records.record import Cause, Kind
from jupyterhub_gpuspawner.slurm.job import Job, Phase
from jupyterhub_gpuspawner.wire.documents import GpuUse, PlacedGpu, PlacementDocument, UsageSummary
from tests.fixtures.databases import hub_session
from tests.standins.hub_spawner import HubSpawner

START = 1_772_442_000.0
PLACED = PlacementDocument(job_id="12", node="g1", gpus=(PlacedGpu(0, "GPU-a"), PlacedGpu(1, "GPU-b")))
RULE = {"gpu": "60min", "action": "tell", "keep": {"by": "30min", "times": 1}}


class Server(HubSpawner):
    """A spawner of ours with a job that runs, whose GPUs are not used."""

    usage: Any

    def __init__(self, user: str, *, held_mib: int = 400) -> None:
        super().__init__(SimpleNamespace(name=user), job=Job("12", Phase.RUNNING), ready=True)
        self.held_mib = held_mib
        self.report.placement = PLACED
        self.uses: list[Use] = []
        self.usage = SimpleNamespace(last_hour=lambda: tuple(self.uses))

    def unused_until(self, minute: int) -> None:
        gpus = tuple(GpuUse(gpu.index, gpu.uuid, None, 0.0, 0.0, 1.0, 10, 40960, self.held_mib) for gpu in PLACED.gpus)
        self.uses.append(Use(START + 60 * minute, UsageSummary("12", 300.0, 10, 30.0, gpus=gpus)))


@pytest.fixture
def session() -> Iterator[Session]:
    SERVERS.clear()
    with hub_session() as session:
        yield session
    SERVERS.clear()


def hub(session: Session, *servers: Server, **rule: Any) -> IdleWatch:
    """The check in a hub that has just been started, with these servers."""
    SERVERS.clear()
    users = {number: SimpleNamespace(name=each.user.name, spawners={"": each}) for number, each in enumerate(servers)}
    config = Config({"GPUSlurmSpawner": {"idle": {**RULE, **rule}}})
    return IdleWatch(
        SimpleNamespace(
            db=session, users=users, config=config, hub=None, spawner_class=GPUSlurmSpawner, tornado_settings={}
        )
    )


def look(watch: IdleWatch, server: Server, begin: int, end: int) -> list[State]:
    """Look each five minutes, after each summary."""
    states = []
    for minute in range(begin, end + 1, 5):
        server.unused_until(minute)
        watch.run_once(START + 60 * minute + 1)
        states.append(SERVERS["ada", ""].verdict.state)
    return states


IDLE, WARNED, DUE = State.IDLE, State.WARNED, State.DUE


def test_a_hub_that_is_restarted_goes_on_with_what_it_knew(session: Session) -> None:
    """With the time without use, and with how often the server was kept; one row is all that there is of it."""
    server = Server("ada")
    server.orm_spawner = orm.Spawner(name="", user=orm.User(name="ada"))
    session.add(server.orm_spawner)
    session.commit()
    before = look(hub(session, server), server, 5, 35)
    keep_server(server)
    server.uses.clear()  # they were in the old hub's memory
    after = look(hub(session, server), server, 40, 90)

    assert before == [IDLE] * 5 + [WARNED] * 2
    assert after == [IDLE] * 4 + [WARNED] * 6 + [DUE]
    with pytest.raises(NotKept):
        keep_server(server)
    (row,) = due_since(session.connection(), 0.0)
    assert (row.since, row.seen, row.due_at) == (START, START + 5400, START + 5400)
    assert (row.gpus, row.keeps, row.kept, row.action) == (2, 1, 1800.0, "tell")


def test_a_pass_over_many_servers_writes_once(session: Session) -> None:
    """One transaction and one statement for all of them, and none where nothing is new."""
    servers = [Server(f"u{number:02}") for number in range(50)]
    watch = hub(session, *servers)
    for server in servers:
        for minute in (5, 10, 15):
            server.unused_until(minute)
    watch.run_once(START + 901)
    commits: list[object] = []
    event.listen(session, "after_commit", lambda _: commits.append(1))
    updates: list[int] = []

    @event.listens_for(session.get_bind(), "before_cursor_execute")
    def count(_connection: Any, _cursor: Any, statement: str, values: Any, _context: Any, many: bool) -> None:
        if statement.startswith("UPDATE"):
            updates.append(len(values) if many else 1)

    for server in servers:
        server.unused_until(20)
    watch.run_once(START + 1201)
    watch.run_once(START + 1261)

    assert (len(SERVERS), len(commits), updates) == (50, 1, [50])


def test_a_server_that_has_ended_is_forgotten_and_its_row_is_closed(session: Session) -> None:
    """The time without use lasted until then."""
    server = Server("ada")
    watch = hub(session, server)
    look(watch, server, 5, 60)
    server.ready = False
    watch.run_once(START + 3700)

    (row,) = due_since(session.connection(), 0.0)
    assert (SERVERS, row.over, row.seen) == ({}, True, START + 3700)


def test_the_record_of_a_stop_says_what_was_seen(session: Session) -> None:
    """For the card and, as a value, for programs."""
    server = Server("ada", held_mib=12288)
    watch = hub(session, server, gpu="30min")
    look(watch, server, 5, 60)
    record = idle_record(replace(server_of(server), profile_name="Two A100s"), SERVERS["ada", ""], at=START + 3660)

    assert (record.cause, record.stopped, record.at) == (Cause(Kind.IDLE), True, START + 3660)
    assert record.what == (
        "Two A100s was stopped at {time} because it was idle: its GPUs had not been used for 1 h "
        "(at most 1 %, 24 GiB of GPU memory held); job 12 released 2 GPUs."
    )
