"""Checks every session of a course against the profiles, the accounts and one snapshot of the cluster. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.courses.rehearsal import Problem, SessionReport, check_session
from jupyterhub_gpuspawner.courses.roster import people
from jupyterhub_gpuspawner.courses.seats import Seats
from jupyterhub_gpuspawner.errors import RequestError
from jupyterhub_gpuspawner.profiles.resolve import permitted, resolve
from jupyterhub_gpuspawner.words import some

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

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
    unknown: Sequence[str] = ()
    """What could not be found out, as sentences."""


def members(file: CourseFile, groups: Mapping[str, Collection[str]]) -> tuple[str, ...]:
    """Everybody on the roster of a course."""
    return people(file.course.roster, file.listed, groups).names if file.course is not None else ()


def check_course(file: CourseFile, site: Site, *, only: str = "") -> tuple[SessionReport, ...]:
    """A report for each session; ``only`` names one, and gives none if there is no such session."""
    course = file.course
    if course is None:
        return ()
    groups = site.groups or {}
    on_roster = people(course.roster, file.listed, groups)
    general = list(_of_people(on_roster.unknown_groups, on_roster.names, site))
    return tuple(
        _with(_of_session(session, course, on_roster.names, site, groups), general)
        for session in course.calendar()
        if not only or session.name == only
    )


def _with(report: SessionReport, general: Sequence[Problem]) -> SessionReport:
    return replace(report, problems=(*general, *report.problems))


def _of_people(unknown_groups: Sequence[str], names: Sequence[str], site: Site) -> list[Problem]:
    found = [Problem("unknown", sentence) for sentence in site.unknown]
    if unknown_groups:
        told = ", ".join(unknown_groups)
        found.append(Problem("people", f"The roster names groups that JupyterHub does not have: {told}."))
    missing = [name for name in names if name in site.without_account]
    if missing:
        found.append(Problem("people", f"{some(missing)} have no account or home folder on this machine."))
    return found


def _of_session(
    session: Session, course: Course, names: Sequence[str], site: Site, groups: Mapping[str, Collection[str]]
) -> SessionReport:
    def refused(*problems: Problem) -> SessionReport:
        return SessionReport(session, Seats(len(names), ()), problems)

    profile = next((each for each in site.profiles if each.slug == course.profile.slug), None)
    if profile is None:
        return refused(Problem("profile", f"There is no profile {course.profile.slug}."))
    if profile.kind != "slurm":
        return refused(
            Problem("profile", f"Profile {profile.slug} does not start Slurm jobs, so no seats are counted.")
        )
    of = {name: [group for group, inside in groups.items() if name in inside] for name in names}
    excluded = {
        name: refusal.text
        for name in names
        if (refusal := permitted(profile, name, of[name], session.start)) is not None
    }
    admitted = [name for name in names if name not in excluded]
    problems = []
    if excluded:
        why = next(iter(excluded.values()))
        problems.append(Problem("people", f"{some(list(excluded))} cannot use profile {profile.slug}: {why}."))
    if not admitted:
        return refused(*problems)
    try:
        request = request_of(course, session, site, admitted[0])
    except RequestError as error:
        return refused(*problems, Problem("profile", str(error)))
    return _with(check_session(session, request.resources, site.snapshot, names, site.accounting), problems)


def request_of(course: Course, session: Session, site: Site, user: str) -> JobRequest:
    """What a participant requests in a session; raises RequestError."""
    request = resolve(
        site.profiles,
        {"profile": course.profile.slug, **course.profile.options},
        username=user,
        groups=[group for group, inside in (site.groups or {}).items() if user in inside],
        server_name="",
        now=session.start,
        defaults=site.defaults,
    )
    if session.reservation is None:
        return request
    return replace(request, resources=replace(request.resources, reservation=session.reservation))
