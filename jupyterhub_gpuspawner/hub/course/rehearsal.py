"""What Slurm says of a session before it begins: how many servers start together, and whom it would refuse.

Slurm's scheduler itself counts the seats (:mod:`jupyterhub_gpuspawner.slurm.twin`). The limits of accounting are known
to the site's Slurm alone, which is asked as each participant (``sbatch --test-only``). Nothing is submitted.
"""

from __future__ import annotations

import asyncio
import math
import shlex
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from jupyterhub_gpuspawner.courses.check import SessionPlan, by_profile, estimated, report_of
from jupyterhub_gpuspawner.courses.report import SessionReport
from jupyterhub_gpuspawner.courses.seats import PARTS, SeatCount, Smaller, smaller_values, tries, with_value
from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError, SubmitRejected
from jupyterhub_gpuspawner.hub.site.account import Account, job_owner, refuse_root
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.start.build import batch_job
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.commands import Installation, command_prefix
from jupyterhub_gpuspawner.slurm.sbatch_options import directives, options_of
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot
from jupyterhub_gpuspawner.slurm.squeue import WillRun
from jupyterhub_gpuspawner.slurm.twin.ask import Answers, read_site, what_runs
from jupyterhub_gpuspawner.slurm.twin.outcome import near_cpus, outcome
from jupyterhub_gpuspawner.slurm.twin.site import Request, Site

CONCURRENT_SESSIONS = 3
"""Sessions whose seats are counted at the same time."""
T = TypeVar("T")
CONCURRENT_REQUESTS = 4
"""People as whom Slurm is asked at the same time: each question makes slurmctld evaluate the cluster."""
LATER = "Counted by hand, as an estimate, since there is more than a week until then."
SERVED_FIRST = "Counted after the servers of course {course}, whose session is at the same time."
TOGETHER = (
    "Limits of Slurm's accounting that several jobs reach together (GrpTRES, GrpJobs, MaxTRESPerAccount, minutes) are "
    "not counted: Slurm can be asked for one job at a time."
)


@dataclass(frozen=True)
class PersonsAnswer:
    """Slurm's answer for one participant."""

    user: str
    starts_at: float | None
    """When their server would start, in seconds since the epoch; None: Slurm would refuse it."""
    refusal: str = ""


