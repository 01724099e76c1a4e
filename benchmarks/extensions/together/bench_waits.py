"""How well expected starts are kept: a real Slurm, five patterns of use, and what the hub would say of each start.

    python -m benchmarks.extensions.together.bench_waits [--starts 200] [--write] [--record FILE]
    python -m benchmarks.extensions.together.bench_waits --replay FILE ...

One private Slurm has a partition of its own for each pattern, with 16 simulated GPUs. Its clock is the real one, whose
minutes are counted as :data:`FASTER` minutes: a time limit of one minute stands for one of twenty, and its scheduler is
that much slower. Jobs sleep. What is said of a start is said by the hub's own code, from its snapshots of the cluster
and with what it has learned from the pattern's starts so far, as often as the hub learns: at the click, when the job
begins to wait, and at each half of the rest. ``--write`` writes the figures into docs/explanation/waits-table.md.
``--record`` keeps what was seen of each start, and ``--replay`` says in seconds what the hub would say of the same
starts today: to compare rules.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import chain
from pathlib import Path
from statistics import median
from typing import TextIO

from pydantic import TypeAdapter

from jupyterhub_gpuspawner.demo.slurm_cluster import (
    ClusterDescription,
    PrivateSlurm,
    SimulatedNode,
    SimulatedPartition,
    whole_gpus,
)
from jupyterhub_gpuspawner.errors import GPUSpawnerError
from jupyterhub_gpuspawner.extensions.availability.api import in_the_forms_words, of_start, others_wait
from jupyterhub_gpuspawner.extensions.availability.dry_run import will_run
from jupyterhub_gpuspawner.extensions.availability.model.availability import availability
from jupyterhub_gpuspawner.extensions.availability.model.capacity import queue_position
from jupyterhub_gpuspawner.extensions.records import keeper
from jupyterhub_gpuspawner.extensions.records.keeper import LEARN_SECONDS, FromRecords
from jupyterhub_gpuspawner.extensions.records.promises import (
    Outcome,
    Promise,
    PromiseMoment,
    Wait,
    accuracy,
    learned,
    outcomes,
)
from jupyterhub_gpuspawner.hub.extension import PlannedWait
from jupyterhub_gpuspawner.hub.site.state import HubState
from jupyterhub_gpuspawner.hub.start.attempt import expected_start, planned_start
from jupyterhub_gpuspawner.hub.start.submission import REST
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.commands import Installation
from jupyterhub_gpuspawner.slurm.estimate import UNKNOWN, Availability, Chance, Kind, Waits, expected, starts_now
from jupyterhub_gpuspawner.slurm.job import Job, Phase
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot, Table, free_gpus_of, gpus_of

FASTER = 20.0
"""Minutes that a minute counts as."""
SNAPSHOT_SECONDS = 3.0
"""Real seconds between two snapshots: a minute, as the hub's while somebody waits."""
FRESH_SECONDS = 0.75
"""Real seconds that a snapshot is used for clicks: a quarter of a minute, as the form's."""
REST_SECONDS = REST / FASTER
"""The same after a submission."""
GPUS = 16
CLUSTER = ""
"""The name of the cluster: empty, as in a hub that has only one."""
TABLE = Path(__file__).parents[3] / "docs/explanation/waits-table.md"


@dataclass(frozen=True)
class Wish:
    """A job that somebody asks for; real seconds."""

    at: float
    """From the begin of the pattern."""
    runs: float
    """How long it runs."""
    limit: int
    """Its time limit, in real minutes."""
    gpus: int = 1
    person: bool = True
    """A start that is measured; else another job of the cluster."""


def class_at_nine(starts: int, dice: random.Random) -> Iterator[Wish]:
    """Twenty-five people within ten seconds, for 16 GPUs; the next class when they have left."""
    for number in range(starts):
        begin = number // 25 * 150.0
        yield Wish(begin + dice.uniform(0, 10), dice.uniform(15, 110), 2)


def steady_queue(starts: int, dice: random.Random) -> Iterator[Wish]:
    """People come one by one, as fast as GPUs become free; most leave well before their time limit."""
    at = 0.0
    for number in range(starts):
        if number >= GPUS:
            at += dice.expovariate(1 / 3.2)
        yield Wish(at, dice.uniform(15, 90), 2)


