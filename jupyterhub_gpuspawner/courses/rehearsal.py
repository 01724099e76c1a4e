"""Whether a session of a course will work: its seats, its reservation, and the limits of its partition. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from jupyterhub_gpuspawner.cluster.capacity import capacity_of
from jupyterhub_gpuspawner.cluster.limits import fault_in, length_of, need_of, partitions_of
from jupyterhub_gpuspawner.courses.course import CourseDate
from jupyterhub_gpuspawner.courses.course_profile import MARGIN
from jupyterhub_gpuspawner.courses.limits import JobSize, admit, admit_licensed, lowest
from jupyterhub_gpuspawner.courses.report import Problem, SessionReport
from jupyterhub_gpuspawner.courses.seats import (
    CPUS,
    GPUS,
    MEMORY,
    NODES,
    SHARDS,
    Seats,
    Sharing,
    count_seats,
    either,
    free_at,
    remedy,
)
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm.accounting import Accounting
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot, Reservation
from jupyterhub_gpuspawner.words import duration, some

NAMED = 5
"""Nodes named in one problem, at most."""
_TOO_FEW = {
    GPUS: "are too few GPUs",
    SHARDS: "are too few GPU shards",
    CPUS: "are too few CPUs",
    MEMORY: "is too little memory",
    NODES: "are too few nodes",
}
_WHOLE_DAY = frozenset({"DAILY", "WEEKLY", "WEEKDAY", "WEEKEND", "HOURLY"})
"""Flags of a reservation that moves on by itself (scontrol(1))."""


def check_session(
    session: CourseDate,
    resources: Resources,
    snapshot: ClusterSnapshot,
    people: Sequence[str],
    *,
    opens: datetime,
    accounting: Accounting | None = None,
    licenses: Mapping[str, int] | None = None,
    everybody: bool = False,
) -> SessionReport:
    """Check one session for these people; each requests ``resources``, with the session's reservation.

    ``opens`` is when the first servers are started.
    ``licenses`` are the cluster's, by name; None where they are not known. ``everybody``: see :attr:`.Site.everybody`.
    """
    start, end = session.start.timestamp(), session.end.timestamp()
    name = resources.reservation_name
    own = snapshot.reservation_by_name.get(name)
    if own is not None and _outside(own, start=start, end=end):
        return SessionReport(session, Seats(len(people), ()), (_reported_outside(own, session),))
    problems = list(_of_reservation(name, own, resources.account, people, start=start, end=end))
    offered = [partition for partition in partitions_of(resources, snapshot) if partition in snapshot.partition_by_name]
    if not offered:
        requested = resources.partition or "no partition, and the cluster has no default one"
        problems.append(Problem("partition", f"The profile requests {requested}, which does not exist."))
        return SessionReport(session, Seats(len(people), ()), tuple(problems))
    # the length of a server that is started ahead counts from then on, and so must what is left of the reservation
    faults = {name: fault_in(resources, snapshot, name, now=opens.timestamp()) for name in offered}
    open_ = [name for name in offered if faults[name] is None]
    if not open_:
        clause = next(fault.clause for fault in faults.values() if fault is not None)
        waits = own.start - opens.timestamp() if own is not None and own.start is not None else 0.0
        ahead = (
            f" Servers are started ahead {duration(waits)} before it begins."
            if opens < session.start and waits > 0
            else ""
        )
        problems.append(Problem("partition", f"Slurm would refuse every job: {clause}.{ahead}"))
        return SessionReport(session, Seats(len(people), ()), tuple(problems))
    own_jobs = _own_jobs(snapshot, people, name) if everybody else frozenset()
    seats_by_partition = {
        name: _seats(resources, snapshot, name, own_jobs, wanted=len(people), start=start, end=end) for name in open_
    }
    partition = max(open_, key=lambda partition_name: seats_by_partition[partition_name][0].fit)
    advice = seats_by_partition[partition][1]
    seats = either([seats_by_partition[name][0] for name in open_])
    length = length_of(resources, snapshot.partition_by_name[partition])
    lowered = resources.time is not None  # for whoever starts later, as course_profile does
    problems += _of_time(None if lowered else own, length, start=start, opens=opens.timestamp(), end=end)
    if seats.fit < seats.wanted and (own is not None or not name):
        problems.append(Problem("seats", _short(seats, advice)))
    admission = None
    if accounting is not None:
        held = (
            job
            for job in snapshot.jobs
            if job.nodes and job.job_id not in own_jobs and (job.ends_at is None or job.ends_at > start)
        )
        admission = admit(people, _job_size(resources, snapshot, partition), accounting, held)
    if licenses is not None:
        admission = lowest(admission, admit_licensed(len(people), resources.options, licenses))
    if admission is not None:
        problems += [Problem("limit", sentence) for sentence in admission.sentences]
    return SessionReport(session, seats, tuple(problems), admission)


def _own_jobs(snapshot: ClusterSnapshot, people: Sequence[str], reservation: str) -> frozenset[str]:
    """The participants' jobs in the session's reservation: once it has begun, these are their servers."""
    if not reservation:
        return frozenset()
    members = frozenset(people)
    return frozenset(
        job.job_id for job in snapshot.jobs if job.nodes and job.reservation == reservation and job.user in members
    )


def _job_size(resources: Resources, snapshot: ClusterSnapshot, partition: str) -> JobSize:
    """What one participant's job counts for, on the node of the session where that is least."""
    state = snapshot.partition_by_name[partition]
    need = need_of(resources, state, snapshot)
    nodes = capacity_of(snapshot).nodes(
        partition, constraint=resources.constraint or "", reservation=resources.reservation_name
    )
    counts = [
        (node.cpus, node.memory, node.gpus.get(need.gpu_type, 0))
        if need.exclusive
        else (*node.used_by(need), need.gpus)
        for node in nodes.kinds
        if node.offers(need)
    ]
    cpus, memory, gpus = min(counts, default=(need.cpus, need.memory, need.gpus))
    tres = {"cpu": cpus, "mem": memory, "node": 1, "gres/gpu": gpus, "gres/shard": need.shards}
    if need.gpu_type:
        tres[f"gres/gpu:{need.gpu_type}"] = gpus
    return JobSize(
        partition=partition,
        tres={name: number * resources.node_count for name, number in tres.items() if number},
        seconds=length_of(resources, state),
        account=resources.account or "",
        qos=resources.qos or "",
        partition_qos=state.qos,
    )


