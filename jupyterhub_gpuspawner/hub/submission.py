"""One ``sbatch``, of whose job nothing is lost: its id comes back, or the job is cancelled.

Three things can go between a job and its hub: the start is cancelled while sbatch runs, sbatch fails although slurmctld
has taken the job, and Slurm does not answer when the job should be cancelled.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING

from traitlets.log import get_logger

from jupyterhub_gpuspawner.errors import GPUSpawnerError, SlurmUnavailable
from jupyterhub_gpuspawner.hub import metrics
from jupyterhub_gpuspawner.hub.waiting import in_background

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from jupyterhub_gpuspawner.hub.batch import BatchJob
    from jupyterhub_gpuspawner.slurm.client import SlurmClient

    Cancel = Callable[[str], Awaitable[None]]

PAUSES = (2.0, 5.0, 10.0, 30.0, 60.0)
"""Seconds between tries; the last one again and again."""
AT_ONCE = 0.5
"""Seconds for the first look, while a person waits: a slurmctld that is well again needs no more."""
LOOKS = 10
"""How often a job that may have been made is looked for: for some six minutes."""
UNDER_WAY: set[str] = set()
"""Tags of submissions that are not over, and ids of jobs that are being cancelled: jobs that somebody looks after."""


async def submit(
    client: SlurmClient, job: BatchJob, *, prefix: Sequence[str], environment: Mapping[str, str], cancel: Cancel
) -> str:
    """The id of the job that sbatch made. Raises what :meth:`SlurmClient.submit` raises.

    Where this is cancelled, or no answer tells whether there is a job, one that was made all the same is cancelled.
    """
    UNDER_WAY.add(job.tag)
    made = asyncio.ensure_future(_made(client, job, prefix, environment))
    try:
        job_id = await asyncio.shield(made)
    except asyncio.CancelledError:
        in_background(_looking_after(job.tag, _cancel_when_made(made, client, job.tag, cancel)))
        raise
    except SlurmUnavailable:
        in_background(_looking_after(job.tag, _look_for(client, job.tag, cancel)))
        raise
    except BaseException:
        UNDER_WAY.discard(job.tag)
        raise
    UNDER_WAY.discard(job.tag)  # the caller stores the id before anything else happens in the loop
    return job_id


async def _looking_after(what: str, work: Awaitable[None]) -> None:
    UNDER_WAY.add(what)
    try:
        await work
    finally:
        UNDER_WAY.discard(what)


async def _made(client: SlurmClient, job: BatchJob, prefix: Sequence[str], environment: Mapping[str, str]) -> str:
    try:
        return await client.submit(job.script, prefix=prefix, environment=environment)
    except SlurmUnavailable:
        with suppress(GPUSpawnerError, asyncio.TimeoutError):
            for job_id in await asyncio.wait_for(client.tagged(job.tag), AT_ONCE):
                return job_id
        raise


async def _cancel_when_made(made: asyncio.Future[str], client: SlurmClient, tag: str, cancel: Cancel) -> None:
    try:
        job_id = await made
    except SlurmUnavailable:
        await _look_for(client, tag, cancel)
    except GPUSpawnerError:
        return  # there is no job
    else:
        get_logger().info("The start of %s was given up: cancelling job %s", tag, job_id)
        metrics.lost_job("start given up")
        await cancel_surely(job_id, cancel)


async def _look_for(client: SlurmClient, tag: str, cancel: Cancel) -> None:
    for look in range(LOOKS):
        await asyncio.sleep(PAUSES[min(look, len(PAUSES) - 1)])
        with suppress(GPUSpawnerError):
            for job_id in await client.tagged(tag):
                get_logger().warning("sbatch gave no answer, but made job %s (%s): cancelling it", job_id, tag)
                metrics.lost_job("sbatch unanswered")
                await cancel_surely(job_id, cancel)
                return


async def cancel_surely(job_id: str, cancel: Cancel) -> None:
    """Cancel the job, and try again for as long as that fails; a hub that ends first finds it when it starts anew."""
    await _looking_after(job_id, _cancel_until_done(job_id, cancel))


async def _cancel_until_done(job_id: str, cancel: Cancel) -> None:
    for failures in count():
        try:
            await cancel(job_id)
        except GPUSpawnerError as error:
            if failures == 0:
                get_logger().error("Job %s is not cancelled yet; the hub tries on: %s", job_id, error)
            await asyncio.sleep(PAUSES[min(failures, len(PAUSES) - 1)])
        else:
            get_logger().info("Job %s is cancelled", job_id)
            return
