"""Checks every session of a course against the profiles, the accounts and one snapshot of the cluster. Pure.

:func:`plans` says what of each session is known, and what is to be asked of Slurm; :func:`report_of` puts its answers
beside that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from itertools import chain, repeat

from jupyterhub_gpuspawner.errors import ConfigError, RequestError
from jupyterhub_gpuspawner.extensions.availability.model.capacity import capacity_of
from jupyterhub_gpuspawner.extensions.availability.model.limits import cpus_per_core_of, fault_of
from jupyterhub_gpuspawner.extensions.courses.course import Course, CourseDate, People, people
from jupyterhub_gpuspawner.extensions.courses.course_profile import (
    MARGIN,
    course_profile,
    opens_at,
    profiles_of,
    request_of,
)
from jupyterhub_gpuspawner.extensions.courses.folder import CourseFile
from jupyterhub_gpuspawner.extensions.courses.report import Problem, SessionReport
from jupyterhub_gpuspawner.extensions.seats.count import SeatCount, estimate, in_words, seats_left, tries
from jupyterhub_gpuspawner.extensions.seats.site import reservation_at
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.resolve import Defaults, JobRequest, permitted, queue_limit
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm.job import parse_tag
from jupyterhub_gpuspawner.slurm.reason import node_reason
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot, Reservation
from jupyterhub_gpuspawner.words import duration, some

MANY = 10
"""People who load the same software at once without being slowed down."""
SHORT_START = 120
"""A start_timeout in seconds that many people who read the same modules or image at once may exceed."""


@dataclass(frozen=True)
class HubLimits:
    """Settings of the hub that concern many servers at once."""

    concurrent_spawns: int = 100
    """concurrent_spawn_limit; 0: no limit. Jobs that wait in Slurm's queue do not count."""
    active_servers: int = 0
    """active_server_limit; 0: no limit. Jobs that wait do count."""
    start_timeout: int = 0
    """Seconds from a job's start to a server that responds; 0: not known."""
    queue_timeout: int | None = None
    """Seconds that a server's job may wait in Slurm's queue; None: no limit."""
    culled_after: int | None = None
    """Seconds without activity after which a service stops servers; None without one that is recognised."""

    def of_profile(self, profile: Profile) -> HubLimits:
        """The same, with the limits of time that this profile has of its own."""
        return replace(
            self,
            start_timeout=profile.start_timeout or self.start_timeout,
            queue_timeout=queue_limit(profile.queue_timeout, self.queue_timeout),
        )


