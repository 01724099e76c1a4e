"""How far a running job may be extended."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyterhub_gpuspawner.errors import RequestError, SlurmUnavailable
from jupyterhub_gpuspawner.extensions.more_time.bounds import MoreTime, Reason, more_time
from jupyterhub_gpuspawner.extensions.more_time.extending import NotExtended, ServerTime
from jupyterhub_gpuspawner.extensions.more_time.fields import Extend
from jupyterhub_gpuspawner.slurm.job import Job, Phase
from jupyterhub_gpuspawner.slurm.process import Answer
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot, Reservation
from jupyterhub_gpuspawner.slurm.text import UnparsedField
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


RELEASE = Path(__file__).parents[2] / "data" / "release-0.1"
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
        replace(site(), unread=(UnparsedField("reservation", "x", "StartTime"),)),
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
    "a pending job that could not be read": (
        replace(site(), unread=(UnparsedField("job", "2", ""),)),
        none(Reason.UNKNOWN),
    ),
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
        self.latest = replace(site(max_time=None), taken_at=time.time())

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

    @property
    def installation(self) -> StandInClient:
        """What runs the commands."""
        return self

    async def run(self, command: str, *, stdin: str, **_how: object) -> Answer:
        """The script `extend`."""
        ended = not await self.extend(int(stdin.split()[1]))
        return Answer(command, int(ended), "", "Job has already finished" if ended else "")

    async def extend(self, minutes: int) -> bool:
        """Raise the limit; False for a job that has ended."""
        self.minutes.append(minutes)
        return True


def extension(client: StandInClient, *, rule: Extend | None = None, stored: list[Any] | None = None) -> ServerTime:
    """The extension of a server whose job runs; what it stores is added to ``stored``."""

    async def nothing() -> None:
        pass

    states = stored if stored is not None else []
    of_server: ServerTime
    connection = SimpleNamespace(view=StandInCluster(), client=client)
    server: Any = SimpleNamespace(
        request=SimpleNamespace(profile=SimpleNamespace(extend=rule)),
        slurm_timeout=10.0,
        extend_prefix="sudo",
        extend_when_others_wait=False,
        connection=lambda: connection,
        log=logging.getLogger(__name__),
        _log_name="ada",
        job_id="1",
        watch=SimpleNamespace(job_id="1", status=None, is_own=lambda _status: True, update=nothing),
        row=SimpleNamespace(store_soon=lambda: states.append(of_server.to_state())),
    )
    of_server = ServerTime(server)
    return of_server


def running_job() -> Job:
    """A job that ends in ten minutes."""
    now = time.time()
    return replace(JOB, starts_at=now - 1, ends_at=now + 600)


async def test_a_server_that_has_only_just_started_is_extended() -> None:
    """In the last snapshot, which is new enough otherwise, its job is still pending and has no node."""
    client = StandInClient(running_job())
    extended = await extension(client).extend(5, by="tea")

    assert (extended.seconds, extended.by, client.minutes) == (300, "tea", [5])


TWICE = Extend(by="2h", times=2)
DAY = 24 * 60
ASKED: dict[str, tuple[list[tuple[str, int, bool]], list[int]]] = {
    "one instructor, again and again": ([("carl", 720, False)] * 4, [720, 720]),
    "two who teach each other": ([("carl", 500, False), ("dora", 500, False)] * 2, [500, 500, 440]),
    "the last is cut": ([("carl", 1439, False), ("dora", 60, False), ("carl", 1, False)], [1439, 1]),
    "the user has their own": (
        [("carl", DAY, False), ("", 120, False), ("", 120, False), ("", 1, False), ("dora", 1, False)],
        [DAY, 120, 120],
    ),
    "what the user had is not the instructors'": ([("", 120, False), ("carl", DAY, False)], [120, DAY]),
    "an administrator is free": ([("root", DAY, True)] * 3, [DAY] * 3),
    "and leaves the instructors theirs": (
        [("root", DAY, True), ("carl", DAY, False), ("carl", 1, False), ("root", 1, True)],
        [DAY, DAY, 1],
    ),
}


@pytest.mark.parametrize("restarted", [False, True], ids=["one hub", "a hub that is restarted each time"])
@pytest.mark.parametrize("rule", [TWICE, None], ids=["a profile with extend", "a profile without"])
@pytest.mark.parametrize(("asked", "given"), ASKED.values(), ids=ASKED.keys())
async def test_instructors_together_extend_one_server_by_a_day(
    asked: list[tuple[str, int, bool]], given: list[int], rule: Extend | None, restarted: bool
) -> None:
    """Whoever asks, however often, and whatever its user may: by (minutes, for an administrator without limit)."""
    client, stored = StandInClient(running_job()), list[Any]()
    of_server, refused = extension(client, rule=rule, stored=stored), 0
    for by, minutes, unlimited in asked:
        try:
            await of_server.extend(minutes, by=by, unlimited=unlimited)
        except RequestError:
            refused += 1
        if restarted:
            of_server = extension(client, rule=rule, stored=stored)
            of_server.load(stored[-1] if stored else {})

    expected = given if rule is not None else [minutes for minutes in given if minutes != 120]
    assert (client.minutes, refused) == (expected, len(asked) - len(expected))


async def test_what_instructors_have_added_is_on_record_before_slurm_is_asked() -> None:
    """A hub that is killed meanwhile does not forget it; what Slurm refuses is taken back, and silence is not."""

    class Client(StandInClient):
        """Fails."""

        async def extend(self, minutes: int) -> bool:
            """Ask Slurm."""
            self.minutes.append(minutes)
            seen.append(stored[-1])
            if minutes == 3:
                raise SlurmUnavailable("No answer.")
            return minutes != 2

    seen, stored = list[Any](), list[Any]()
    of_server = extension(Client(running_job()), stored=stored)
    outcomes = list[str]()
    for minutes in (1, 2, 3):
        try:
            await of_server.extend(minutes, by="carl")
        except (NotExtended, SlurmUnavailable) as error:
            outcomes.append(type(error).__name__)

    assert [state["extension"]["by_staff"] for state in seen] == [60, 180, 240]
    assert (outcomes, of_server.to_state()) == (["NotExtended", "SlurmUnavailable"], {"extension": {"by_staff": 240}})


@pytest.mark.parametrize("by_staff", ["1", None, -1, 1.5, 86400])
async def test_a_state_that_is_no_number_of_seconds_leaves_instructors_nothing(by_staff: object) -> None:
    """Nor does one that says that all is used."""
    client = StandInClient(running_job())
    of_server = extension(client)
    of_server.load({"extension": {"by_staff": by_staff}})

    with pytest.raises(NotExtended) as raised:
        await of_server.extend(1, by="carl")
    assert (str(raised.value), client.minutes) == (
        "Instructors have extended this server by 24 h already, and that is the most. An administrator can extend it "
        "further.",
        [],
    )


def test_the_state_of_the_last_release_is_read_and_stored_as_it_was() -> None:
    """A hub that is upgraded knows how often a server was extended."""
    state = json.loads((RELEASE / "servers" / "running.json").read_text("utf-8"))
    of_server = extension(StandInClient(running_job()))
    of_server.spawner.request = None
    of_server.load(state)

    assert of_server.to_state() == {"extension": state["extension"]}
