"""The measurements of one system: many starts at once, waiting users, idle servers."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from .cluster import allocate, cancel_all, fill, rpcs
from .floor import script_of
from .held import as_held, one_for_all, write_database
from .hubs import Hub, Person, Testbed, people
from .systems import OURS, System

DAEMONS = ("REQUEST_STEP", "REQUEST_COMPLETE", "MESSAGE_", "REQUEST_PING", "REQUEST_JOB_ALLOCATION", "REQUEST_KILL")
"""RPCs of Slurm's own daemons, and of the benchmark."""


def from_outside(counts: Counter[str]) -> dict[str, int]:
    """RPCs caused by commands of the hub and the jobs."""
    return {kind: count for kind, count in sorted(counts.items()) if count and not kind.startswith(DAEMONS)}


@dataclass
class Started:
    """Results of a phase in which users click at once."""

    users: int
    ready: list[float]
    """Seconds from the click, sorted."""
    commands: dict[str, int]
    rpcs: dict[str, int]
    hub_cpu: float
    commands_cpu: float
    memory: float
    """Memory of the hub afterwards, in MiB."""
    blocked: float
    """Longest time in ms for which the spawner's code blocked the event loop."""
    blocked_where: str
    blocked_cpu: float
    """The longest processor time in ms of the spawner's code in one callback, and below, where that was."""
    blocked_cpu_where: str
    blocked_by_all: float
    """The longest time in ms for which the whole hub blocked the event loop."""
    failures: list[str] = field(default_factory=list)


@dataclass
class Rate:
    """Results of a phase in which nobody does anything."""

    users: int
    seconds: float
    rpcs: dict[str, int]
    commands: dict[str, int]
    hub_cpu: float
    """Processor time in seconds."""
    memory: float
    blocked: float = 0.0
    blocked_where: str = ""

    @property
    def per_second(self) -> float:
        """RPCs per second."""
        return sum(self.rpcs.values()) / self.seconds


@dataclass
class Crowd:
    """Results of a phase in which many users click at once on a full cluster, and then watch their waiting pages."""

    users: int
    submitted: int
    """Jobs in Slurm's queue in the end."""
    seconds: float
    """From the clicks until the last job was submitted."""
    failures: list[str]
    hub_cpu: float
    home: list[float]
    """Seconds that the home page took meanwhile for another user, sorted."""
    blocked: float
    blocked_cpu: float
    blocked_cpu_where: str


@dataclass
class Streams:
    """Results of a phase in which waiting pages are open."""

    streams: int
    memory: float
    """MiB by which the hub grew."""
    hub_cpu: float
    """Seconds of processor time in a second, less those without the streams."""
    rpcs_per_second: float
    rpcs_per_second_before: float


@dataclass
class Measured:
    """All results of one system."""

    system: str
    started: Started | None = None
    waiting: list[Rate] = field(default_factory=list)
    rest: list[Rate] = field(default_factory=list)
    crowd: Crowd | None = None
    streams: Streams | None = None
    scripts: list[str] = field(default_factory=list)
    """The scripts of our jobs, to submit them with plain sbatch."""
    state: dict[str, Any] | None = None
    """The state of one server, as stored by the hub."""

    def as_json(self) -> dict[str, Any]:
        """The results as a dict for ``--json``."""
        document = asdict(self)
        del document["scripts"], document["state"]
        return document


def longest(blocks: list[dict[str, Any]], what: str = "spawner") -> tuple[float, str]:
    """Longest time in ms for which the spawner blocked the loop, and where; ``what`` as ``loop_watch`` says."""
    worst = max(blocks, key=lambda block: float(block[what]), default=None)
    return (float(worst[what]), str(worst["where"])) if worst and worst[what] else (0.0, "")