def long_job(starts: int, dice: random.Random) -> Iterator[Wish]:
    """All GPUs are held by one job with a limit of ten hours, which ends after a quarter of one; others wait behind."""
    for number in range(starts):
        begin = number // 25 * 120.0
        if number % 25 == 0:
            yield Wish(begin, 45, 30, GPUS // 2, person=False)
            yield Wish(begin, 45, 30, GPUS // 2, person=False)
        yield Wish(begin + dice.uniform(3, 30), dice.uniform(5, 50), 1)


def backfill(starts: int, dice: random.Random) -> Iterator[Wish]:
    """Short jobs of one GPU beside large ones, which Slurm lets small ones pass where they delay nobody."""
    at = 0.0
    for _ in range(starts):
        at += dice.expovariate(1 / 5.5)
        large = dice.random() < 0.15
        yield Wish(at, dice.uniform(20, 100) if large else dice.uniform(8, 55), 2 if large else 1, 6 if large else 1)


def rush(starts: int, dice: random.Random) -> Iterator[Wish]:
    """Twenty-five people within the age of one snapshot, each with a changed choice."""
    for number in range(starts):
        begin = number // 25 * 150.0
        yield Wish(begin + dice.uniform(0, FRESH_SECONDS), dice.uniform(15, 110), 2)


TRIED = "rush"
"""The pattern in which Slurm is asked also about a choice that starts now: one that was changed."""
PATTERNS = {
    "class": ("a class at nine", class_at_nine),
    "steady": ("a steady queue", steady_queue),
    "long": ("one long job that ends early", long_job),
    "backfill": ("short jobs and backfill", backfill),
    TRIED: ("a class that clicks within 15 s", rush),
}


def cluster() -> ClusterDescription:
    """Two nodes of eight GPUs for each pattern."""
    names = {pattern: (f"{pattern}1", f"{pattern}2") for pattern in PATTERNS}
    return ClusterDescription(
        nodes=tuple(
            SimulatedNode(name, "dgx1", 2, 20, 512000, (whole_gpus("p100", range(8)),))
            for nodes in names.values()
            for name in nodes
        ),
        partitions=tuple(SimulatedPartition(pattern, nodes) for pattern, nodes in names.items()),
        name="waits",
    )


class WithFastBackfill(PrivateSlurm):
    """With a backfill that runs each 20 pretended seconds and plans by the minute; Slurm's defaults: 30 and 60 s."""

    def _write_files(self) -> None:
        super()._write_files()
        self.conf.write_text(self.conf.read_text().replace("bf_interval=5", "bf_interval=1,bf_resolution=3"))


class Clock:
    """The pretended time, in seconds since the epoch."""

    def __init__(self) -> None:
        self._zero = time.time()

    def of(self, real: float) -> float:
        """The pretended time at a real one."""
        return self._zero + (real - self._zero) * FASTER

    def now(self) -> float:
        """The pretended time."""
        return self.of(time.time())

    def _of_known(self, real: float | None) -> float | None:
        return None if real is None else self.of(real)

    def snapshot(self, real: ClusterSnapshot) -> ClusterSnapshot:
        """The snapshot with pretended times."""
        jobs = [
            job._replace(
                submitted_at=self._of_known(job.submitted_at),
                starts_at=self._of_known(job.starts_at),
                ends_at=self._of_known(job.ends_at),
                time_limit=None if job.time_limit is None else round(job.time_limit * FASTER),
            )
            for job in real.jobs
        ]
        return replace(real, jobs=Table.of(type(real.jobs[0]), jobs) if jobs else (), taken_at=self.of(real.taken_at))


class Event(str, Enum):
    """What is seen of a start."""

    CLICK = "click"
    PENDING = "pending"
    STARTED = "started"


@dataclass(frozen=True)
class Observation:
    """What is seen of a start at one moment: all that the hub's sentences depend on."""

    event: Event
    pattern: str
    job_id: str
    at: float
    """The pretended time, in seconds since the epoch."""
    kind: Kind = Kind.UNKNOWN
    """Of a click: what is known of the start."""
    planned: float | None = None
    """When Slurm plans it."""
    reason: str = ""
    """Of a pending job."""
    free: bool = False
    """Whether as many GPUs as a pending job requests are free on one node."""


OBSERVATIONS = TypeAdapter(Observation)


@dataclass
class Start:
    """One measured start."""

    promises: list[Promise]
    free: bool | None = None
    """Whether GPUs were free when it was first seen pending; None before."""
    wait: Wait = field(default_factory=Wait)


class Hub:
    """What the hub says of each start, by its own code, with what it has learned from the pattern's starts so far."""

    def __init__(self) -> None:
        self.open: dict[str, Start] = {}
        self.came: dict[str, list[Outcome]] = {pattern: [] for pattern in PATTERNS}
        self.broken: dict[str, int] = dict.fromkeys(PATTERNS, 0)
        """Promises of "now" that took over a minute although GPUs were free then."""
        self._learned_at = 0.0
        self.state = HubState()

    def waits(self, *, queued: bool) -> Waits:
        """What was learned of waits so far."""
        return lambda partition, planned: keeper.estimate(self.state, PlannedWait(CLUSTER, partition, planned, queued))

    def see(self, observation: Observation) -> None:
        """Say what follows from an observation; of a start that came, compare it with what was said."""
        if observation.at - self._learned_at > LEARN_SECONDS:
            self._learned_at = observation.at
            waiting = (outcomes(start.promises, None, observation.at) for start in self.open.values())
            self.state.keep(FromRecords({CLUSTER: learned(chain(*self.came.values(), *waiting))}))
        if observation.event is Event.CLICK:
            self.open[observation.job_id] = Start([])
            estimate = starts_now() if observation.kind is Kind.NOW else UNKNOWN
            if observation.kind is Kind.EXPECTED and observation.planned is not None:
                estimate = expected(
                    observation.planned, now=observation.at, partition=observation.pattern,
                    waits=self.waits(queued=False),
                )  # fmt: skip
            if estimate is not UNKNOWN:
                promise = Promise(observation.at, PromiseMoment.CLICK, estimate, observation.pattern)
                self.open[observation.job_id].promises.append(promise)
        elif observation.event is Event.PENDING:
            start = self.open[observation.job_id]
            start.free = observation.free if start.free is None else start.free
            job = Job(
                observation.job_id,
                Phase.QUEUED,
                reason=observation.reason,
                partition=observation.pattern,
                starts_at=observation.planned,
            )
            estimate = expected_start(job, None, now=observation.at, waits=self.waits(queued=True))
            promised = start.wait.follow(estimate, observation.pattern, now=observation.at)
            start.promises += [promised] if promised is not None else []
        else:
            start = self.open.pop(observation.job_id)
            for outcome in outcomes(start.promises, observation.at, None):
                self.came[observation.pattern].append(outcome)
                late_now = outcome.promise.estimate.kind is Kind.NOW and outcome.result == "late"
                self.broken[observation.pattern] += bool(late_now and start.free)


class Bench:
    """Clicks, and looks at the cluster as the hub looks while somebody waits."""

    def __init__(self, slurm: PrivateSlurm, record: TextIO | None) -> None:
        self.clock = Clock()
        self.client = SlurmClient(Installation(bin_dir=slurm.bin_dir, environment=slurm.environment))
        self.hub = Hub()
        self.record = record
        self.gpus: dict[str, int] = {}
        """By the id of a job that has not been seen to start: how many it requests."""
        self.submitted_at: dict[str, float] = {}
        self.load: list[float] = []
        """Of the machine, in each minute."""
        self._latest: ClusterSnapshot | None = None
        self._latest_at = self._submitted_at = 0.0
        self._asking = asyncio.Lock()

    def waits(self, *, queued: bool) -> Waits:
        """What was learned of waits so far."""
        return lambda partition, planned: keeper.estimate(
            self.hub.state, PlannedWait(CLUSTER, partition, planned, queued)
        )

    def see(self, observation: Observation) -> None:
        """Have the hub see this, and record it."""
        self.hub.see(observation)
        if self.record is not None:
            self.record.write(f"{OBSERVATIONS.dump_json(observation).decode()}\n")

    async def snapshot(self, age: float) -> ClusterSnapshot:
        """The cluster as it was at most so many real seconds ago, and after the last submission but in a rush."""
        async with self._asking:
            age = min(age, REST_SECONDS) if self._submitted_at > self._latest_at else age
            while self._latest is None or time.monotonic() - self._latest_at > age:
                queried_at = time.monotonic()
                try:
                    self._latest, self._latest_at = self.clock.snapshot(await self.client.snapshot()), queried_at
                except GPUSpawnerError as error:  # a machine under load
                    print(f"Slurm is asked again: {error}", flush=True)
                    await asyncio.sleep(1)
            return self._latest

    async def click(self, pattern: str, number: int, wish: Wish) -> None:
        """Somebody asks for a server: what the form says is noted, and the job is submitted."""
        person, estimate, now = f"person{number}", UNKNOWN, self.clock.now()
        script = "\n".join(
            [
                "#!/bin/sh",
                f"#SBATCH --partition={pattern} --gres=gpu:{wish.gpus} --cpus-per-task=1 --mem=10 --time={wish.limit}",
                f"#SBATCH --output=/dev/null --comment=jupyterhub-gpuspawner/bench/{person}/",
                f"exec sleep {wish.runs:.1f}",
                "",
            ]
        )
        if wish.person:
            snapshot = await self.snapshot(FRESH_SECONDS)
            # the same fields that the hub's requests have
            request = Resources.model_construct(
                nodes=1, exclusive=False, partition=pattern, gpus=wish.gpus, cpus=1, memory=10,
                time=round(wish.limit * 60 * FASTER),
            )  # fmt: skip
            now = self.clock.now()
            said = replace(availability(request, snapshot, now=now, person=person), partition=pattern)
            if said.chance is not Chance.NOW or pattern == TRIED:
                trial = await self._trial(script, pattern)
                said = in_the_forms_words(trial, said, others_wait=others_wait(said, snapshot))
                now = self.clock.now()
            estimate = said.estimate
        job_id = await self.client.submit(script)
        self._submitted_at = time.monotonic()
        if wish.person:
            self.gpus[job_id], self.submitted_at[job_id] = wish.gpus, self.clock.now()
            self.see(Observation(Event.CLICK, pattern, job_id, now, kind=estimate.kind, planned=estimate.planned))

    async def _trial(self, script: str, pattern: str) -> Availability:
        """What Slurm says of a job before it is submitted."""
        asked_at = self.clock.now()
        answer = await will_run(self.client, script)
        answer = replace(answer, starts_at=self.clock.of(answer.starts_at), partition=pattern)
        return replace(of_start(answer, now=self.clock.now()), taken_at=asked_at)

    async def follow(self) -> None:
        """Look at the cluster as the hub does while somebody waits."""
        snapshot, now = await self.snapshot(SNAPSHOT_SECONDS / 2), self.clock.now()
        for job_id in list(self.gpus):
            job = snapshot.job_by_id.get(job_id)
            if job is None:  # submitted since, or so short that it was never seen
                await self._query_job(job_id, now)
            elif job.phase is Phase.QUEUED:
                watched = Job(job_id, job.phase, reason=job.reason, partition=job.partition, starts_at=job.starts_at)
                planned = planned_start(watched, queue_position(snapshot, job_id))
                free = max(
                    free_gpus_of(gpus_of(node.gres), node.gres_used).total()
                    for node in snapshot.nodes_of(job.partition)
                )
                self.see(
                    Observation(
                        Event.PENDING, job.partition, job_id, now,
                        planned=planned, reason=job.reason, free=free >= self.gpus[job_id],
                    )
                )  # fmt: skip
            elif job.starts_at is not None:
                self._started(job_id, job.partition, job.starts_at)

    async def _query_job(self, job_id: str, now: float) -> None:
        """Ask about a job that is in no snapshot although it should be."""
        if now - self.submitted_at[job_id] > 10 * FASTER:
            detail = await self.client.job(job_id)
            if detail is not None and detail.starts_at is not None:
                self._started(job_id, detail.partition, self.clock.of(detail.starts_at))

    def _started(self, job_id: str, pattern: str, at: float) -> None:
        del self.gpus[job_id]
        self.see(Observation(Event.STARTED, pattern, job_id, at))

    async def run(self, starts: int, seed: int) -> None:
        """Run all patterns at the same time, until every start has begun."""
        clicks = [
            asyncio.ensure_future(self._clicks(pattern, list(wishes(starts, random.Random(f"{seed} {pattern}")))))
            for pattern, (_, wishes) in PATTERNS.items()
        ]
        begun = status_at = time.monotonic()
        while self.gpus or not all(task.done() for task in clicks):
            await self.follow()
            await asyncio.sleep(SNAPSHOT_SECONDS)
            if time.monotonic() - status_at > 60:
                status_at = time.monotonic()
                self.load.append(os.getloadavg()[0])
                counts = {pattern: len(of) for pattern, of in self.hub.came.items()}
                print(
                    f"{status_at - begun:.0f} s, load {self.load[-1]:.1f}: {len(self.gpus)} wait; kept so far {counts}",
                    flush=True,
                )
        await asyncio.gather(*clicks)

    async def _clicks(self, pattern: str, wishes: Sequence[Wish]) -> None:
        begun, jobs = time.monotonic(), []
        for number, wish in enumerate(sorted(wishes, key=lambda wish: wish.at)):
            await asyncio.sleep(max(0.0, begun + wish.at - time.monotonic()))
            jobs.append(asyncio.ensure_future(self.click(pattern, number, wish)))
        await asyncio.gather(*jobs)


def in_minutes(seconds: float | None) -> str:
    """``1.4``; ``-`` where nothing is known."""
    return "-" if seconds is None else f"{seconds / 60:.1f}"


def row(hub: Hub, pattern: str) -> str:
    """A line of the table."""
    came = hub.came[pattern]
    overall = accuracy(came)
    if overall is None:
        return f"| {PATTERNS[pattern][0]} | 0 | - | - | - | - | - | - |"
    now = [outcome for outcome in came if outcome.promise.estimate.kind is Kind.NOW]
    clicks = accuracy([outcome for outcome in came if outcome.promise.moment is PromiseMoment.CLICK])
    late = sum(outcome.result == "late" for outcome in now)
    ranges = [
        estimate.latest - estimate.earliest
        for promise, _ in came
        if (estimate := promise.estimate).latest is not None and estimate.earliest is not None
    ]
    cells = (
        PATTERNS[pattern][0],
        f"{overall.number:,}",
        f"{100 * overall.within:.0f} %",
        f"{100 * clicks.within:.0f} %" if clicks is not None else "-",
        in_minutes(median(ranges) if ranges else None),
        in_minutes(overall.error),
        in_minutes(overall.slurm_error),
        f"{late} of {len(now)}, {hub.broken[pattern]} with free GPUs",
    )
    return f"| {' | '.join(cells)} |"


def report(hub: Hub, starts: int, load: Sequence[float]) -> str:
    """The figures, as docs/explanation/waits-table.md has them; ``load`` of the machine, in each minute."""
    head = (
        "pattern", "promises", "within the range", "of those at the click", "median width, min", "median error, min",
        "that of Slurm's plan, min", '"now" that took over a minute',
    )  # fmt: skip
    loads = f"{median(load):.1f} in the middle, {max(load):.1f} at most" if load else "not noted"
    return "\n".join(
        [
            "# How well expected starts are kept",
            "",
            "This page is written by `benchmarks/extensions/together/bench_waits.py --write`, which says how it is "
            f"measured: {starts} starts in each pattern, on a real Slurm whose minutes count as {FASTER:.0f}. "
            f"The machine has {os.cpu_count()} CPUs; its load was {loads}.",
            "",
            f"| {' | '.join(head)} |",
            f"|{'---|' * len(head)}",
            *(row(hub, pattern) for pattern in PATTERNS),
            "",
        ]
    )


def replayed(path: Path) -> tuple[Hub, int]:
    """What the hub would say today of the starts of a recorded run, and how many clicks each pattern has at most."""
    hub, clicks = Hub(), Counter[str]()
    for line in path.read_text().splitlines():
        observation = OBSERVATIONS.validate_json(line)
        clicks[observation.pattern] += observation.event is Event.CLICK
        hub.see(observation)
    return hub, max(clicks.values())


def main() -> None:
    """Run the bench, and print or write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=200, help="in each pattern")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--record", type=Path, metavar="FILE", help="keep what is seen of each start, as JSON lines")
    parser.add_argument("--replay", type=Path, nargs="+", metavar="FILE", help="run no Slurm: take what was recorded")
    options = parser.parse_args()
    if options.replay:
        for path in options.replay:
            hub, starts = replayed(path)
            print(f"{path}\n{report(hub, starts, ())}")
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        WithFastBackfill(cluster(), Path(folder) / "slurm") as slurm,
        options.record.open("w") if options.record else nullcontext() as record,
    ):

        async def run() -> Bench:
            bench = Bench(slurm, record)
            await bench.run(options.starts, options.seed)
            return bench

        bench = asyncio.run(run())
        text = report(bench.hub, options.starts, bench.load)
    print(text)
    if options.write:
        TABLE.write_text(text)


if __name__ == "__main__":
    main()
