"""Time to compute the availability of 30 profiles on 10,000 nodes with 20,000 jobs: at most 20 ms once indexed.

With eight choices of GPUs in each profile at most 100 ms: of the 240 as many as a page shows have a start of their own.

    python -m pytest benchmarks/extensions/availability/bench_choose.py

The cluster is read from text as Slurm prints it, so reading and indexing, which a thread does, are measured, too. The
bars are processor time and the fastest of their rounds, since other work on the machine only adds. The profiles are of
all kinds: free, full, by constraint, in a reservation, whole nodes, several nodes, impossible.
"""

from __future__ import annotations

import random
import time
from datetime import datetime
from functools import lru_cache
from itertools import product
from typing import Any

import pytest

from jupyterhub_gpuspawner.extensions.availability.forecast import ClusterNow
from jupyterhub_gpuspawner.extensions.availability.model.capacity import capacity_of
from jupyterhub_gpuspawner.hub.choose.offer import CHOICES_AT_MOST, ProfileStatus
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.slurm.scontrol import parse_nodes, parse_partitions, parse_reservations
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot
from jupyterhub_gpuspawner.slurm.squeue import CLUSTER, parse_jobs
from tests.extensions.availability.statuses import profile_statuses

NODES, RUNNING, WAITING, PROFILES = 10_000, 15_000, 5_000, 30
STATUSES, CHOICES, FIRST = 0.020, 0.100, 0.050
"""Limits in seconds: on an indexed snapshot, the same where each profile has choices, and for the first request with
these constraints and reservations."""
NOW = 1_800_000_000
TYPES = ("a100", "h100", "k80", "1g.10gb")
MARK = "0123456789abcdef"


def _cluster() -> tuple[str, str, str, str]:
    """Slurm's output for nodes, partitions, reservations and jobs; nine of ten nodes are full."""
    chance = random.Random(1)
    jobs, nodes, left = [], [], RUNNING
    for number in range(NODES):
        name, kind = f"n{number:05d}", TYPES[number % 4]
        free, cpus, memory = (8, 64, 500_000)
        holds = min(left, chance.choice((1, 2))) if number % 10 else 0
        left -= holds
        for share in range(holds):
            gpus = 8 if holds == 1 else 4
            took = 64 // holds if chance.random() < 0.8 else 8
            free, cpus, memory = free - gpus, cpus - took, memory - 100_000
            ends_at = NOW + chance.randint(60, 86_400)
            jobs.append(_job(f"{number}{share}", f"part{number % 4}", name, f"gres/gpu:{kind}:{gpus}", took, ends_at))
        nodes.append(
            f"NodeName={name} CPUAlloc={64 - cpus} CPUEfctv=64 CPUTot=64 AvailableFeatures={kind},rack{number % 50} "
            f"ActiveFeatures={kind},rack{number % 50} Gres=gpu:{kind}:8(S:0-1) GresUsed=gpu:{kind}:{8 - free}(IDX:N/A) "
            f"NodeAddr={name} RealMemory=500000 AllocMem={500_000 - memory} Sockets=2 "
            f"State={'MIXED' if holds else 'IDLE'}"
        )
    for number in range(WAITING):
        part = number % 3  # nobody waits for the last type
        jobs.append(_job(f"9{number:06d}", f"part{part}", "", f"gres/gpu:{TYPES[part]}:4", 8, NOW + 3600))
    partitions = [
        f"PartitionName=part{kind} Default={'YES' if kind == 0 else 'NO'} State=UP MaxTime=2-00:00:00 "
        "DefaultTime=1:00:00 "
        f"Nodes={','.join(f'n{number:05d}' for number in range(kind, NODES, 4))}"
        for kind in range(4)
    ]
    partitions.append(f"PartitionName=all State=UP MaxTime=1-00:00:00 Nodes=n[00000-{NODES - 1:05d}]")
    reservations = f"ReservationName=course StartTime={NOW - 60} EndTime={NOW + 36000} Nodes=n[00003-00083] Flags=\n"
    reservations += f"ReservationName=later StartTime={NOW + 3600} EndTime={NOW + 36000} Nodes=n[00100-00400] Flags=\n"
    return "\n".join(nodes), "\n".join(partitions), reservations, "".join(jobs)


def _job(job_id: str, partition: str, node: str, gres: str, cpus: int, moment: int) -> str:
    fields = {
        **dict.fromkeys((*CLUSTER.slurms, *CLUSTER.owners), "(null)"),
        "JobID": job_id,
        "Partition": partition,
        "NodeList": node,
        "NumNodes": "1",
        "NumCPUs": str(cpus),
        "State": "RUNNING" if node else "PENDING",
        "Reason": "None" if node else "Priority",
        "PriorityLong": "5",
        "tres-alloc": f"cpu={cpus},mem=100000M,node=1",
        "tres-per-node": gres,
        "TimeLimit": "1:00:00",
        "EndTime" if node else "StartTime": str(moment),
    }
    own = f"|{MARK}|".join(fields[name] for name in CLUSTER.owners)
    return f"{'|'.join(fields[name] for name in CLUSTER.slurms)}|{MARK}|{own}|{MARK}\n"


