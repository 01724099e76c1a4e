"""How the servers of a node would have been placed with other lines of gres.conf, as Slurm's scheduler answers."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from jupyterhub_gpuspawner.batch.script import options
from jupyterhub_gpuspawner.extensions.records.record import SessionRecord
from jupyterhub_gpuspawner.extensions.seats.outcome import near_cpus, outcome
from jupyterhub_gpuspawner.extensions.seats.site import Request
from jupyterhub_gpuspawner.extensions.seats.twin import read_site, what_runs
from jupyterhub_gpuspawner.extensions.seats.what_if import with_gres_conf, with_nodes
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm.commands import Installation
from jupyterhub_gpuspawner.words import counted

CASES = 30
"""Different cases that are tried, the most frequent ones."""

Case = tuple[Resources, ...]
"""Requests of a node's servers at the start of the last of them, in the order of their starts."""


@dataclass(frozen=True)
class Replay:
    """How many servers have their cores beside their GPUs."""

    servers: int
    today: int
    """With gres.conf as it is."""
    then: int
    """With the lines."""

    def __str__(self) -> str:
        """For an admin who is about to use the lines."""
        return (
            f"Of {counted(self.servers, 'server')} of the last month that Slurm's scheduler was asked about again, "
            f"{self.then} would have their cores beside their GPUs with these lines, and {self.today} with today's."
        )


def cases(records: Iterable[SessionRecord], node: str) -> Counter[Case]:
    """The starts of servers with GPUs on a node, each with the servers that ran there; equal ones are counted.

    Servers on several nodes, and those whose request was not recorded, are left out.
    """
    there = [
        record
        for record in records
        if record.node == node and record.allocated_at is not None and record.asked_cpus and record.nodes in (None, 1)
    ]
    there.sort(key=lambda record: record.allocated_at or 0.0)
    counts: Counter[Case] = Counter()
    running: list[SessionRecord] = []
    for record in there:
        running = [
            other for other in running if other.ended_at is None or other.ended_at > (record.allocated_at or 0.0)
        ]
        running.append(record)
        if record.asked_gpus or record.asked_shards:
            counts[tuple(map(_request, running))] += 1
    return counts


def _request(record: SessionRecord) -> Resources:
    return Resources.model_construct(
        {"partition"},
        partition=record.partition or record.asked_partition,
        gpus=record.asked_gpus,
        gpu_type=record.asked_gpu_type,
        shards=record.asked_shards,
        cpus=record.asked_cpus,
        memory=record.asked_memory_mib,
    )


async def replay(
    slurm: Installation, records: Iterable[SessionRecord], node: str, lines: str, gpus_option: str
) -> Replay | None:
    """Ask again for the servers that these records have on a node; None if there are none, or if the lines do not fit.

    ``lines`` are of gres.conf, for the node itself. Each case is tried on a node of its own like this one,
    without other jobs. Raises SlurmUnavailable, SlurmOutputError, and ConfigError if Slurm has no such node any more.
    """
    chosen = cases(records, node).most_common(CASES)
    if not chosen:
        return None
    copies = f"{node}-[0-{len(chosen) - 1}]"
    today = with_nodes(replace(await read_site(slurm), jobs=(), waiting=(), reservations=()), f"{copies}={node}")
    own = [line for line in lines.splitlines() if line.strip() and not line.startswith("#")]
    then = with_gres_conf(today, "".join(f"NodeName={copies} {line}\n" for line in own))
    requests = [
        Request("", (*options(resources, "best-effort", gpus_option), f"--nodelist={node}-{number}", "--time=1"))
        for number, (case, _) in enumerate(chosen)
        for resources in case
    ]
    near = near_cpus(then, today)
    sites, at = (today, then), time.time()
    answers = await asyncio.gather(*(what_runs(site, requests, at=at, slurm=slurm) for site in sites))
    if any(note.startswith("gres.conf has other devices") for note in answers[1].notes):
        return None
    beside = [
        _beside([job.beside is True for job in outcome(of, site, near).jobs], chosen)
        for of, site in zip(answers, sites, strict=True)
    ]
    return Replay(sum(count for _, count in chosen), *beside)


def _beside(jobs: Sequence[bool], chosen: Sequence[tuple[Case, int]]) -> int:
    """How many servers are placed well: those of each case's last job."""
    total = at = 0
    for case, count in chosen:
        at += len(case)
        total += count * jobs[at - 1]
    return total