@dataclass(frozen=True)
class CourseInputs:
    """What a course is checked against."""

    profiles: Sequence[Profile]
    snapshots: Mapping[str, ClusterSnapshot]
    """Of at least one of the clusters, by its name, which is empty in a hub that names none; of each that responds."""
    defaults: Defaults | None = None
    """The site's defaults for Slurm jobs, of each cluster."""
    groups: Mapping[str, Collection[str]] | None = None
    """JupyterHub's groups with their members; None where they are not known."""
    people: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The participants of courses that a hub has resolved, by slug; those of any other are everybody on its roster."""
    without_account: Mapping[str, Collection[str]] = field(default_factory=dict)
    """People who have no account or no home folder, by cluster."""
    hub: HubLimits | None = None
    absent_instructors: Collection[str] = ()
    """Users that the course names as instructors and that have no account."""

    def groups_of(self, user: str) -> list[str]:
        """The groups whose member a user is."""
        return [group for group, members in (self.groups or {}).items() if user in members]

    def on(self, cluster: str) -> str:
        """The end of a phrase about a cluster, such as `` on cedar``; empty in a hub with a single one."""
        return f" on {cluster}" if self.defaults is not None and len(self.defaults) > 1 else ""

    def snapshots_of(self, plans: Iterable[SessionPlan]) -> dict[str, ClusterSnapshot]:
        """Those of the clusters on which these sessions are."""
        return {name: self.snapshots[name] for plan in plans for name in plan.clusters}

    @property
    def without_any_account(self) -> frozenset[str]:
        """People who have an account on none of the clusters."""
        missing = [frozenset(names) for names in self.without_account.values()]
        return missing[0].intersection(*missing[1:]) if missing else frozenset()

    @property
    def taken_at(self) -> float:
        """When the last of the snapshots was taken, in seconds since the epoch."""
        return max(snapshot.taken_at for snapshot in self.snapshots.values())


def of_hub(limits: HubLimits, wanted: int, session_length: float, *, reserved: bool) -> Iterator[Problem]:
    """What so many people at once meet, in a session of this length in seconds, with a reservation or without."""
    if 0 < limits.active_servers < wanted:
        yield Problem(
            "hub",
            f"The hub runs at most {limits.active_servers} servers at a time, those of others included "
            f"(active_server_limit), and {wanted} are needed.",
        )
    hints = []
    if 0 < limits.concurrent_spawns < wanted:
        hints.append(
            f"If all {wanted} people start at once, the hub takes {limits.concurrent_spawns} and asks the others to "
            "try again (concurrent_spawn_limit). Starting servers ahead of the session avoids this."
        )
    if 0 < limits.start_timeout < SHORT_START and wanted > MANY:
        hints.append(
            f"A server must respond {duration(limits.start_timeout)} after its job has started (start_timeout). That "
            f"is short when {wanted} people load the same software at once."
        )
    if reserved and limits.queue_timeout is not None:
        hints.append(
            f"A server that is started more than {duration(limits.queue_timeout)} before the reservation begins is "
            "given up while it waits (queue_timeout)."
        )
    if limits.culled_after is not None and limits.culled_after < session_length:
        hints.append(
            f"The hub stops servers after {duration(limits.culled_after)} without activity (idle culler), "
            "also during the session."
        )
    yield from (Problem("hub", text, hint=True) for text in hints)


def members(file: CourseFile, groups: Mapping[str, Collection[str]]) -> tuple[str, ...]:
    """Everybody on the roster of a course."""
    return people(file.course.roster, file.listed, groups).names if file.course is not None else ()


@dataclass(frozen=True)
class SessionPlan:
    """One session: what is known of it, and what Slurm is asked."""

    session: CourseDate
    people: tuple[str, ...]
    """The participants, in the order of the roster."""
    course: str = ""
    """The course's slug."""
    requests: tuple[JobRequest, ...] = ()
    """What each of them requests: of several the first as long as it has seats, then the next. Empty where Slurm is not
    asked, for a reason that is among the remarks."""
    on: tuple[str, ...] = ()
    """For each of these `` on cedar``, or what its cluster is; empty texts in a hub with a single cluster."""
    opens: float = 0.0
    """When the first servers are submitted, in seconds since the epoch."""
    at: float = 0.0
    """When they can start: then, or when the reservation begins."""
    excluded: Mapping[str, str] = field(default_factory=dict)
    """Those whom the profile does not admit, or who have no account, with the reason: Slurm is not asked for them."""
    own_jobs: Mapping[str, Collection[str]] = field(default_factory=dict)
    """By cluster, ids of jobs that are the participants' servers already, so that they take no seats from them."""
    served: frozenset[str] = frozenset()
    """Those of the people who have such a server; nobody before the first servers of the session can be started."""
    remarks: tuple[Problem, ...] = ()
    """What is wrong or worth knowing, whatever Slurm answers."""

    @property
    def clusters(self) -> tuple[str, ...]:
        """The cluster of each request; empty names in a hub that names none."""
        return tuple(request.resources.cluster or "" for request in self.requests)

    @property
    def asked_as(self) -> tuple[str, ...]:
        """The people as whom Slurm can be asked."""
        return tuple(name for name in self.people if name not in self.excluded)

    @property
    def to_come(self) -> int:
        """How many people have no server of the session yet."""
        return len(self.people) - len(self.served)

    def served_before(self, plans: Sequence[SessionPlan]) -> list[SessionPlan]:
        """Those of other courses' sessions whose servers are started earlier, or as early, and run at this one's start.

        Of sessions that start together, and of those under way, the one that comes first in ``plans`` is served first.
        """
        key = (self.course, self.session.name)
        own = next((index for index, plan in enumerate(plans) if (plan.course, plan.session.name) == key), len(plans))
        return [
            plan
            for index, plan in enumerate(plans)
            if plan.requests
            and plan.course != self.course
            and (plan.at, index) < (self.at, own)
            and plan.session.end.timestamp() > self.at
        ]


