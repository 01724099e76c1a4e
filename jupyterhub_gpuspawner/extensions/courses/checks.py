"""How many people could start a profile at once, and whether everybody fits in the sessions of each course."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import timedelta
from inspect import cleandoc

import click

from jupyterhub_gpuspawner.check.finding import Case, Code, Context, Finding, names_no_cluster
from jupyterhub_gpuspawner.check.profiles import lengths_of
from jupyterhub_gpuspawner.errors import RequestError
from jupyterhub_gpuspawner.extensions.courses.check import of_hub, plan_of, plans
from jupyterhub_gpuspawner.extensions.courses.course import CourseDate
from jupyterhub_gpuspawner.extensions.courses.fields import COURSES
from jupyterhub_gpuspawner.extensions.courses.rehearsal import Rehearsal, rehearsal_with
from jupyterhub_gpuspawner.extensions.courses.report import SessionReport
from jupyterhub_gpuspawner.extensions.courses.site import SETTING, course_site, courses_of, hub_limits
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.words import people

SEATS = Code("seats", "So many people as were asked for (`--people`) could start the profile now.")
FEW = Code("seats-few", "Fewer people than were asked for could start the profile now.")
LIMIT = Code("seats-limit", "A setting of the hub concerns so many people at once.")
_REAL = "course rehearse --real"
NO_NBGITPULLER = Code("nbgitpuller-missing", "nbgitpuller, which fetches a course's materials, is missing.", _REAL)
NO_MATERIALS = Code("materials-missing", "a node cannot fetch the course's materials.", _REAL)
UNWRITABLE = Code("home-unwritable", "nothing can be written to the home folder.", _REAL)
NO_GPU = Code("gpu-invisible", "a job that asks for a GPU sees none.", _REAL)
_LONG = timedelta(hours=8).total_seconds()
"""The length of a job that has no time limit."""
_PEOPLE = click.Option(
    ["--people"], type=click.IntRange(1, 5000), help="Count how many of so many people could start now."
)


def with_people(check: click.Command) -> click.Command:
    """``gpuspawner check`` with the option ``--people``, and a word on courses."""
    extended = copy.copy(check)
    extended.params = [*check.params, _PEOPLE]
    extended.help = (
        f"{cleandoc(check.help or '')}\n\nEach course is checked, too: whether everybody fits in each of its sessions."
    )
    return extended


def _asked_for(context: Context) -> int:
    """How many people would start at once; 0 where that was not asked."""
    people: int = context.options.added.get("people", 0)
    return people


async def check_seats(context: Context) -> AsyncIterator[Finding]:
    """Count the seats of the profile that was asked for, or of each."""
    if not _asked_for(context) or context.snapshot is None or not context.has_profiles:
        return
    name = context.cluster
    rehearsal = await rehearsal_with(context.spawner, {name: context.snapshot}, {name: context.client})
    for profile in context.chosen():
        if context.cluster_of(Case(profile)) != context.cluster:
            continue
        async for finding in _seats(profile, rehearsal, context):
            yield finding


def _people(profile: Profile, context: Context) -> list[str]:
    """As many of the profile's people as were asked for; empty if fewer are known."""
    wanted = _asked_for(context)
    names = sorted({*profile.allow.users} | context.people.members(profile.allow.groups))
    return names[:wanted] if len(names) >= wanted else []


async def _seats(profile: Profile, rehearsal: Rehearsal, context: Context) -> AsyncIterator[Finding]:
    where, wanted, members = context.location(profile), _asked_for(context), _people(profile, context)
    names = members or [f"person {number}" for number in range(1, wanted + 1)]
    try:
        request = context.request(Case(profile), now=context.now)
    except RequestError as error:
        yield FEW.warning(where, f"nobody of {people(wanted)} could start now: {error.message}", error.hint)
        return
    snapshot = rehearsal.snapshots[context.cluster]
    length = min([*lengths_of(request.resources, snapshot).values(), _LONG])
    date = CourseDate(context.now, context.now + timedelta(seconds=length), "now")
    plan = plan_of(date, request, snapshot, names, opens=context.now.timestamp())
    report = await rehearsal.report(plan, plan.asked_as if members else ())
    texts = [problem.text for problem in report.problems if members or problem.kind != "people"]
    if report.fit >= wanted and not texts:
        text = f"{people(wanted)} could start now{report.provisos}"
        yield SEATS.ok(where, ". ".join([text, *(sentence.rstrip(".") for sentence in report.not_counted)]))
    else:
        counted = report.seats is None or any(problem.kind == "seats" for problem in report.problems)
        head = [] if counted else [f"{report.fit} of {people(wanted)} could start now{report.provisos}."]
        text = " ".join([*head, *texts, *report.not_counted])
        yield FEW.warning(where, text, "Request less for each, or let fewer people start at once.")
    limits = hub_limits(context.site).of_profile(request.profile)
    for problem in of_hub(limits, wanted, length, reserved=bool(request.resources.reservation_name)):
        yield LIMIT.warning(where, problem.text)


