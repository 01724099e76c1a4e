"""How far a running job may be extended."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from jupyterhub_gpuspawner.hub.extension import Extension, MoreTime, Reason, more_time
from jupyterhub_gpuspawner.slurm.job import Job, Phase
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot, Reservation, Unread
from tests.snapshots import NOW, cluster, node, running, waiting

HOUR = 3600
ENDS = NOW + 600
JOB = Job("1", Phase.RUNNING, "RUNNING", partition="gpu", starts_at=NOW - 3000, ends_at=ENDS)
OWN = running("1", "g1", "gpu:k80:1", partitions=("gpu",))


def site(*others: Any, reservations: tuple[Reservation, ...] = (), own: Any = OWN, **more: Any) -> ClusterSnapshot:
    """Two nodes with four K80 each, the job on the first one, and others."""
    states = more.pop("states", frozenset({"MIXED"}))
    nodes = node("g1", "gpu:k80:4", "gpu:k80:1", states=states), node("g2", "gpu:k80:4")
    return cluster(*nodes, jobs=(own, *others), reservations=reservations, **more)


def reserved(start: float, end: float, *flags: str, name: str = "r", nodes: str = "g1") -> Reservation:
    """A reservation of these nodes, in seconds from now."""
    return Reservation(name, NOW + start, NOW + end, tuple(nodes.split()), flags=frozenset(flags))


IN_COURSE = OWN._replace(reservation="course")
ALL = MoreTime(HOUR, ENDS + HOUR)


def none(reason: Reason, name: str = "") -> MoreTime:
    """Nothing, for this reason."""
    return MoreTime(0, ENDS, reason, name)


def less(minutes: int, reason: Reason, name: str = "") -> MoreTime:
    """Fewer minutes, for this reason."""
    return MoreTime(minutes * 60, ENDS + minutes * 60, reason, name)


CASES: dict[str, tuple[ClusterSnapshot | None, MoreTime]] = {
    "nothing is in the way": (site(), ALL),
    "the partition's limit": (site(max_time=3600 + 1800), less(30, Reason.PARTITION, "gpu")),
    "the partition's limit, in full minutes": (site(max_time=3600 + 119), less(1, Reason.PARTITION, "gpu")),
    "the partition's limit is reached": (site(max_time=3600), none(Reason.PARTITION, "gpu")),
    "a limit that was lowered since": (site(max_time=60), none(Reason.PARTITION, "gpu")),
    "a partition without a limit": (site(max_time=None), ALL),
    "a partition whose limit could not be read": (site(unread=("MaxTime",)), none(Reason.UNKNOWN)),
    "its own reservation ends": (
        site(own=IN_COURSE, reservations=(reserved(-60, 1500, name="course"),)),
        less(15, Reason.RESERVATION, "course"),
    ),
    "its own reservation is not shown": (site(own=IN_COURSE), none(Reason.UNKNOWN)),
    "maintenance begins": (site(reservations=(reserved(1200, 9000, "MAINT"),)), less(10, Reason.MAINTENANCE, "r")),
    "maintenance of all nodes, sooner than another reservation": (
        site(reservations=(reserved(3000, 9000, name="x"), reserved(1200, 9000, "MAINT", nodes="g1 g2"))),
        less(10, Reason.MAINTENANCE, "r"),
    ),
    "maintenance that the job is in already": (
        site(reservations=(reserved(-60, 9000, "MAINT", "IGNORE_JOBS"),)),
        none(Reason.MAINTENANCE, "r"),
    ),
    "a reservation of another node": (site(reservations=(reserved(1200, 9000, nodes="g2"),)), ALL),
    "a reservation that ends before the job": (site(reservations=(reserved(-60, 300),)), ALL),
    "a reservation after the new end": (site(reservations=(reserved(600 + HOUR, 9000),)), ALL),
    "a reservation that could not be read": (
        replace(site(), unread=(Unread("reservation", "x", "StartTime"),)),
        none(Reason.UNKNOWN),
    ),
    "a node that an admin drains": (site(states=frozenset({"MIXED", "DRAIN"})), none(Reason.LEAVING)),
    "a pending job that may wait for its GPU": (site(waiting("2", "gpu:k80:4")), none(Reason.OTHERS_WAIT)),
    "a pending job for a GPU of any type": (site(waiting("2", "gpu:1")), none(Reason.OTHERS_WAIT)),
    "a pending job that is expected at its end": (
        site(waiting("2", "gpu:k80:4", starts_in=600)),
        none(Reason.OTHERS_WAIT),
    ),
    "a pending job that is expected later": (
        site(waiting("2", "gpu:k80:4", starts_in=600 + 1200)),
        less(20, Reason.OTHERS_WAIT),
    ),
    "a pending job that is expected before its end": (site(waiting("2", "gpu:k80:4", starts_in=300)), ALL),
    "pending jobs before and after its end": (
        site(waiting("2", "gpu:k80:4", starts_in=300), waiting("3", "gpu:k80:4", starts_in=900)),
        none(Reason.OTHERS_WAIT),
    ),
    "a pending job for other GPUs": (site(waiting("2", "gpu:p100:1")), ALL),
    "a pending job without GPUs": (site(waiting("2")), ALL),
    "a pending job that is held": (site(waiting("2", "gpu:k80:4", priority=0, reason="JobHeldUser")), ALL),
    "a pending job in a reservation": (site(waiting("2", "gpu:k80:4", reservation="course")), ALL),
    "a pending job that could not be read": (replace(site(), unread=(Unread("job", "2", ""),)), none(Reason.UNKNOWN)),
    "GPUs of its own that could not be read": (
        site(waiting("2", "gpu:k80:1"), own=OWN._replace(gpus=(), gpus_unknown=True)),
        none(Reason.OTHERS_WAIT),
    ),
    "nothing is known of the cluster": (None, none(Reason.UNKNOWN)),
    "the cluster as it was before the job": (cluster(node("g1")), none(Reason.UNKNOWN)),
    "the cluster as it was long ago": (replace(site(), taken_at=NOW - 1000), none(Reason.UNKNOWN)),
}


@pytest.mark.parametrize(("snapshot", "expected"), CASES.values(), ids=CASES.keys())
def test_an_hour_more(snapshot: ClusterSnapshot | None, expected: MoreTime) -> None:
    """The first bound counts: nothing that Slurm would not give a new job of that length, and not what others need."""
    assert more_time(JOB, snapshot, wanted=HOUR, now=NOW) == expected


def test_a_site_may_put_the_running_before_the_waiting() -> None:
    """Then pending jobs are no bound, and the others remain."""
    snapshot = site(waiting("2", "gpu:k80:4"), max_time=3600 + 1800)

    assert more_time(JOB, snapshot, wanted=HOUR, now=NOW, although_others_wait=True) == less(
        30, Reason.PARTITION, "gpu"
    )


STATES = {
    "a pending job": (replace(JOB, phase=Phase.QUEUED, ends_at=None), MoreTime(0, None, Reason.NOT_RUNNING)),
    "a job that is ending": (replace(JOB, phase=Phase.ENDING), none(Reason.NOT_RUNNING)),
    "a job whose time is over": (replace(JOB, ends_at=NOW), MoreTime(0, NOW, Reason.NOT_RUNNING)),
    "a job without a limit": (replace(JOB, ends_at=None), MoreTime(0, None, Reason.NO_LIMIT)),
    "a job whose start is not known": (replace(JOB, starts_at=None), none(Reason.UNKNOWN)),
}


@pytest.mark.parametrize(("job", "expected"), STATES.values(), ids=STATES.keys())
def test_a_job_that_cannot_be_extended(job: Job, expected: MoreTime) -> None:
    """Only a running job that has an end."""
    assert more_time(job, site(), wanted=HOUR, now=NOW) == expected


class StandInCluster:
    """The hub's view of the cluster, which has its last snapshot from a moment before the job started."""

    def __init__(self) -> None:
        self.latest = replace(site(own=waiting("1", "gpu:k80:1")), taken_at=time.time())

    async def recent(self, _max_age: float, _patience: float) -> None:
        """Read the cluster again."""
        self.latest = replace(site(), taken_at=time.time())

    def outdate(self) -> None:
        """The next question is answered by Slurm."""