@dataclass(frozen=True)
class Rehearsal:
    """Asks Slurm about sessions."""

    spawner: GPUProfilesSpawner
    client: SlurmClient
    snapshot: ClusterSnapshot
    site: Site | GPUSpawnerError
    """What the site's Slurm says of itself, or why it does not."""
    together: str
    """What is not known of the limits of accounting; empty where Slurm enforces none."""
    others: Sequence[SessionPlan] = ()
    """The sessions of all courses of the hub: those that are served before take their seats first."""

    async def reports(self, plans: Sequence[SessionPlan], *, until: float = math.inf) -> tuple[SessionReport, ...]:
        """The report of each session; Slurm is asked as everybody for the first, and as one person for the others.

        Slurm is not asked about sessions that begin after ``until``, in seconds since the epoch.
        """
        turns = asyncio.Semaphore(CONCURRENT_SESSIONS)

        async def report(plan: SessionPlan, *, everybody: bool) -> SessionReport:
            if plan.session.start.timestamp() > until:
                by_hand = estimated(plan, self.snapshot, LATER)
                return report_of(plan, self.snapshot, by_hand, {}, shared_limits=bool(self.together))
            async with turns:
                return await self.report(plan, plan.asked_as if everybody else plan.asked_as[:1])

        return tuple(await together(report(plan, everybody=plan is plans[0]) for plan in plans))

    async def report(self, plan: SessionPlan, as_users: Sequence[str]) -> SessionReport:
        """The report of one session; Slurm is asked as these users whom it would refuse."""
        if not plan.requests:
            return report_of(plan, self.snapshot, None, {})
        scripts, unknown = self._scripts(plan), [self.together] if self.together else []
        asking = asyncio.ensure_future(self._refusals(plan, scripts, as_users))
        # the servers of a session that has begun are among the site's jobs
        before = [other for other in plan.served_before(self.others) if other.at > self.snapshot.taken_at]
        unknown += [SERVED_FIRST.format(course=name) for name in dict.fromkeys(other.course for other in before)]
        owners = {job_owner(self.spawner.exec_prefix, name) for name in plan.people}
        try:
            seats = await count_seats(
                plan,
                scripts,
                self.snapshot,
                self.site,
                self.client.installation,
                first=[(self._scripts(other), len(other.people)) for other in before],
                users=owners,
            )
            try:
                refused = await asking
            except ConfigError as error:  # nothing can be run as these people
                refused = {}
                unknown.append(f"Whom Slurm would refuse is not known: {error}")
        finally:
            asking.cancel()
        shared = bool(self.together)
        return report_of(plan, self.snapshot, seats, refused, unknown=unknown, shared_limits=shared)

    async def answers(self, plan: SessionPlan, users: Sequence[str], *, every: float) -> AsyncIterator[PersonsAnswer]:
        """Slurm's answer for each of these users, one each ``every`` seconds.

        Of several profiles, the one counts with which their server would start first; all must be allowed.
        """
        nobody = next((remark.text for remark in plan.remarks if not remark.hint), "") if not plan.requests else ""
        for number, user in enumerate(users):
            if nobody or user in plan.excluded:
                yield PersonsAnswer(user, None, plan.excluded.get(user, nobody))
                continue
            if number:
                await asyncio.sleep(every)
            try:
                trials = [await self._trial(plan, script, user) for script in self._scripts(plan)]
                yield PersonsAnswer(user, min(trial.starts_at for trial in trials))
            except (ConfigError, SubmitRejected) as error:
                yield PersonsAnswer(user, None, error.message)

    def _scripts(self, plan: SessionPlan) -> list[str]:
        """The batch scripts of a session's profiles, of which only the requests matter; raises ConfigError."""
        return [
            batch_job(self.spawner.settings_of(request), request, Account(request.username, "/"), start_id="").script
            for request in plan.requests
        ]

    async def _trial(self, plan: SessionPlan, script: str, user: str) -> WillRun:
        return await dry_run(self.client, script, user, exec_prefix=self.spawner.exec_prefix, begin=plan.at)

    async def _refusals(self, plan: SessionPlan, scripts: Sequence[str], users: Sequence[str]) -> dict[str, str]:
        """Those of the users whose job Slurm would refuse, with its sentence.

        Raises ConfigError if nothing can be run as one of them, and SlurmUnavailable.
        """
        turns = asyncio.Semaphore(CONCURRENT_REQUESTS)

        async def refusal(user: str) -> str:
            for script in scripts:
                async with turns:
                    try:
                        await self._trial(plan, script, user)
                    except SubmitRejected as error:
                        return error.message
            return ""

        sentences = await together(refusal(user) for user in users)
        return {user: sentence for user, sentence in zip(users, sentences, strict=True) if sentence}


async def rehearsal_with(
    spawner: GPUProfilesSpawner,
    snapshot: ClusterSnapshot,
    client: SlurmClient | None = None,
    *,
    others: Sequence[SessionPlan] = (),
) -> Rehearsal:
    """What asks about the sessions of a hub with this spawner; raises SlurmUnavailable and SlurmOutputError.

    ``others`` are the sessions of all its courses.
    """
    client = client or spawner.connection().client
    site: Site | GPUSpawnerError
    try:
        site = await read_site(client.installation)
    except GPUSpawnerError as error:
        site = error
    limited = "limits" in (await client.config()).accounting_enforced
    return Rehearsal(spawner, client, snapshot, site, TOGETHER if limited else "", others)