COURSE = Code("course", "Everybody on a course's roster fits in each of its sessions.", of_hub=True)
FOLDER = Code("course-folder", "`courses_dir` cannot be read, or has files that are no courses.", of_hub=True)
FILE = Code("course-file", "A course's file is not valid.", of_hub=True)
SESSION = Code(
    "course-session",
    "Something is wrong with a session of a course, or not everybody fits. A warning if it begins in a week or later. "
    "`gpuspawner course check NAME` tells more.",
    of_hub=True,
)
UNKNOWN = Code("course-unknown", "A profile is for a course that has no file.", of_hub=True)
HINT = Code(
    "course-hint", "Something is worth knowing before a session of a course, and nobody is kept out by it.", of_hub=True
)
SOON = timedelta(days=7)


@names_no_cluster
async def check_courses(context: Context) -> AsyncIterator[Finding]:
    """Check each course that has a session from now on, on the clusters that its profiles are on."""
    if not context.has_profiles or not context.spawner.courses_dir or context.cluster != context.spawner.first_cluster:
        return
    folder = await asyncio.to_thread(courses_of, context.site)
    slugs = [file.slug for file in folder.files]
    if folder.fault is not None:
        fix = "Create the folder, or correct the setting or the names in it."
        yield FOLDER.error(SETTING, folder.fault.message, fix)
    for profile in context.profiles if folder.fault is None else ():
        if missing := [name for name in COURSES.of(profile) or () if name not in slugs]:
            text = f"there is no course {' or '.join(missing)}."
            yield UNKNOWN.warning(
                context.location(profile, "courses"), text, f"Courses are: {', '.join(slugs) or 'none'}."
            )
    for fault in (file.fault for file in folder.files if file.fault is not None):
        yield FILE.of(fault)
    valid = [file for file in folder.files if file.fault is None]
    every = {**context.others, context.cluster: context.snapshot}
    snapshots = {name: snapshot for name, snapshot in every.items() if snapshot is not None}
    if not valid or not snapshots:
        return
    inputs = await course_site(context.site, valid, snapshots=snapshots)
    planned_by_course = [plans(file, inputs, since=context.now) for file in valid]
    others = [plan for planned in planned_by_course for plan in planned]
    clients = {context.cluster: context.client}
    rehearsal = await rehearsal_with(context.spawner, inputs.snapshots_of(others), clients, others=others)
    for file, planned in zip(valid, planned_by_course, strict=True):
        reports = await rehearsal.reports(planned, until=(context.now + SOON).timestamp())
        for finding in _of_course(file.slug, reports, context):
            yield finding


def _of_course(slug: str, reports: Sequence[SessionReport], context: Context) -> Iterator[Finding]:
    where = f"course {slug}"
    if reports and all(report.fits for report in reports):
        wanted = max(report.wanted for report in reports)
        yield COURSE.ok(where, f"{people(wanted)}, {len(reports)} sessions from {reports[0].session.name} on")
    sessions: dict[tuple[str, bool], list[SessionReport]] = {}
    for report in reports:
        for problem in (*report.problems, *(hint for hint in report.hints if hint.kind == "hub")):
            sessions.setdefault((problem.text, problem.hint), []).append(report)
    for (text, hint), those in sessions.items():
        soon = those[0].session.start - context.now < SOON
        severity = HINT.warning if hint else SESSION.error if soon else SESSION.warning
        names = "" if len(those) == len(reports) else f" {', '.join(report.session.name for report in those)}"
        yield severity(f"{where}{names}", text, f"`gpuspawner course check {slug}` tells more.")
