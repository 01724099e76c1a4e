"""What is promised on a site, beside what its Slurm does."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from functools import partial

from jupyterhub_gpuspawner.batch.script import options
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from jupyterhub_gpuspawner.extensions.availability.model.availability import availability
from jupyterhub_gpuspawner.extensions.seats.site import Request
from jupyterhub_gpuspawner.extensions.seats.twin import read_site, what_runs
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.commands import Installation
from jupyterhub_gpuspawner.slurm.estimate import Chance
from tests.waiting import wait_until


@dataclass(frozen=True)
class Filled:
    """A site that was filled with jobs, all the same, up to the first that waits."""

    form: int
    """For how many of them, one after the other, the form said that they start now."""
    seats: int
    """How many of them run by the count of seats, as it is made while the site is empty."""
    run: int
    """How many ran."""


def fill(slurm: PrivateSlurm, resources: Resources, *, at_most: int = 40) -> Filled:
    """Empty the site, submit such jobs until one waits, ask before each what the form says, and cancel them all."""
    cancel_all(slurm)
    seats = asyncio.run(seats_of(slurm, resources, at_most))
    form = run = 0
    try:
        while run < at_most:
            promised = chance(slurm, resources) is Chance.NOW
            job = submit(slurm, resources)
            state = wait_until(partial(considered, slurm, job), f"job {job} is not considered")
            if promised and form == run:
                form += 1
            if state != "RUNNING":
                break
            run += 1
    finally:
        cancel_all(slurm)
    return Filled(form, seats, run)


async def seats_of(slurm: PrivateSlurm, resources: Resources, people: int) -> int:
    """How many of so many people's servers run, by Slurm's scheduler."""
    installation = Installation(bin_dir=slurm.bin_dir, slurm_conf=str(slurm.conf))
    requests = [Request(str(number), tuple(options(resources, "best-effort"))) for number in range(people)]
    site = await read_site(installation)
    return (await what_runs(site, requests, at=time.time(), slurm=installation)).running


def chance(slurm: PrivateSlurm, resources: Resources, user: str = "") -> Chance:
    """What the form says of a job of this account now."""

    async def ask() -> Chance:
        client = SlurmClient(Installation(bin_dir=slurm.bin_dir, slurm_conf=str(slurm.conf)))
        return availability(resources, await client.snapshot(), now=time.time(), user=user).chance

    return asyncio.run(ask())


def submit(slurm: PrivateSlurm, resources: Resources, *more: str) -> str:
    """Submit a job with the options of a server's script, and ``more``, and return its id."""
    lines = [option for line in options(resources, "best-effort") for option in line.split()]
    return slurm.run("sbatch", "--parsable", "--output=/dev/null", *lines, *more, "--wrap", "sleep 600")


def considered(slurm: PrivateSlurm, job: str) -> str:
    """A job's state, once it runs or Slurm says why it waits; else empty."""
    state, reason = slurm.run("squeue", "-h", "-j", job, "-o", "%T %r").split(maxsplit=1)
    return state if state == "RUNNING" or (state == "PENDING" and reason in ("Resources", "Priority")) else ""


def cancel_all(slurm: PrivateSlurm) -> None:
    """Cancel all jobs, and wait until their nodes are free."""
    jobs = slurm.run("squeue", "-h", "-o", "%i").split()
    if jobs:
        slurm.run("scancel", *jobs)
    wait_until(lambda: not slurm.run("squeue", "-h", "-o", "%i"), "jobs do not end")
