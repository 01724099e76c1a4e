"""Whether everybody fits in the sessions of each course."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta

from jupyterhub_gpuspawner.check.finding import Code, Context, Finding
from jupyterhub_gpuspawner.check.offered import Locations
from jupyterhub_gpuspawner.courses.check import check_course
from jupyterhub_gpuspawner.courses.folder import CourseFolder
from jupyterhub_gpuspawner.courses.report import SessionReport
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.site.courses import SETTING, course_site
from jupyterhub_gpuspawner.words import people

COURSE = Code("course", "Everybody on a course's roster fits in each of its sessions.")
FOLDER = Code("course-folder", "`courses_dir` cannot be read, or has files that are no courses.")
FILE = Code("course-file", "A course's file is not valid.")
SESSION = Code(
    "course-session",
    "Something is wrong with a session of a course, or not everybody fits. A warning if it begins in a week or later. "
    "`gpuspawner course check NAME` tells more.",
)
UNKNOWN = Code("course-unknown", "A profile is for a course that has no file.")
HINT = Code("course-hint", "Something is worth knowing before a session of a course, and nobody is kept out by it.")
SOON = timedelta(days=7)


async def check_courses(context: Context) -> list[Finding]:
    """Check each course that has a session from now on."""
    spawner = context.spawner
    if not isinstance(spawner, GPUProfilesSpawner) or not spawner.courses_dir:
        return []
    folder = CourseFolder(spawner.courses_dir)
    files = sorted(await asyncio.to_thread(folder.courses), key=lambda file: file.slug)
    findings: list[Finding] = []
    if folder.fault is not None:
        findings.append(
            FOLDER.error(SETTING, folder.fault.message, "Create the folder, or correct the setting or the names in it.")
        )
    else:
        findings += _for_no_course(context, {file.slug for file in files})
    for file in files:
        if file.fault is not None:
            fault = file.fault
            findings.append(FILE.error(fault.where, fault.message.removeprefix(f"{fault.where}: "), fault.hint))
    valid = [file for file in files if file.fault is None]
    if not valid or context.snapshot is None:
        return findings
    site = await course_site(context.site, valid, client=context.client, snapshot=context.snapshot)
    for file in valid:
        findings += _of_course(file.slug, check_course(file, site, since=context.now), context)
    return findings


def _for_no_course(context: Context, slugs: Collection[str]) -> Iterator[Finding]:
    for profile in context.profiles:
        missing = [name for name in profile.courses or () if name not in slugs]
        if missing:
            yield UNKNOWN.warning(
                Locations(context).of(profile, ("courses",)),
                f"there is no course {' or '.join(missing)}.",
                f"Courses are: {', '.join(sorted(slugs)) or 'none'}.",
            )


def _of_course(slug: str, reports: Sequence[SessionReport], context: Context) -> Iterator[Finding]:
    where = f"course {slug}"
    if reports and all(report.fits for report in reports):
        wanted = max(report.seats.wanted for report in reports)
        yield COURSE.ok(where, f"{people(wanted)}, {len(reports)} sessions from {reports[0].session.name} on")
    texts: dict[tuple[str, bool], list[SessionReport]] = {}
    for report in reports:
        for problem in report.remarks:
            texts.setdefault((problem.text, problem.hint), []).append(report)
    for (text, hint), those in texts.items():
        soon = those[0].session.start - context.now < SOON
        report_it = HINT.warning if hint else SESSION.error if soon else SESSION.warning
        in_all = len(those) == len(reports)
        yield report_it(
            where if in_all else f"{where} {', '.join(report.session.name for report in those)}",
            text,
            f"`gpuspawner course check {slug}` tells more.",
        )