def plans(
    file: CourseFile, inputs: CourseInputs, *, only: str = "", since: datetime | None = None
) -> tuple[SessionPlan, ...]:
    """A plan for each session; ``only`` names one, and gives none if there is no such session.

    With ``since``, sessions that have ended by then are left out, unless ``only`` names one.
    """
    course = file.course
    if course is None:
        return ()
    resolved = inputs.people.get(file.slug)  # by a hub, which tells of names and groups that it has left out
    on_roster = people(course.roster, file.listed, inputs.groups or {}) if resolved is None else People(resolved)
    general = [*_of_instructors(course, inputs), *_of_people(on_roster.unknown_groups, on_roster.names, inputs)]
    return tuple(
        _with(_plan(course_date, course, file, on_roster.names, inputs), general)
        for course_date in course.dates
        if (course_date.name == only if only else since is None or course_date.end > since)
    )


def plans_beside(
    planned: Sequence[SessionPlan], files: Sequence[CourseFile], inputs: CourseInputs
) -> tuple[SessionPlan, ...]:
    """A plan for each session of these courses that is held during one of those ``planned``, in the courses' order.

    A session counts from when its servers are started.
    """
    asked = [(plan.at, plan.session.end.timestamp()) for plan in planned if plan.requests]
    return tuple(
        plan
        for file in files
        for date in (file.course.dates if file.course is not None else ())
        if any(date.start.timestamp() < end and at < date.end.timestamp() for at, end in asked)
        for plan in plans(file, inputs, only=date.name)
    )


def _with(plan: SessionPlan, problems: Sequence[Problem]) -> SessionPlan:
    return replace(plan, remarks=(*problems, *plan.remarks))


def _of_instructors(course: Course, inputs: CourseInputs) -> list[Problem]:
    """Whether anybody can open the course's page."""
    named = course.instructors.users
    if any(name not in inputs.absent_instructors for name in named):
        return []
    if inputs.groups is None or any(inputs.groups.get(group) for group in course.instructors.groups):
        return []
    missing = [*named, *(f"group {group}" for group in course.instructors.groups)]
    return [Problem("people", f"None of the instructors exists: {some(missing)}. Nobody can open the course's page.")]


def _of_people(unknown_groups: Sequence[str], names: Sequence[str], inputs: CourseInputs) -> Iterator[Problem]:
    if unknown_groups:
        groups = ", ".join(unknown_groups)
        yield Problem("people", f"The roster names groups that JupyterHub does not have: {groups}.")
    if not names:
        yield Problem("people", "Nobody is on the roster.")
    missing = [name for name in names if name in inputs.without_any_account]
    if missing:
        where = "any cluster" if len(inputs.without_account) > 1 else "this machine"
        yield Problem("people", f"No account or home folder on {where}: {some(missing)}.")


def _plan(
    course_date: CourseDate, course: Course, file: CourseFile, names: Sequence[str], inputs: CourseInputs
) -> SessionPlan:
    several = [
        _plan_of_profile(course_date, file, names, inputs, rank=rank)
        for rank in range(len(profiles_of(course, course_date)))
    ]
    if not all(plan.requests for plan in several):
        several = [replace(plan, requests=()) for plan in several]
    return replace(
        several[0],
        requests=tuple(request for plan in several for request in plan.requests),
        on=tuple(on for plan in several for on in plan.on),
        at=max(plan.at for plan in several),
        excluded={name: why for plan in reversed(several) for name, why in plan.excluded.items()},
        own_jobs={
            name: frozenset().union(*(plan.own_jobs.get(name, ()) for plan in several)) for name in inputs.snapshots
        },
        served=frozenset().union(*(plan.served for plan in several)),
        remarks=tuple(dict.fromkeys(remark for plan in several for remark in plan.remarks)),
    )


