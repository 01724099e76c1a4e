"""Checks every session of a course against the profiles, the accounts and one snapshot of the cluster. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from jupyterhub_gpuspawner.courses.course import Course, CourseDate, people
from jupyterhub_gpuspawner.courses.course_profile import course_profile, opens_at
from jupyterhub_gpuspawner.courses.folder import CourseFile
from jupyterhub_gpuspawner.courses.rehearsal import check_session
from jupyterhub_gpuspawner.courses.report import Problem, SessionReport
from jupyterhub_gpuspawner.courses.seats import Seats
from jupyterhub_gpuspawner.errors import ConfigError, RequestError
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.resolve import JobRequest, permitted, queue_limit, resolve
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm.accounting import Accounting
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot
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


@dataclass(frozen=True)
class CourseInputs:
    """What a course is checked against."""

    profiles: Sequence[Profile]
    snapshot: ClusterSnapshot
    defaults: Resources | None = None
    """The site's defaults for Slurm jobs."""
    groups: Mapping[str, Collection[str]] | None = None
    """JupyterHub's groups with their members; None where they are not known."""
    without_account: Collection[str] = ()
    """People who have no account or no home folder."""
    accounting: Accounting | None = None
    """The limits of Slurm's accounting; None where there are none."""
    licenses: Mapping[str, int] | None = None
    """The cluster's licences, by name; None where they were not asked for."""
    hub: HubLimits | None = None
    absent_instructors: Collection[str] = ()
    """Users that the course names as instructors and that have no account."""
    everybody: bool = False
    """Count seats for everybody, those included whose servers run in the session's reservation; else those left."""
    unknown: Sequence[str] = ()
    """What could not be found out, as sentences."""

    def groups_of(self, user: str) -> list[str]:
        """The groups whose member a user is."""
        return [group for group, members in (self.groups or {}).items() if user in members]


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


def check_course(
    file: CourseFile, inputs: CourseInputs, *, only: str = "", since: datetime | None = None
) -> tuple[SessionReport, ...]:
    """A report for each session; ``only`` names one, and gives none if there is no such session.

    With ``since``, sessions that have ended by then are left out, unless ``only`` names one.
    """
    course = file.course
    if course is None:
        return ()
    on_roster = people(course.roster, file.listed, inputs.groups or {})
    general = [*_of_instructors(course, inputs), *_of_people(on_roster.unknown_groups, on_roster.names, inputs)]
    return tuple(
        _with(_of_date(course_date, course, file, on_roster.names, inputs), general)
        for course_date in course.dates
        if (course_date.name == only if only else since is None or course_date.end > since)
    )


def _with(report: SessionReport, problems: Sequence[Problem]) -> SessionReport:
    return replace(report, remarks=(*problems, *report.remarks))


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
    for sentence in inputs.unknown:
        yield Problem("unknown", sentence)
    if unknown_groups:
        groups = ", ".join(unknown_groups)
        yield Problem("people", f"The roster names groups that JupyterHub does not have: {groups}.")
    if not names:
        yield Problem("people", "Nobody is on the roster.")
    missing = [name for name in names if name in inputs.without_account]
    if missing:
        yield Problem("people", f"No account or home folder on this machine: {some(missing)}.")


def _of_date(
    course_date: CourseDate, course: Course, file: CourseFile, names: Sequence[str], inputs: CourseInputs
) -> SessionReport:
    problems: list[Problem] = []

    def without_seats(*more: Problem) -> SessionReport:
        return SessionReport(course_date, Seats(len(names), ()), (*problems, *more))

    base = course.profile.slug
    try:
        opens, profile = _profile_of(file, course_date, inputs)
    except ConfigError as error:
        return without_seats(Problem("profile", f"{error}."))
    if profile.kind != "slurm":
        return without_seats(Problem("profile", f"Profile {base} does not start Slurm jobs, so no seats are counted."))
    excluded = _excluded(base, profile, opens, names, inputs)
    if excluded:
        problems.append(Problem("people", f"{some(list(excluded))} {next(iter(excluded.values()))}"))
    first = next((name for name in names if name not in excluded), None)
    if first is None:
        return without_seats()
    try:
        request = request_of(file, course_date, inputs, first)
    except RequestError as error:
        return without_seats(Problem("profile", str(error)))
    if inputs.hub is not None:
        length = (course_date.end - course_date.start).total_seconds()
        limits = replace(
            inputs.hub,
            start_timeout=request.profile.start_timeout or inputs.hub.start_timeout,
            queue_timeout=queue_limit(request.profile.queue_timeout, inputs.hub.queue_timeout),
        )
        problems += of_hub(limits, len(names), length, reserved=bool(request.resources.reservation_name))
    report = check_session(
        course_date,
        request.resources,
        inputs.snapshot,
        names,
        opens=opens,
        accounting=inputs.accounting,
        licenses=inputs.licenses,
        everybody=inputs.everybody,
    )
    return _with(report, problems)


def excluded_from(
    file: CourseFile, course_date: CourseDate, inputs: CourseInputs, names: Sequence[str]
) -> dict[str, str]:
    """Whom the profile's ``allow`` keeps out of a session, with the reason: ``cannot use profile k80: ...``.

    Raises ConfigError.
    """
    assert file.course is not None  # noqa: S101 - check_course
    opens, profile = _profile_of(file, course_date, inputs)
    return _excluded(file.course.profile.slug, profile, opens, names, inputs)


def _excluded(
    base: str, profile: Profile, opens: datetime, names: Sequence[str], inputs: CourseInputs
) -> dict[str, str]:
    refusals = {name: permitted(profile, name, inputs.groups_of(name), opens) for name in names}
    return {
        name: f"cannot use profile {base}: {refusal.text}." for name, refusal in refusals.items() if refusal is not None
    }


def _profile_of(file: CourseFile, course_date: CourseDate, inputs: CourseInputs) -> tuple[datetime, Profile]:
    """When servers of the session may be started first, and the profile then; raises ConfigError."""
    assert file.course is not None  # noqa: S101 - check_course
    opens = opens_at(file.course, course_date)
    return opens, course_profile(file, inputs.profiles, opens, defaults=inputs.defaults, session=course_date).profile


def request_of(file: CourseFile, course_date: CourseDate, inputs: CourseInputs, user: str) -> JobRequest:
    """What a participant requests who starts as soon as the session is open; raises ConfigError or RequestError."""
    opens, profile = _profile_of(file, course_date, inputs)
    return resolve(
        (profile,),
        {"profile": profile.slug},
        username=user,
        groups=inputs.groups_of(user),
        server_name="",
        now=opens,
        defaults=inputs.defaults,
    )
