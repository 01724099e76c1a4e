"""Whether a session of a course will work: its seats, its reservation, and the limits of its partition. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.cluster.capacity import capacity_of
from jupyterhub_gpuspawner.cluster.limits import fault_in, length_of, need_of, partitions_of
from jupyterhub_gpuspawner.courses.limits import JobSize, admit
from jupyterhub_gpuspawner.courses.seats import Seats, Sharing, count_seats, free_at, remedy
from jupyterhub_gpuspawner.words import duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jupyterhub_gpuspawner.cluster.snapshot import ClusterSnapshot, Reservation
    from jupyterhub_gpuspawner.courses.limits import Admission
    from jupyterhub_gpuspawner.courses.sessions import Session
    from jupyterhub_gpuspawner.jobs.accounting import Accounting
    from jupyterhub_gpuspawner.profiles.resolve import ResolvedResources

NAMED = 5
"""People named in one problem, at most."""
_WHOLE_DAY = frozenset({"DAILY", "WEEKLY", "WEEKDAY", "WEEKEND", "HOURLY"})
"""Flags of a reservation that moves on by itself (scontrol(1))."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a session."""

    kind: str
    """What it is about: ``reservation``, ``people``, ``profile``, ``partition``, ``time``, ``seats``, ``limit``,
    ``hub`` or ``unknown``."""
    text: str
    """For an instructor."""


@dataclass(frozen=True)
class SessionReport:
    """What the check found for one session."""

    session: Session
    seats: Seats
    problems: tuple[Problem, ...] = ()
    admission: Admission | None = None
    """Whom accounting's limits let in; None without accounting, and where nobody's job could start anyway."""

    @property
    def fit(self) -> int:
        """How many people get in: the lowest of seats and limits."""
        return self.seats.fit if self.admission is None else min(self.seats.fit, self.admission.fit)

    @property
    def tight(self) -> str:
        """What keeps people out: a resource, or a limit of accounting by Slurm's name; empty where nothing does."""
        if self.admission is not None and self.admission.fit < self.seats.fit:
            return self.admission.tight
        return self.seats.tight

    @property
    def fits(self) -> bool:
        """Whether everybody fits and nothing is wrong."""
        return self.fit >= self.seats.wanted and not self.problems


def check_session(
    session: Session,
    resources: ResolvedResources,
    snapshot: ClusterSnapshot,
    people: Sequence[str],
    accounting: Accounting | None = None,
) -> SessionReport:
    """Check one session for these people; each requests ``resources``, with the session's reservation."""
    start, end = session.start.timestamp(), session.end.timestamp()
    name = resources.reservation or ""
    own = snapshot.reservation_by_name.get(name)
    problems = list(_of_reservation(name, own, people, start=start, end=end))
    found = [
        (_seats(resources, snapshot, partition, len(people), start=start, end=end), partition)
        for partition in partitions_of(resources, snapshot)
        if partition in snapshot.partition_by_name
    ]
    if not found:
        asked = resources.partition or "no partition, and the cluster has no default one"
        problems.append(Problem("partition", f"The profile requests {asked}, which does not exist."))
        return SessionReport(session, Seats(len(people), ()), tuple(problems))
    (seats, advice), partition = max(found, key=lambda each: each[0][0].fit)
    fault = fault_in(resources, snapshot, partition, now=start)
    if fault is not None:
        problems.append(Problem("partition", f"Slurm would refuse every job: {fault.clause}."))
        seats = Seats(len(people), ())
    if fault is None:
        length = length_of(resources, snapshot.partition_by_name[partition])
        problems += _of_time(own, length, start=start, end=end)
    if seats.fit < seats.wanted and fault is None and (own is not None or not name):
        problems.append(Problem("seats", _short(seats, advice)))
    admission = None
    if accounting is not None and fault is None:
        held = (job for job in snapshot.jobs if job.nodes and (job.ends_at is None or job.ends_at > start))
        admission = admit(people, _job_size(resources, snapshot, partition), accounting, held)
        problems += [Problem("limit", sentence) for sentence in admission.sentences]
    return SessionReport(session, seats, tuple(problems), admission)


def _job_size(resources: ResolvedResources, snapshot: ClusterSnapshot, partition: str) -> JobSize:
    """What one participant's job counts for, on the node of the session where that is least."""
    found = snapshot.partition_by_name[partition]
    need = need_of(resources, found, snapshot)
    nodes = capacity_of(snapshot).nodes(
        partition, constraint=resources.constraint or "", reservation=resources.reservation or ""
    )
    taken = [
        (node.cpus, node.memory, node.gpus.get(need.gpu_type, 0))
        if need.exclusive
        else (*node.taken_by(need), need.gpus)
        for node in nodes.kinds
        if node.offers(need)
    ]
    cpus, memory, gpus = min(taken, default=(need.cpus, need.memory, need.gpus))
    each = {"cpu": cpus, "mem": memory, "node": 1, "gres/gpu": gpus, "gres/shard": need.shards}
    if need.gpu_type:
        each[f"gres/gpu:{need.gpu_type}"] = gpus
    return JobSize(
        partition=partition,
        tres={name: number * resources.nodes for name, number in each.items() if number},
        seconds=length_of(resources, found),
        account=resources.account or "",
        qos=resources.qos or "",
        partition_qos=found.qos,
    )