def _plan_of_profile(
    course_date: CourseDate, file: CourseFile, names: Sequence[str], inputs: CourseInputs, *, rank: int
) -> SessionPlan:
    """The plan of a session as if everybody started the profile of this rank."""
    course = file.course
    assert course is not None
    plan = SessionPlan(course_date, tuple(names), file.slug)
    base, opens = profiles_of(course, course_date)[rank].slug, _opens(course, course_date, inputs)
    try:
        profile = course_profile(
            file, inputs.profiles, opens, defaults=inputs.defaults, session=course_date, rank=rank
        ).profile
    except ConfigError as error:
        return _with(plan, [Problem("profile", f"{error}.")])
    if profile.kind != "slurm":
        text = f"Profile {base} does not start Slurm jobs, so no seats are counted."
        return _with(plan, [Problem("profile", text)])
    problems, excluded = list[Problem](), _excluded(base, profile, opens, names, inputs)
    if excluded:
        problems.append(Problem("people", f"{some(list(excluded))} {next(iter(excluded.values()))}"))
    first = next((name for name in names if name not in excluded), None)
    if first is None:
        return _with(plan, problems)
    try:
        request = request_of(profile, first, inputs.groups_of(first), opens, inputs.defaults)
    except RequestError as error:
        return _with(plan, [*problems, Problem("profile", str(error))])
    if inputs.hub is not None:
        length = (course_date.end - course_date.start).total_seconds()
        limits = inputs.hub.of_profile(request.profile)
        problems += of_hub(limits, len(names), length, reserved=bool(request.resources.reservation_name))
    cluster = request.resources.cluster or ""
    on = inputs.on(cluster)
    if cluster not in inputs.snapshots:
        return _with(plan, [*problems, Problem("silent", f"Slurm{on} does not respond, so no seats are counted.")])
    missing = [name for name in names if name in inputs.without_account.get(cluster, ())]
    if elsewhere := [name for name in missing if name not in inputs.without_any_account]:
        problems.append(Problem("people", f"No account or home folder{on}: {some(elsewhere)}."))
    of = f" of profile {base}" if len(profiles_of(course, course_date)) > 1 else ""
    planned = plan_of(course_date, request, inputs.snapshots[cluster], names, opens=opens.timestamp(), on=on, of=of)
    excluded |= dict.fromkeys(missing, f"has no account or home folder{on or ' on this machine'}.")
    begun = opens_at(course, course_date).timestamp() <= inputs.taken_at
    served = planned.served if begun else frozenset()
    return _with(replace(planned, course=file.slug, excluded=excluded, served=served), problems)


def plan_of(
    session: CourseDate,
    request: JobRequest,
    snapshot: ClusterSnapshot,
    names: Sequence[str],
    *,
    opens: float,
    on: str = "",
    of: str = "",
) -> SessionPlan:
    """The plan of a session in which each of these people makes this request; ``snapshot`` is of its cluster.

    ``opens``: when the first servers are started, in seconds since the epoch; ``on`` is of :attr:`SessionPlan.on`, and
    ``of`` such as `` of profile k80`` where a session has several.
    """
    resources, plan = request.resources, SessionPlan(session, tuple(names))
    name = resources.reservation_name
    own = snapshot.reservation_by_name.get(name)
    own = reservation_at(own, session.start.timestamp()) if own is not None else None
    if own is not None and (outside := _outside(own, session, on)):
        return _with(plan, [outside])
    problems = list(_of_reservation(resources, own, names, session, on))
    offered = [
        partition
        for partition in snapshot.partitions_of(resources.partition)
        if partition in snapshot.partition_by_name
    ]
    if not offered:
        requested = resources.partition or "no partition, and the cluster has no default one"
        problems.append(Problem("partition", f"The profile requests {requested}, which does not exist{on}."))
    if not offered or (name and own is None):
        return _with(plan, problems)
    nodes = own.nodes if own is not None else ()
    hidden = snapshot.hidden(
        nodes or [node for partition in offered for node in snapshot.partition_by_name[partition].nodes]
    )
    if hidden:
        what = f"reservation {name}" if nodes else f"partition {' or '.join(offered)}"
        text = (
            f"Slurm{on} does not show {some(hidden)} of {what}, which may be powered down, so no seats are counted. "
            "With cloud in PrivateData of slurm.conf it does."
        )
        return _with(plan, [*problems, Problem("unknown", text)])
    length = max(snapshot.partition_by_name[partition].length_of(resources.time) for partition in offered)
    lowered = resources.time is not None  # for whoever starts later, as course_profile does
    problems += _of_time(None if lowered else own, length, session, opens, f"{of}{on}")
    begins = own.start if own is not None and own.start is not None else opens
    own_jobs = _own_jobs(snapshot, names, name, offered)
    return SessionPlan(
        session,
        tuple(names),
        requests=(request,),
        on=(on,),
        opens=opens,
        at=max(opens, begins, snapshot.taken_at),
        own_jobs={resources.cluster or "": frozenset(own_jobs)},
        served=frozenset(own_jobs.values()),
        remarks=tuple(problems),
    )