class StandInClient:
    """Slurm's commands: the job runs, and its time limit can be raised."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.minutes: list[int] = []

    async def jobs(self, _job_ids: list[str]) -> dict[str, Job]:
        """The job."""
        return {self.job.job_id: self.job}

    async def extend(self, _job_id: str, minutes: int, **_prefix: object) -> bool:
        """Raise the limit."""
        self.minutes.append(minutes)
        return True


async def test_a_server_that_has_only_just_started_is_extended() -> None:
    """In the last snapshot, which is new enough otherwise, its job is still pending and has no node."""

    async def nothing() -> None:
        pass

    now = time.time()
    client = StandInClient(replace(JOB, starts_at=now - 1, ends_at=now + 600))
    connection = SimpleNamespace(cluster=StandInCluster(), client=client, operator=SimpleNamespace(latest=True))
    server: Any = SimpleNamespace(
        request=None,
        slurm_timeout=10.0,
        extend_prefix="sudo",
        extend_when_others_wait=False,
        connection=lambda: connection,
        log=logging.getLogger(__name__),
    )
    job: Any = SimpleNamespace(job_id="1", status=None, is_own=lambda _status: True, update=nothing)
    state: Any = SimpleNamespace(store_soon=lambda: None)

    extended = await Extension(server, job, state, name="ada").extend(5, by="tea")

    assert (extended.seconds, extended.by, client.minutes) == (300, "tea", [5])
