"""Limits of the hub that are too low: servers at once against the largest course, time-outs against Slurm's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.check.finding import Check, Code
from jupyterhub_gpuspawner.courses.folder import CourseFolder
from jupyterhub_gpuspawner.courses.roster import people
from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.jobs.status import Phase
from jupyterhub_gpuspawner.profiles.resources import over_defaults
from jupyterhub_gpuspawner.words import duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jupyterhub_gpuspawner.check.context import Context
    from jupyterhub_gpuspawner.check.finding import Finding

SERVERS = Code("servers-limited", "The hub's limits of servers, or of starts, are lower than a course has people.")
START = Code(
    "start-timeout-short",
    "start_timeout is shorter than what happens between the job's start and the launcher's report.",
)
HTTP = Code("http-timeout-short", "http_timeout is shorter than JupyterLab commonly takes to start.")
QUEUE = Code("queue-timeout-short", "Jobs wait in a partition for longer than the starts of this hub may.")
LAUNCHER = 20.0
"""Seconds that the launcher may take for its first report, beside ``observe_timeout`` (``node/launch.py``)."""
HTTP_AT_LEAST = 15
"""Seconds; JupyterHub's default is 30."""
CONCURRENT = 100
"""JupyterHub's default of concurrent_spawn_limit."""
_SCHEDULED = ("Priority", "Resources")
"""Reasons of jobs that wait for others, not for something that their owners asked for."""


async def find(context: Context) -> list[Finding]:
    """Compare the settings with the courses and with Slurm's answer."""
    return [
        *await asyncio.to_thread(lambda: list(_of_courses(context))),
        *_of_starts(context),
        *await _of_power_saving(context),
        *_of_the_queue(context),
    ]


def _of_courses(context: Context) -> Iterator[Finding]:
    folder = getattr(context.spawner, "courses_dir", "")
    hub = context.site.config.JupyterHub
    groups = {name: _members(group) for name, group in hub.get("load_groups", {}).items()}
    sizes = [
        (len(people(file.course.roster, file.listed, groups).names), file.slug)
        for file in (CourseFolder(folder).courses() if folder else ())
        if file.course is not None
    ]
    wanted, slug = max(sizes, default=(0, ""))
    asked = context.asked.people
    whose = f"the {wanted} people of course {slug}" if wanted >= asked else f"{asked} people at once"
    wanted = max(wanted, asked)
    active, concurrent = hub.get("active_server_limit", 0), hub.get("concurrent_spawn_limit", CONCURRENT)
    if 0 < active < wanted:
        yield SERVERS.error(
            "c.JupyterHub.active_server_limit",
            f"the hub runs at most {active} servers, which is not enough for {whose}.",
            f"Set it to {wanted} at least, or to 0 for no limit.",
        )
    if 0 < concurrent < wanted:
        yield SERVERS.warning(
            "c.JupyterHub.concurrent_spawn_limit",
            f"at most {concurrent} servers start at the same time, and {whose} may click within a minute: the others "
            "are asked to try again.",
            f"Set it to {wanted}, or start the servers ahead of the session.",
        )


def _members(group: object) -> tuple[str, ...]:
    """The users of a group of ``load_groups``, which may be given as a list or as ``{"users": [...]}``."""
    users = group.get("users", ()) if isinstance(group, dict) else group
    return tuple(map(str, users)) if isinstance(users, (list, tuple, set)) else ()


def _of_starts(context: Context) -> Iterator[Finding]:
    site = context.slurm_site
    least = site.observe_timeout + LAUNCHER
    starts = {site.configured_as("start_timeout"): site.start_timeout}
    answers = {site.configured_as("http_timeout"): site.http_timeout}
    for profile in context.profiles:
        if profile.kind != "slurm":
            continue
        if profile.start_timeout is not None:
            starts[f"profile {profile.slug}: start_timeout"] = profile.start_timeout
        if profile.http_timeout is not None:
            answers[f"profile {profile.slug}: http_timeout"] = profile.http_timeout
    for where, seconds in starts.items():
        if seconds < least:
            yield START.warning(
                where,
                f"{seconds} s is less than the launcher may take on a node ({least:g} s), without the modules or the "
                "environment of a profile.",
                "Use the default of 300, or more; time in the queue does not count.",
            )
    for where, seconds in answers.items():
        if seconds < HTTP_AT_LEAST:
            yield HTTP.warning(
                where,
                f"{seconds} s is less than JupyterLab takes to start from a busy file system.",
                "Use 30, JupyterHub's default, or more.",
            )


async def _of_power_saving(context: Context) -> list[Finding]:
    """Nodes that are powered off are booted after the allocation, while start_timeout runs."""
    snapshot, site = context.snapshot, context.slurm_site
    if snapshot is None or not any(_may_be_off(each.states) for each in snapshot.nodes):
        return []
    try:
        boot = (await context.client.config()).resume_timeout
    except SlurmOutputError:
        return []
    if boot is None or site.start_timeout >= boot:
        return []
    return [
        START.warning(
            site.configured_as("start_timeout"),
            f"{site.start_timeout} s is less than a node that is powered off may take to boot (ResumeTimeout, {boot} "
            "s).",
            f"Set it to {boot + 120} or more.",
        )
    ]


def _may_be_off(states: frozenset[str]) -> bool:
    return bool(states & {"CLOUD", "POWERED_DOWN", "POWERING_UP", "POWERING_DOWN"})


def _of_the_queue(context: Context) -> Iterator[Finding]:
    limit, snapshot = context.slurm_site.queue_limit, context.snapshot
    if limit is None or snapshot is None:
        return
    mine = {
        name
        for each in context.profiles
        if each.kind == "slurm"
        for name in (over_defaults(each.slurm, context.defaults).partition or "").split(",")
    } or {context.defaults.partition or ""}
    waits = [
        (snapshot.taken_at - job.submitted_at, job.partitions[0])
        for job in snapshot.jobs
        if job.phase is Phase.QUEUED and job.reason in _SCHEDULED and job.submitted_at is not None
        if mine.intersection(job.partitions)
    ]
    longest, partition = max(waits, default=(0.0, ""))
    if longest > limit:
        yield QUEUE.warning(
            context.slurm_site.configured_as("queue_timeout"),
            f"a job in partition {partition} has been waiting for {duration(longest)}, and starts of this hub are "
            f"given up after {duration(limit)} in the queue.",
            "Set it to what people are ready to wait, or to UNLIMITED.",
        )


CHECK = Check(find, (SERVERS, START, HTTP, QUEUE))