def rank_of_next(
    requests: Sequence[JobRequest],
    session: CourseDate,
    snapshots: Mapping[str, ClusterSnapshot],
    names: Sequence[str],
    *,
    now: float,
    waiting: Mapping[int, int],
) -> int:
    """Which of these requests the next server of a session makes: the first for which there is room, or the last.

    ``waiting``: how many servers of the session have been asked for with each of them and hold nothing yet by the
    snapshots. Room is estimated; whose server runs has a seat. ``now`` in seconds since the epoch.
    """
    plans_of_each = (
        plan_of(session, request, snapshots[cluster], names, opens=now)
        for request in requests
        if (cluster := request.resources.cluster or "") in snapshots
    )
    at = max([now, *(plan.at for plan in plans_of_each)])
    counts = estimate([request.resources for request in requests], snapshots, len(names), at=at)
    left = seats_left(counts, waiting)
    return next((rank for rank, seats in enumerate(left) if seats), len(requests) - 1)


def estimated_seats(
    plan: SessionPlan, snapshots: Mapping[str, ClusterSnapshot], before: Sequence[SessionPlan] = ()
) -> list[int]:
    """How many servers start with each of a plan's requests, by estimate, after those of the sessions ``before``."""
    return estimate(
        _resources(plan),
        snapshots,
        len(plan.people),
        at=plan.at,
        own_jobs=plan.own_jobs,
        before=[(_resources(other), other.to_come) for other in before],
    )


def _resources(plan: SessionPlan) -> list[Resources]:
    return [request.resources for request in plan.requests]


def estimated(
    plan: SessionPlan, snapshots: Mapping[str, ClusterSnapshot], why: str, before: Sequence[SessionPlan] = ()
) -> SeatCount | None:
    """Seats counted by hand, ``why`` in sentences, after those of the sessions ``before``; None without a request."""
    if not plan.requests:
        return None
    counts, number = estimated_seats(plan, snapshots, before), len(plan.people)
    return SeatCount(number, tries(number), sum(counts), by_profile=by_profile(plan, counts), estimate=why)


def ranks_of_people(plan: SessionPlan, snapshots: Mapping[str, ClusterSnapshot]) -> dict[str, int]:
    """Which of a plan's requests each of its people makes, by estimate, if they start in the order of the roster."""
    ranks = [rank for rank, count in enumerate(estimated_seats(plan, snapshots)) for _ in range(count)]
    return dict(zip(plan.people, chain(ranks, repeat(len(plan.requests) - 1)), strict=False))


def by_profile(plan: SessionPlan, counts: Sequence[int]) -> dict[str, int]:
    """How many people get each of a session's profiles, of which ``counts`` start; empty where there is only one."""
    if len(plan.requests) < 2:
        return {}
    left, shares = len(plan.people), dict[str, int]()
    for chosen, on, count in zip(plan.session.profiles, plan.on, counts, strict=True):
        name = f"{chosen.slug}{on}"
        shares[name] = shares.get(name, 0) + min(left, count)
        left -= min(left, count)
    return shares