def _seats(
    resources: Resources,
    snapshot: ClusterSnapshot,
    partition: str,
    own_jobs: frozenset[str],
    *,
    wanted: int,
    start: float,
    end: float,
) -> tuple[Seats, str]:
    state = snapshot.partition_by_name[partition]
    need = need_of(resources, state, snapshot)
    name = resources.reservation_name
    own = snapshot.reservation_by_name.get(name)
    if name and own is None:
        return Seats(wanted, ()), ""
    nodes = capacity_of(snapshot).nodes(partition, constraint=resources.constraint or "", reservation=name).all
    jobs = snapshot.job_table
    sharing = Sharing(state.name, state.max_cpus_per_node, state.jobs_per_cpu, own_jobs)
    seats = count_seats(
        nodes, need, jobs, wanted=wanted, start=start, end=end, nodes_per_person=resources.node_count, sharing=sharing
    )
    return seats, remedy(seats, need, {node.name: free_at(node, jobs, start, sharing) for node in nodes})


def _short(seats: Seats, advice: str) -> str:
    missing = f"The nodes have room for {seats.fit} of {seats.wanted} people at the same time."
    out = [f"{node.node}: {node.why}" for node in seats.nodes if node.why]
    shown = f" Not counted: {'; '.join(out[:NAMED])}{f'; and {len(out) - NAMED} more' if len(out) > NAMED else ''}."
    tight = f" There {_TOO_FEW[seats.tight]}." if seats.tight and not advice else ""
    return f"{missing}{tight}{f' {advice}' if advice else ''}{shown if out else ''}"


def _outside(own: Reservation, *, start: float, end: float) -> bool:
    if own.flags & _WHOLE_DAY:
        return False
    return (own.end is not None and own.end <= start) or (own.start is not None and own.start >= end)


def _reported_outside(own: Reservation, session: CourseDate) -> Problem:
    begin, end = (
        f"{datetime.fromtimestamp(moment, session.start.tzinfo):%a %Y-%m-%d %H:%M}" if moment is not None else "always"
        for moment in (own.start, own.end)
    )
    return Problem("reservation", f"Reservation {own.name} is from {begin} to {end}: the session is outside it.")


def _of_reservation(
    name: str, own: Reservation | None, account: str | None, people: Sequence[str], *, start: float, end: float
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
        yield Problem("people", f"Reservation {name} is not for {some(strangers)}.")
    accounts = [account for account in own.accounts if not account.startswith("-")]
    if account and ((accounts and not own.users and account not in accounts) or f"-{account}" in own.accounts):
        admitted = f"accounts {', '.join(accounts)}" if accounts else "other accounts"
        yield Problem("people", f"Reservation {name} is for {admitted}, and the profile requests account {account}.")


def _not_admitted(own: Reservation, people: Sequence[str]) -> list[str]:
    """Those whom the reservation's list of users excludes; accounts and groups are not known here."""
    denied = {user.removeprefix("-") for user in own.users if user.startswith("-")}
    admitted = {user for user in own.users if not user.startswith("-")}
    if own.accounts or own.groups or not admitted:
        return [name for name in people if name in denied]
    return [name for name in people if name not in admitted or name in denied]


def _of_time(own: Reservation | None, length: float, *, start: float, opens: float, end: float) -> Iterator[Problem]:
    """A job starts only if its time limit ends within the reservation (slurm.conf(5); the flag FLEX lifts that)."""
    session = end - start
    if length < session - 2 * MARGIN:
        yield Problem(
            "time", f"Servers end after {duration(length)}, before the session does, which takes {duration(session)}."
        )
    elif opens + length < end - 2 * MARGIN:
        early = duration(end - opens - length)
        yield Problem("time", f"Servers that are started ahead end {early} before the session does.")
    if own is None or own.end is None or "FLEX" in own.flags or own.flags & _WHOLE_DAY:
        return
    if own.end - length < end:
        margin = own.end - length - start
        yield Problem(
            "time",
            f"Servers that are started more than {duration(margin)} after the session begins do not run: they request "
            f"{duration(length)}, and reservation {own.name} ends before that.",
        )