async def start(
    testbed: Testbed, system: System, measured: Measured, *, users: int, rest: float, timeout: float
) -> None:
    """All users click at once; then, with their servers running, nobody does anything."""
    names = [f"user{number:03d}" for number in range(users)]
    async with fresh(testbed, system, "start") as hub:
        before = rpcs(testbed.slurm)
        crowd = await people(hub, names)
        cpu, blocks = hub.cpu(), len(hub.blocks())
        began = time.monotonic()
        clicks = [asyncio.create_task(person.click()) for person in crowd]
        ready = await hub.until_ready(set(names), began, timeout=timeout)
        after = hub.cpu()
        failures = [click.result() for click in clicks if click.done() and click.result()]
        held = hub.blocks(blocks)
        where = longest(held)
        measured.started = Started(
            users=users,
            ready=sorted(round(seconds, 2) for seconds in ready.values()),
            commands=dict(sorted(hub.commands.counts().items())),
            rpcs=from_outside(rpcs(testbed.slurm) - before),
            hub_cpu=round(after[0] - cpu[0], 2),
            commands_cpu=round(after[1] - cpu[1], 2),
            memory=round(hub.memory(), 1),
            blocked=where[0],
            blocked_where=where[1],
            blocked_cpu=longest(held, "spawner_cpu")[0],
            blocked_cpu_where=longest(held, "spawner_cpu")[1],
            blocked_by_all=max((float(block["held"]) for block in held), default=0.0),
            failures=failures,
        )
        for click in clicks:
            click.cancel()
        states = await asyncio.to_thread(hub.states)
        measured.state = next(iter(states.values()), None)
        if system is OURS:
            jobs = [state["job_id"] for state in states.values()]
            measured.scripts = [await asyncio.to_thread(script_of, testbed.slurm, job) for job in jobs]
        if rest:
            measured.rest.append(await at_rest(testbed, hub, users=len(ready), seconds=rest))


async def waiting(testbed: Testbed, system: System, measured: Measured, *, steps: list[int], seconds: float) -> None:
    """The cluster is full: RPCs while different numbers of users wait."""
    fill(testbed.slurm, testbed.users)
    async with fresh(testbed, system, "waiting") as hub:
        waits: list[asyncio.Task[str]] = []
        for step in steps:
            names = [f"wait{number:03d}" for number in range(len(waits), step)]
            submitted = rpcs(testbed.slurm)["REQUEST_SUBMIT_BATCH_JOB"]
            crowd = await people(hub, names)
            waits += [asyncio.create_task(person.click()) for person in crowd]
            for _ in range(600):
                if rpcs(testbed.slurm)["REQUEST_SUBMIT_BATCH_JOB"] - submitted >= len(names):
                    break
                await asyncio.sleep(0.2)
            await asyncio.sleep(3.0)  # the last of them has been asked about
            measured.waiting.append(await rate(testbed, hub, users=step, seconds=seconds))
        for wait in waits:
            wait.cancel()


async def crowd(
    testbed: Testbed, system: System, measured: Measured, *, users: int, streams: int, timeout: float
) -> None:
    """The cluster is full: many users click at once while another one opens the home page; then they watch."""
    fill(testbed.slurm, testbed.users)
    async with fresh(testbed, system, "crowd") as hub:
        names = [f"crowd{number:03d}" for number in range(users)]
        clickers = await people(hub, names)
        visitor = (await people(hub, ["visitor"]))[0]
        before, blocks, cpu = await queued(testbed), len(hub.blocks()), hub.cpu()[0]
        home: list[float] = []
        visits = asyncio.create_task(visitor.visit_home(home))
        began = time.monotonic()
        clicks = [asyncio.create_task(person.click()) for person in clickers]
        submitted = 0
        while submitted < users and time.monotonic() - began < timeout:
            await asyncio.sleep(0.2)
            submitted = await queued(testbed) - before
        seconds = time.monotonic() - began
        failures = [error for error in await asyncio.gather(*clicks) if error]
        visits.cancel()
        new_blocks = hub.blocks(blocks)
        measured.crowd = Crowd(
            users=users,
            submitted=submitted,
            seconds=round(seconds, 1),
            failures=failures,
            hub_cpu=round(hub.cpu()[0] - cpu, 2),
            home=sorted(round(duration, 3) for duration in home),
            blocked=longest(new_blocks)[0],
            blocked_cpu=longest(new_blocks, "spawner_cpu")[0],
            blocked_cpu_where=longest(new_blocks, "spawner_cpu")[1],
        )
        if streams:
            measured.streams = await open_streams(testbed, hub, clickers, streams)