def report_of(
    plan: SessionPlan,
    snapshots: Mapping[str, ClusterSnapshot],
    seats: SeatCount | None,
    refused: Mapping[str, str],
    *,
    unknown: Sequence[str] = (),
) -> SessionReport:
    """The report of a session.

    ``refused``: the people whose job Slurm would refuse, with its sentence. ``unknown``: what could not be asked.
    """
    problems, hints = list[Problem](), [Problem("unknown", text, hint=True) for text in unknown]
    if seats is not None and plan.requests:
        problems += _of_seats(plan, snapshots, seats)
        if seats.by_profile:
            shares = [f"{number} get profile {name}" for name, number in seats.by_profile.items()]
            hints.append(Problem("seats", f"{', '.join(shares)}.", hint=True))
        if seats.beside < seats.with_gpu:
            text = f"{seats.beside} of {seats.with_gpu} have their cores beside their GPU."
            hints.append(Problem("seats", text, hint=True))
        hints += [Problem("unknown", note, hint=True) for note in (*seats.not_counted, *seats.notes)]
        if seats.estimate:
            hints.append(Problem("unknown", seats.estimate, hint=True))
    for sentence in dict.fromkeys(refused.values()):
        who = [name for name, other in refused.items() if other == sentence]
        problems.append(Problem("limit", f"{some(who)}: {sentence}"))
    remarks = (*plan.remarks, *problems, *hints)
    return SessionReport(plan.session, len(plan.people), seats, len(refused), remarks)


def _of_seats(plan: SessionPlan, snapshots: Mapping[str, ClusterSnapshot], seats: SeatCount) -> Iterator[Problem]:
    """Why not everybody's server starts."""
    rank, profile = len(plan.requests) - 1, ""
    if seats.smaller is not None and len(plan.requests) > 1:
        rank = seats.smaller.rank
        profile = f"{plan.session.profiles[rank].slug}{plan.on[rank]}"
    resources, snapshot = plan.requests[rank].resources, snapshots[plan.clusters[rank]]
    text = in_words(seats, cpus_per_core=cpus_per_core_of(resources, snapshot), profile=profile)
    if not text:
        return
    fault = fault_of(resources, snapshot, now=plan.at) if not seats.fit else None
    if fault is not None:
        yield Problem("partition", f"Slurm{plan.on[rank]} would refuse every job: {fault.clause}.")
    else:
        yield Problem("seats", f"{text}{_not_counted(plan, snapshots)}")


def _not_counted(plan: SessionPlan, snapshots: Mapping[str, ClusterSnapshot]) -> str:
    """The nodes on which nothing can start then."""
    reasons = dict[str, str]()
    for request, cluster, on in zip(plan.requests, plan.clusters, plan.on, strict=True):
        reasons |= {f"{name}{on}": why for name, why in _unavailable(plan, request.resources, snapshots[cluster])}
    return f" Not available: {some([f'{name} ({why})' for name, why in reasons.items()])}." if reasons else ""


def _unavailable(plan: SessionPlan, resources: Resources, snapshot: ClusterSnapshot) -> Iterator[tuple[str, str]]:
    """The nodes on which nothing can start then with a request, with the reason."""
    for name in snapshot.partitions_of(resources.partition):
        partition = snapshot.partition_by_name.get(name)
        if partition is None:
            continue
        until = plan.at + partition.length_of(resources.time)
        constraint = resources.constraint or ""
        nodes = capacity_of(snapshot).nodes(name, constraint=constraint, reservation=resources.reservation_name)
        for node in nodes.all:
            other = next((period for period in node.reserved if period.start < until and plan.at < period.end), None)
            if not node.usable:
                yield node.name, f"out of service now{f': {node_reason(node.reason).clause}' if node.reason else ''}"
            elif other is not None:
                begins = f" from {_clock(other.start, plan.session)}" if other.start > plan.at else ""
                maintenance = f"in maintenance{begins}, reservation {other.name}"
                yield node.name, maintenance if other.maintenance else f"reserved for {other.name}{begins}"


def _clock(moment: float, session: CourseDate) -> str:
    return f"{datetime.fromtimestamp(moment, session.start.tzinfo):%a %Y-%m-%d %H:%M}"


def _own_jobs(
    snapshot: ClusterSnapshot, people: Sequence[str], reservation: str, partitions: Sequence[str]
) -> dict[str, str]:
    """The participants' servers that run already: their jobs in the session's reservation, each with its participant.

    Without a reservation those in its partitions that a hub has submitted for them. A server of another profile counts
    there, too, since a job does not name its profile.
    """
    members, jobs = frozenset(people), snapshot.job_table
    theirs = ((jobs[at], person) for at, person in enumerate(capacity_of(snapshot).person_of_job) if person in members)
    return {
        job.job_id: person
        for job, person in theirs
        if job.nodes
        and job.reservation == reservation
        and (reservation or (job.partition in partitions and parse_tag(job.tag) is not None))
    }