@lru_cache
def text() -> tuple[str, str, str, str]:
    """The cluster in Slurm's output format."""
    return _cluster()


def read() -> ClusterSnapshot:
    """The work of the thread: parse and index."""
    nodes, partitions, reservations, jobs = text()
    snapshot = ClusterSnapshot(
        parse_nodes(nodes),
        parse_partitions(partitions),
        parse_reservations(reservations),
        parse_jobs(jobs, MARK),
        taken_at=NOW,
    )
    capacity_of(snapshot).warm()
    return snapshot


@lru_cache
def profiles() -> tuple[Profile, ...]:
    """Thirty profiles."""
    requests: list[dict[str, Any]] = [
        {"partition": f"part{kind}", "gpus": gpus, "cpus": cpus, "memory": "64G"}
        for kind, gpus, cpus in product(range(4), (1, 4), (8, 48))
    ]
    requests += [{"partition": "all", "gpus": 1, "gpu_type": kind} for kind in TYPES]
    requests += [{"partition": "all", "gpus": 8, "nodes": 4}, {"partition": "all", "exclusive": True, "nodes": 16}]
    requests += [{"partition": "all", "cpus": 64, "memory": 0}, {"cpus": 2}]
    requests += [
        {"partition": "part3", "gpus": 1, "constraint": "rack7|rack9"},
        {"partition": "all", "constraint": "k80"},
    ]
    requests += [
        {"partition": "part3", "gpus": 2, "reservation": "course"},
        {"reservation": "later", "partition": "all"},
    ]
    requests += [{"partition": "all", "gpus": 9}, {"partition": "part1", "time": "9-0"}]
    return parse_profiles(
        [{"display_name": f"Profile {number}", "slurm": request} for number, request in enumerate(requests[:PROFILES])]
    )


def statuses_of(snapshot: ClusterSnapshot) -> tuple[ProfileStatus, ...]:
    """The work for one visitor of the page."""
    now = datetime.fromtimestamp(NOW + 10).astimezone()
    return profile_statuses(profiles(), username="alice", groups=("ml",), clusters={"": ClusterNow(snapshot)}, now=now)


@pytest.mark.benchmark(timer=time.process_time)
def test_statuses_of_an_indexed_snapshot(benchmark: Any) -> None:
    """Every visitor but the first one after a new snapshot."""
    snapshot = read()
    statuses = statuses_of(snapshot)
    assert {status.availability.chance.value for status in statuses if status.availability} == {"now", "later", "never"}
    assert len(statuses) == PROFILES
    benchmark.pedantic(statuses_of, args=(snapshot,), rounds=20, warmup_rounds=1)
    assert benchmark.stats.stats.min <= STATUSES


@pytest.mark.benchmark(timer=time.process_time)
def test_statuses_with_choices(benchmark: Any) -> None:
    """Each choice has a start of its own, up to as many as a page shows."""
    snapshot, now = read(), datetime.fromtimestamp(NOW + 10).astimezone()
    choices = {str(number): {"slurm": {"gpus": number}} for number in range(1, 9)}
    options = {"gpus": {"choices": choices}}
    offered = parse_profiles(
        [
            {
                "display_name": f"Profile {number}",
                "slurm": {"partition": f"part{number % 4}"},
                "profile_options": options,
            }
            for number in range(PROFILES)
        ]
    )

    def statuses_with_choices() -> tuple[ProfileStatus, ...]:
        return profile_statuses(offered, username="alice", groups=(), clusters={"": ClusterNow(snapshot)}, now=now)

    statuses = statuses_with_choices()
    assert sum(len(own) for status in statuses for own in status.choices.values()) == CHOICES_AT_MOST
    benchmark.pedantic(statuses_with_choices, rounds=20, warmup_rounds=1)
    assert benchmark.stats.stats.min <= CHOICES


@pytest.mark.benchmark(timer=time.process_time)
def test_first_statuses_of_a_snapshot(benchmark: Any) -> None:
    """The first visitor after a new snapshot, for whom constraints and reservations must be evaluated."""
    benchmark.pedantic(statuses_of, setup=lambda: ((read(),), {}), rounds=3)
    assert benchmark.stats.stats.min <= FIRST


@pytest.mark.benchmark(timer=time.process_time)
def test_reading_a_snapshot(benchmark: Any) -> None:
    """In a thread outside of the hub's event loop; no limit, since nothing waits for it."""
    benchmark.pedantic(read, rounds=2)
