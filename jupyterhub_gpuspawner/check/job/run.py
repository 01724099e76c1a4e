"""Submits the small job, follows it, and cancels it whatever happens."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.check.job.facts import Facts, parse_facts
from jupyterhub_gpuspawner.check.job.network import answers_with
from jupyterhub_gpuspawner.check.job.script import PATIENCE, render
from jupyterhub_gpuspawner.errors import GPUSpawnerError, SlurmUnavailable
from jupyterhub_gpuspawner.hub.ending.joblog import Extent, last_lines
from jupyterhub_gpuspawner.jobs.status import Phase

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jupyterhub_gpuspawner.check.job.script import Trial
    from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
    from jupyterhub_gpuspawner.jobs.status import JobStatus
    from jupyterhub_gpuspawner.slurm.client import SlurmClient
    from jupyterhub_gpuspawner.wire.documents import LaunchPlan

RUNS = 90.0
"""Seconds for which a running job is followed."""
STEP = 1.0
"""Seconds between two looks."""
LOOKS_AFTER = 5
"""Looks at the log after the job's end: a shared file system may be late."""
_WHOLE = Extent(1 << 16, None)
_OVER = (Phase.ENDING, Phase.ENDED)


@dataclass(frozen=True)
class Course:
    """What became of one job, as far as it was followed."""

    trial: Trial
    job_id: str = ""
    """Empty if the job was not submitted."""
    refused: GPUSpawnerError | None = None
    """Why it was not submitted."""
    seen: JobStatus | None = None
    """The job as Slurm first showed it."""
    last: JobStatus | None = None
    """The job as Slurm last showed it before it was cancelled."""
    facts: Facts = field(default_factory=Facts)
    log_is_readable: bool = True
    """Whether this account has a way to read the user's logs."""
    back: str | None = None
    """Why this machine did not reach the job; empty if it did, None if it was not tried."""
    not_cancelled: str = ""
    """Why the job could not be cancelled afterwards."""


async def follow(
    site: GPUSlurmSpawner, trial: Trial, plan: LaunchPlan, prefix: Sequence[str], environment: Mapping[str, str]
) -> Course:
    """Submit the job of one partition, follow it to its last fact, and cancel it, also if this is cancelled."""
    client = site.connection().client
    course = Course(trial, log_is_readable=bool(not prefix or site.wrapper_dir or os.geteuid() == 0))
    submitted = asyncio.ensure_future(
        client.submit(render(trial, plan), prefix=prefix, environment={**environment, "GPUSPAWNER_CHECK": trial.word})
    )
    try:
        course = replace(course, job_id=await asyncio.shield(submitted))
        course = await _followed(client, site, course, prefix)
    except GPUSpawnerError as error:
        if course.job_id:
            raise
        course = replace(course, refused=error)
        if isinstance(error, SlurmUnavailable):
            raise
    finally:
        why = await _cancelled(client, submitted, prefix, trial)
    return replace(course, not_cancelled=why)


async def _cancelled(client: SlurmClient, submitted: asyncio.Future[str], prefix: Sequence[str], trial: Trial) -> str:
    """Cancel the job that sbatch made, or may have made; why that failed, or empty."""
    owner = {"USER": trial.profiles[0].request.username}
    try:
        jobs = [await submitted]
    except SlurmUnavailable:
        with suppress(GPUSpawnerError):
            jobs = list(await client.tagged(trial.tag))
            for job in jobs:
                await client.cancel(job, prefix=prefix, environment=owner)
        return ""
    except GPUSpawnerError:
        return ""
    try:
        await client.cancel(jobs[0], prefix=prefix, environment=owner)
    except GPUSpawnerError as error:
        return str(error)
    return ""


async def _followed(client: SlurmClient, site: GPUSlurmSpawner, course: Course, prefix: Sequence[str]) -> Course:
    began, text, looks = time.monotonic(), "", 0
    limit = PATIENCE
    while time.monotonic() - began < limit:
        job = (await client.jobs([course.job_id])).get(course.job_id)
        if job is not None:
            course = replace(course, seen=course.seen or job, last=job)
        running = job is not None and job.phase is not Phase.QUEUED
        if running and limit == PATIENCE:
            began, limit = time.monotonic(), RUNS
        if running and course.log_is_readable:
            text = await _log(client, site, course, prefix) or text
            course = replace(course, facts=parse_facts(text))
        if course.back is None and course.facts.port and job is not None and job.batch_host:
            address = await client.address(job.batch_host)
            course = replace(course, back=await answers_with(course.trial.word, address, course.facts.port))
        if course.facts.port is not None and (course.back is not None or course.facts.port == 0):
            break
        if job is None or job.phase in _OVER:
            looks += 1
            if looks > LOOKS_AFTER or not course.log_is_readable:
                break
        await asyncio.sleep(STEP)
    return course


async def _log(client: SlurmClient, site: GPUSlurmSpawner, course: Course, prefix: Sequence[str]) -> str:
    with suppress(GPUSpawnerError):
        if prefix and site.wrapper_dir:
            return await client.log_end(course.job_id, prefix=prefix)
        return await last_lines(course.trial.log.replace("%j", course.job_id), prefix, _WHOLE)
    return ""