def _excluded(
    base: str, profile: Profile, opens: datetime, names: Sequence[str], inputs: CourseInputs
) -> dict[str, str]:
    refusals = {name: permitted(profile, name, inputs.groups_of(name), opens) for name in names}
    return {
        name: f"cannot use profile {base}: {refusal.text}." for name, refusal in refusals.items() if refusal is not None
    }


def _opens(course: Course, course_date: CourseDate, inputs: CourseInputs) -> datetime:
    """When the first servers of a session are started that are not started yet."""
    opens, now = opens_at(course, course_date), datetime.fromtimestamp(inputs.taken_at, timezone.utc)
    return max(opens, now.astimezone(opens.tzinfo)) if now < course_date.end else opens


# The session's reservation, and how long its servers run.


def _outside(own: Reservation, session: CourseDate, on: str) -> Problem | None:
    before = own.end is not None and own.end <= session.start.timestamp()
    if not before and (own.start is None or own.start < session.end.timestamp()):
        return None
    begin, end = (_clock(moment, session) if moment is not None else "always" for moment in (own.start, own.end))
    return Problem("reservation", f"Reservation {own.name}{on} is from {begin} to {end}: the session is outside it.")


def _of_reservation(
    resources: Resources, own: Reservation | None, people: Sequence[str], session: CourseDate, on: str
) -> Iterator[Problem]:
    name, account = resources.reservation_name, resources.account
    start, end = session.start.timestamp(), session.end.timestamp()
    if not name:
        return
    if own is None:
        yield Problem("reservation", f"There is no reservation {name}{on}.")
        return
    if own.start is not None and own.start > start:
        late = duration(own.start - start)
        yield Problem("reservation", f"Reservation {name}{on} starts {late} after the session begins.")
    if own.end is not None and own.end < end:
        yield Problem("reservation", f"Reservation {name}{on} ends {duration(end - own.end)} before the session does.")
    if "PURGE_COMP" in {flag.partition("=")[0] for flag in own.flags}:
        yield Problem(
            "reservation",
            f"Reservation {name}{on} has the flag PURGE_COMP: Slurm deletes it as soon as no job has used it for some "
            "minutes.",
        )
    strangers = _not_admitted(own, people)
    if strangers:
        yield Problem("people", f"Reservation {name}{on} is not for {some(strangers)}.")
    accounts = [account for account in own.accounts if not account.startswith("-")]
    if account and ((accounts and not own.users and account not in accounts) or f"-{account}" in own.accounts):
        admitted = f"accounts {', '.join(accounts)}" if accounts else "other accounts"
        yield Problem(
            "people", f"Reservation {name}{on} is for {admitted}, and the profile requests account {account}."
        )


def _not_admitted(own: Reservation, people: Sequence[str]) -> list[str]:
    """Those whom the reservation's list of users excludes; accounts and groups are not known here."""
    denied = {user.removeprefix("-") for user in own.users if user.startswith("-")}
    admitted = {user for user in own.users if not user.startswith("-")}
    if own.accounts or own.groups or not admitted:
        return [name for name in people if name in denied]
    return [name for name in people if name not in admitted or name in denied]


def _of_time(own: Reservation | None, length: float, session: CourseDate, opens: float, of: str) -> Iterator[Problem]:
    """Slurm ends a job with its reservation; the flag FLEX lifts that."""
    start, end = session.start.timestamp(), session.end.timestamp()
    if length < end - max(start, opens) - 2 * MARGIN:
        yield Problem(
            "time",
            f"Servers{of} end after {duration(length)}, before the session does, which takes {duration(end - start)}.",
        )
    elif opens + length < end - 2 * MARGIN:
        early = duration(end - opens - length)
        yield Problem("time", f"Servers{of} that are started ahead end {early} before the session does.")
    if own is None or own.end is None or "FLEX" in own.flags:
        return
    if own.end - length < end:
        margin = own.end - length - start
        yield Problem(
            "time",
            f"Servers{of} that are started more than {duration(margin)} after the session begins end with reservation "
            f"{own.name}, before the {duration(length)} that they request.",
        )
