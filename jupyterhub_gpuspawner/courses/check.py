"""Checks every session of a course against the profiles, the accounts and one snapshot of the cluster. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.courses.course_profile import course_profile, opens_at
from jupyterhub_gpuspawner.courses.hub_limits import HubLimits, of_hub
from jupyterhub_gpuspawner.courses.rehearsal import check_session
from jupyterhub_gpuspawner.courses.report import Problem, SessionReport
from jupyterhub_gpuspawner.courses.roster import people
from jupyterhub_gpuspawner.courses.seats import Seats
from jupyterhub_gpuspawner.errors import ConfigError, RequestError
from jupyterhub_gpuspawner.profiles.resolve import permitted, queue_limit, resolve
from jupyterhub_gpuspawner.words import some

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from jupyterhub_gpuspawner.cluster.snapshot import ClusterSnapshot
    from jupyterhub_gpuspawner.courses.course import Course
    from jupyterhub_gpuspawner.courses.folder import CourseFile
    from jupyterhub_gpuspawner.courses.sessions import Session
    from jupyterhub_gpuspawner.jobs.accounting import Accounting
    from jupyterhub_gpuspawner.profiles.profile import Profile
    from jupyterhub_gpuspawner.profiles.resolve import JobRequest
    from jupyterhub_gpuspawner.profiles.resources import Resources


@dataclass(frozen=True)
class Site:
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


def members(file: CourseFile, groups: Mapping[str, Collection[str]]) -> tuple[str, ...]:
    """Everybody on the roster of a course."""
    return people(file.course.roster, file.listed, groups).names if file.course is not None else ()


def check_course(
    file: CourseFile, site: Site, *, only: str = "", since: datetime | None = None
) -> tuple[SessionReport, ...]:
    """A report for each session; ``only`` names one, and gives none if there is no such session.

    With ``since``, sessions that have ended by then are left out, unless ``only`` names one.
    """
    course = file.course
    if course is None:
        return ()
    groups = site.groups or {}
    on_roster = people(course.roster, file.listed, groups)
    general = [*_of_instructors(course, site), *_of_people(on_roster.unknown_groups, on_roster.names, site)]
    return tuple(
        _with(_of_session(session, file, on_roster.names, site, groups), general)
        for session in course.calendar()
        if (session.name == only if only else since is None or session.end > since)
    )


def _with(report: SessionReport, general: Sequence[Problem]) -> SessionReport:
    return replace(report, found=(*general, *report.found))


def _of_instructors(course: Course, site: Site) -> list[Problem]:
    """Whether anybody can open the course's page."""
    named = course.instructors.users
    if any(name not in site.absent_instructors for name in named):
        return []
    if site.groups is None or any(site.groups.get(group) for group in course.instructors.groups):
        return []
    missing = [*named, *(f"group {group}" for group in course.instructors.groups)]
    return [Problem("people", f"None of the instructors exists: {some(missing)}. Nobody can open the course's page.")]


def _of_people(unknown_groups: Sequence[str], names: Sequence[str], site: Site) -> list[Problem]:
    found = [Problem("unknown", sentence) for sentence in site.unknown]
    if unknown_groups:
        told = ", ".join(unknown_groups)
        found.append(Problem("people", f"The roster names groups that JupyterHub does not have: {told}."))
    if not names:
        found.append(Problem("people", "Nobody is on the roster."))
    missing = [name for name in names if name in site.without_account]
    if missing:
        found.append(Problem("people", f"No account or home folder on this machine: {some(missing)}."))
    return found


def _of_session(
    session: Session, file: CourseFile, names: Sequence[str], site: Site, groups: Mapping[str, Collection[str]]
) -> SessionReport:
    base = file.course.profile.slug if file.course is not None else ""

    def refused(*problems: Problem) -> SessionReport:
        return SessionReport(session, Seats(len(names), ()), problems)

    try:
        opens, profile = _profile_of(file, session, site)
    except ConfigError as error:
        return refused(Problem("profile", f"{error}."))
    if profile.kind != "slurm":
        return refused(Problem("profile", f"Profile {base} does not start Slurm jobs, so no seats are counted."))
    excluded = _excluded(base, profile, opens, names, groups)
    admitted = [name for name in names if name not in excluded]
    problems = []
    if excluded:
        why = next(iter(excluded.values()))
        problems.append(Problem("people", f"{some(list(excluded))} {why}"))
    if not admitted:
        return refused(*problems)
    try:
        request = request_of(file, session, site, admitted[0])
    except RequestError as error:
        return refused(*problems, Problem("profile", str(error)))
    if site.hub is not None:
        length = (session.end - session.start).total_seconds()
        limits = replace(
            site.hub,
            start_timeout=request.start_timeout or site.hub.start_timeout,
            queue_timeout=queue_limit(request.queue_timeout, site.hub.queue_timeout),
        )
        problems += of_hub(limits, len(names), length, reserved=bool(request.resources.reservation))
    report = check_session(
        session,
        request.resources,
        site.snapshot,
        names,
        opens=opens,
        accounting=site.accounting,
        licenses=site.licenses,
        everybody=site.everybody,
    )
    return _with(report, problems)


def excluded_from(file: CourseFile, session: Session, site: Site, names: Sequence[str]) -> dict[str, str]:
    """Whom the profile's ``allow`` keeps out of a session, with the reason: ``cannot use profile k80: ...``.

    Raises ConfigError.
    """
    assert file.course is not None  # noqa: S101 - check_course
    opens, profile = _profile_of(file, session, site)
    return _excluded(file.course.profile.slug, profile, opens, names, site.groups or {})


def _excluded(
    base: str, profile: Profile, opens: datetime, names: Sequence[str], groups: Mapping[str, Collection[str]]
) -> dict[str, str]:
    of = {name: [group for group, inside in groups.items() if name in inside] for name in names}
    refusals = {name: permitted(profile, name, of[name], opens) for name in names}
    return {
        name: f"cannot use profile {base}: {refusal.text}." for name, refusal in refusals.items() if refusal is not None
    }


def _profile_of(file: CourseFile, session: Session, site: Site) -> tuple[datetime, Profile]:
    """When servers of the session may be started first, and the profile then; raises ConfigError."""
    assert file.course is not None  # noqa: S101 - check_course
    opens = opens_at(file.course, session)
    return opens, course_profile(file, site.profiles, opens, defaults=site.defaults, session=session).profile


def request_of(file: CourseFile, session: Session, site: Site, user: str) -> JobRequest:
    """What a participant requests who starts as soon as the session is open; raises ConfigError or RequestError."""
    opens, profile = _profile_of(file, session, site)
    return resolve(
        (profile,),
        {"profile": profile.slug},
        username=user,
        groups=[group for group, inside in (site.groups or {}).items() if user in inside],
        server_name="",
        now=opens,
        defaults=site.defaults,
    )