def _seats(
    resources: ResolvedResources, snapshot: ClusterSnapshot, partition: str, wanted: int, *, start: float, end: float
) -> tuple[Seats, str]:
    found = snapshot.partition_by_name[partition]
    need = need_of(resources, found, snapshot)
    name = resources.reservation or ""
    own = snapshot.reservation_by_name.get(name)
    if name and own is None:
        return Seats(wanted, ()), ""
    nodes = capacity_of(snapshot).nodes(partition, constraint=resources.constraint or "", reservation=name).all
    jobs = snapshot.job_table
    sharing = Sharing(found.name, found.max_cpus_per_node, found.jobs_per_cpu)
    seats = count_seats(
        nodes, need, jobs, wanted=wanted, start=start, end=end, nodes_each=resources.nodes, sharing=sharing
    )
    return seats, remedy(seats, need, {node.name: free_at(node, jobs, start, sharing) for node in nodes})


def _short(seats: Seats, advice: str) -> str:
    missing = f"{seats.fit} of {seats.wanted} people fit at the same time."
    out = [f"{node.node}: {node.why}" for node in seats.nodes if node.why]
    shown = f" Not counted: {'; '.join(out[:NAMED])}{f'; and {len(out) - NAMED} more' if len(out) > NAMED else ''}."
    tight = f" There are too few {seats.tight}." if seats.tight and not advice else ""
    return f"{missing}{tight}{f' {advice}' if advice else ''}{shown if out else ''}"


def _of_reservation(
    name: str, own: Reservation | None, people: Sequence[str], *, start: float, end: float
) -> Iterator[Problem]:
    if not name:
        return
    if own is None:
        yield Problem("reservation", f"There is no reservation {name}.")
        return
    if own.start is not None and own.start > start and not own.flags & _WHOLE_DAY:
        late = duration(own.start - start)
        yield Problem("reservation", f"Reservation {name} starts {late} after the session begins.")
    if own.end is not None and own.end < end and not own.flags & _WHOLE_DAY:
        yield Problem("reservation", f"Reservation {name} ends {duration(end - own.end)} before the session does.")
    if "PURGE_COMP" in {flag.partition("=")[0] for flag in own.flags}:
        yield Problem(
            "reservation",
            f"Reservation {name} has the flag PURGE_COMP: Slurm deletes it as soon as no job has used it for some "
            "minutes.",
        )
    strangers = _not_admitted(own, people)
    if strangers:
        more = f" and {len(strangers) - NAMED} more" if len(strangers) > NAMED else ""
        yield Problem("people", f"Reservation {name} is not for {', '.join(strangers[:NAMED])}{more}.")


def _not_admitted(own: Reservation, people: Sequence[str]) -> list[str]:
    """Those whom the reservation's list of users excludes; accounts and groups are not known here."""
    denied = {user.removeprefix("-") for user in own.users if user.startswith("-")}
    admitted = {user for user in own.users if not user.startswith("-")}
    if own.accounts or own.groups or not admitted:
        return [name for name in people if name in denied]
    return [name for name in people if name not in admitted or name in denied]


def _of_time(own: Reservation | None, length: float, *, start: float, end: float) -> Iterator[Problem]:
    """A job starts only if its time limit ends within the reservation (slurm.conf(5); the flag FLEX lifts that)."""
    session = end - start
    if length < session:
        yield Problem(
            "time", f"Servers end after {duration(length)}, before the session does, which takes {duration(session)}."
        )
    if own is None or own.end is None or "FLEX" in own.flags or own.flags & _WHOLE_DAY:
        return
    if own.end - length < end:
        margin = own.end - length - start
        yield Problem(
            "time",
            f"Who starts more than {duration(margin)} after the beginning is not let in: servers run for "
            f"{duration(length)}, and reservation {own.name} ends before that.",
        )


def document(course: str, reports: Sequence[SessionReport]) -> Mapping[str, object]:
    """The JSON of ``gpuspawner course check``."""
    return {
        "course": course,
        "sessions": [
            {
                "session": each.session.name,
                "wanted": each.seats.wanted,
                "fit": each.fit,
                "tight": each.tight,
                "problems": [problem.text for problem in each.problems],
            }
            for each in reports
        ],
    }