async def open_streams(
    testbed: Testbed, hub: Hub, watching: list[Person], streams: int, *, seconds: float = 20.0
) -> Streams:
    """Open so many progress streams of servers that wait; each has sent its first event before it is measured."""

    async def resting() -> tuple[float, float]:
        counted, cpu, began = rpcs(testbed.slurm), hub.cpu()[0], time.monotonic()
        await asyncio.sleep(seconds)
        passed = time.monotonic() - began
        rpc_count = sum(from_outside(rpcs(testbed.slurm) - counted).values())
        return rpc_count / passed, (hub.cpu()[0] - cpu) / passed

    rpcs_before, cpu_before = await resting()
    memory = hub.memory()
    async with AsyncExitStack() as opened:
        for number in range(streams):
            await opened.enter_async_context(watching[number % len(watching)].progress())
        rpcs_with, cpu_with = await resting()
        grown = hub.memory() - memory
    return Streams(
        streams=streams,
        memory=round(grown, 1),
        hub_cpu=round(cpu_with - cpu_before, 3),
        rpcs_per_second=round(rpcs_with, 2),
        rpcs_per_second_before=round(rpcs_before, 2),
    )


async def queued(testbed: Testbed) -> int:
    """The number of jobs that Slurm knows, running or pending."""
    return len((await asyncio.to_thread(testbed.slurm.run, "squeue", "-h", "-o", "%i")).split())


async def held(testbed: Testbed, system: System, measured: Measured, *, servers: int, seconds: float) -> None:
    """Many idle servers, found in the database by a hub that has just started."""
    state = measured.state
    if state is None:
        return
    jobs = await allocate(testbed.slurm, servers, comment=state["identity"]["tag"])
    async with one_for_all() as port:
        hub = Hub(testbed, system, f"held{servers}")
        write_database(hub.database, [as_held(state, job, port) for job in jobs], port=port)
        async with running(testbed, hub):
            await until_kept(hub, servers, timeout=120.0)
            measured.rest.append(await at_rest(testbed, hub, users=servers, seconds=seconds))


async def until_kept(hub: Hub, servers: int, *, timeout: float) -> None:
    """Wait until so many servers have a route, which the hub adds to them one by one; raises RuntimeError."""
    ends_at = time.monotonic() + timeout
    while (routes := len(await hub.ready())) < servers:
        if time.monotonic() > ends_at:
            raise RuntimeError(f"The hub has kept {routes} of {servers} servers that it found in its database.")
        await asyncio.sleep(0.5)


async def at_rest(testbed: Testbed, hub: Hub, *, users: int, seconds: float) -> Rate:
    """RPCs while nobody does anything."""
    await asyncio.sleep(5.0)  # whatever was hurried is over
    return await rate(testbed, hub, users=users, seconds=seconds)


async def rate(testbed: Testbed, hub: Hub, *, users: int, seconds: float) -> Rate:
    """RPCs within about ``seconds``; for ours, which queries periodically, from one squeue to a later one."""
    turns = hub.system is OURS
    if turns:
        await hub.commands.next("squeue", timeout=60.0)
        await asyncio.sleep(0.3)  # it has been answered
    began, before = time.monotonic(), rpcs(testbed.slurm)
    ran, cpu, blocks = hub.commands.counts(), hub.cpu()[0], len(hub.blocks())
    await asyncio.sleep(seconds - 2.0 if turns else seconds)
    if turns:
        await hub.commands.next("squeue", timeout=60.0)
        await asyncio.sleep(0.3)
    passed = time.monotonic() - began
    where = longest(hub.blocks(blocks))
    return Rate(
        users=users,
        seconds=round(passed, 2),
        rpcs=from_outside(rpcs(testbed.slurm) - before),
        commands=dict(hub.commands.counts() - ran),
        hub_cpu=round(hub.cpu()[0] - cpu, 2),
        memory=round(hub.memory(), 1),
        blocked=where[0],
        blocked_where=where[1],
    )


@asynccontextmanager
async def fresh(testbed: Testbed, system: System, name: str) -> AsyncIterator[Hub]:
    """A hub with an empty database; its jobs are cancelled at the end."""
    async with running(testbed, Hub(testbed, system, name)) as hub:
        yield hub


@asynccontextmanager
async def running(testbed: Testbed, hub: Hub) -> AsyncIterator[Hub]:
    """A started hub; its jobs are cancelled at the end."""
    try:
        async with hub:
            yield hub
    finally:
        await cancel_all(testbed.slurm)