async def together(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of coroutines that run at the same time; if one of them fails, none of the others goes on."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def dry_run(client: SlurmClient, script: str, user: str, *, exec_prefix: str, begin: float = 0.0) -> WillRun:
    """Slurm's answer to a batch script, asked as the user (``sbatch --test-only``).

    The job may not begin before ``begin``, in seconds since the epoch. It is told to sbatch in seconds from now, since
    sbatch reads times of day in its own time zone, which need not be that of this machine. Raises GPUSpawnerError.
    """
    await refuse_root(user)
    if (seconds := math.ceil(begin - time.time())) > 0:
        script = script.replace("\n", f"\n#SBATCH --begin=now+{seconds}\n", 1)
    prefix, environment = command_prefix(exec_prefix, user), {"USER": user, "LOGNAME": user}
    return await client.test_only(script, prefix=prefix, environment=environment)


# How many servers of a session start together, and with how many cores beside their GPUs.


async def count_seats(
    plan: SessionPlan,
    scripts: Sequence[str],
    snapshot: ClusterSnapshot,
    site: Site | GPUSpawnerError,
    slurm: Installation,
    *,
    first: Sequence[tuple[Sequence[str], int]] = (),
    users: Collection[str] = (),
) -> SeatCount | None:
    """Ask Slurm's scheduler how many servers of a session start; where it cannot be asked, estimate.

    ``scripts``: one for each of its profiles, in the order in which their seats are filled. Where not everybody's
    server starts, it is asked again with fewer cores and with less memory, for one profile after the other. ``site`` is
    an error where the site's answers could not be had. ``first`` are the scripts and the number of people of sessions
    that are served before; ``users`` are the accounts as which the servers are submitted.
    """
    if isinstance(site, GPUSpawnerError):
        return estimated(plan, snapshot, f"Counted by hand, as an estimate: {site}")
    wanted, profiles = len(plan.people), [options_in(script) for script in scripts]

    async def in_order(
        before: Sequence[Request], profiles: Sequence[Mapping[str, str]], number: int
    ) -> tuple[list[Request], list[int], Answers]:
        """What so many people request who each start the first profile that has a seat.

        And how many start each profile, and what becomes of them after the requests ``before``.
        """
        requests, counts, every = list[Request](), list[int](), Answers((), "")
        for rank, options in enumerate(profiles):
            own, at_last = requests_with(options, number - len(requests)), rank == len(profiles) - 1
            if own or at_last:
                asked = [*before, *requests, *own]
                every = await what_runs(site, asked, at=plan.at, slurm=slurm, without=plan.own_jobs, users=users)
            counts.append(sum(answer.runs for answer in every.answers[len(before) + len(requests) :]) if own else 0)
            requests += own if at_last else own[: counts[-1]]
        return requests, counts, replace(every, answers=every.answers[len(before) :])

    async def with_less(rank: int, option: str, value: int) -> Smaller:
        less = [*profiles[:rank], with_value(profiles[rank], option, value), *profiles[rank + 1 :]]
        _, counts, _ = await in_order(served, less, wanted)
        return Smaller(option, value, sum(counts), rank)

    served = list[Request]()
    try:
        for of_others, number in first:
            requests, _, _ = await in_order(served, [options_in(script) for script in of_others], number)
            served += requests
        _, counts, every = await in_order(served, profiles, tries(wanted))
        count = replace(_counted(every, wanted, site), by_profile=by_profile(plan, counts))
        if count.fit >= wanted or count.refusal:
            return count
        smaller = [
            with_less(rank, option, value)
            for rank, (options, request) in enumerate(zip(profiles, plan.requests, strict=True))
            for option, value in smaller_values(
                options, request.resources, snapshot, limit=max(1, PARTS // len(profiles))
            )
        ]
        helpful = [tried for tried in await together(smaller) if tried.fit > count.fit]
    except GPUSpawnerError as error:
        return estimated(plan, snapshot, f"Counted by hand, as an estimate: {error}")
    best = max((tried.fit for tried in helpful), default=0)
    return replace(count, smaller=next((tried for tried in helpful if tried.fit == best), None))


def options_in(script: str) -> dict[str, str]:
    """The options of a batch script by their long names; empty for those without a value."""
    lines = (line.removeprefix("#SBATCH") for line in directives(script))
    return dict(option for line in lines for option in options_of(line))


def requests_with(options: Mapping[str, str], number: int) -> list[Request]:
    """So many jobs with these options."""
    lines = tuple(f"--{name}={shlex.quote(value)}" if value else f"--{name}" for name, value in options.items())
    return [Request(str(index), lines) for index in range(number)]


def _counted(answers: Answers, wanted: int, site: Site) -> SeatCount:
    own = outcome(answers, site, near_cpus(site)).jobs[:wanted]
    reasons = Counter(job.reason for job in own if job.reason)
    first = next(iter(reasons), "")
    if first not in ("", "Priority"):  # that of the others: the first one is before them
        reasons[first] += reasons.pop("Priority", 0)
    beside = [job.beside for job in own if job.beside is not None]
    return SeatCount(
        wanted,
        len(answers.answers),
        answers.running,
        waiting=dict(reasons),
        refusal=next((job.refusal for job in own if job.refusal), ""),
        with_gpu=len(beside),
        beside=sum(beside),
        notes=answers.notes,
    )
