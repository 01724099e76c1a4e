"""What Slurm says of a session before it begins: how many servers start together, and whom it would refuse.

Slurm's scheduler itself counts the seats (:mod:`jupyterhub_gpuspawner.extensions.seats`), with accounting's limits.
Whether the site would take one job is asked as each participant (``sbatch --test-only``). Nothing is submitted.
"""

from __future__ import annotations

import asyncio
import math
import shlex
from collections import Counter
from collections.abc import AsyncIterator, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, islice
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from jupyterhub_gpuspawner.batch.job import batch_job
from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError, SlurmUnavailable, SubmitRejected
from jupyterhub_gpuspawner.extensions.availability.dry_run import WillRun, dry_run
from jupyterhub_gpuspawner.extensions.courses.check import (
    CourseInputs,
    SessionPlan,
    by_profile,
    estimated,
    plans_beside,
    report_of,
)
from jupyterhub_gpuspawner.extensions.courses.folder import CourseFile
from jupyterhub_gpuspawner.extensions.courses.report import SessionReport
from jupyterhub_gpuspawner.extensions.seats.count import PARTS, SeatCount, Smaller, smaller_values, tries, with_value
from jupyterhub_gpuspawner.extensions.seats.outcome import JobOutcome, near_cpus, outcome
from jupyterhub_gpuspawner.extensions.seats.site import Request, Site
from jupyterhub_gpuspawner.extensions.seats.twin import Answers, read_site, what_runs
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.job import Account, job_owner
from jupyterhub_gpuspawner.slurm.sbatch_options import options_in
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot
from jupyterhub_gpuspawner.words import people, some

CONCURRENT_SESSIONS = 3
"""Sessions whose seats are counted at the same time."""
T = TypeVar("T")
CONCURRENT_REQUESTS = 4
"""People as whom Slurm is asked at the same time: each question makes slurmctld evaluate the cluster."""
LATER = "Counted by hand, as an estimate, since there is more than a week until then."
BY_HAND = "Counted by hand, as an estimate: "
ASKED_AS = (
    "Whom Slurm would refuse was asked as {names} alone for sessions after the first; with --session it is asked as "
    "everybody."
)
NOT_BY_HAND = "Limits of Slurm's accounting are not counted in an estimate."


@dataclass(frozen=True)
class PersonsAnswer:
    """Slurm's answer for one participant."""

    user: str
    starts_at: float | None
    """When their server would start, in seconds since the epoch; None: Slurm would refuse it."""
    refusal: str = ""


@dataclass(frozen=True)
class RehearsalCluster:
    """What is asked about the servers of one cluster."""

    client: SlurmClient
    snapshot: ClusterSnapshot
    site: Site | GPUSpawnerError
    """What the site's Slurm says of itself, or why it does not."""
    limited: bool = False
    """Slurm enforces limits of accounting."""
    exec_prefix: str = ""


@dataclass(frozen=True)
class Rehearsal:
    """Asks Slurm about sessions."""

    spawner: GPUProfilesSpawner
    clusters: Mapping[str, RehearsalCluster]
    """Those that respond, by name, which is empty in a hub that names none."""
    others: Sequence[SessionPlan] = ()
    """The sessions of all courses of the hub: those that are served before take their seats first."""

    @property
    def snapshots(self) -> dict[str, ClusterSnapshot]:
        """By cluster."""
        return {name: cluster.snapshot for name, cluster in self.clusters.items()}

    async def reports(self, plans: Sequence[SessionPlan], *, until: float = math.inf) -> tuple[SessionReport, ...]:
        """The report of each session; Slurm is asked as everybody for the first, and as one person for the others.

        Whom it refuses for the first, it is asked about for the others, too. It is not asked about sessions that begin
        after ``until``, in seconds since the epoch.
        """
        turns = asyncio.Semaphore(CONCURRENT_SESSIONS)

        async def report(plan: SessionPlan, as_users: Sequence[str]) -> tuple[SessionReport, Collection[str]]:
            if plan.session.start.timestamp() > until:
                before = self._before(plan)
                by_hand = estimated(plan, self.snapshots, LATER, before)
                return report_of(
                    plan, self.snapshots, self._limits_left_out(plan, by_hand), {}, unknown=_served_first(before)
                ), ()
            async with turns:
                return await self._report(plan, as_users)

        if not plans:
            return ()
        first, refused = await report(plans[0], plans[0].asked_as)
        later = [
            report(plan, [name for name in plan.asked_as if name in refused or name == plan.asked_as[0]])
            for plan in plans[1:]
        ]
        return (first, *(of_later for of_later, _ in await together(later)))

    async def report(self, plan: SessionPlan, as_users: Sequence[str]) -> SessionReport:
        """The report of one session; Slurm is asked as these users whom it would refuse."""
        return (await self._report(plan, as_users))[0]

    async def _report(self, plan: SessionPlan, as_users: Sequence[str]) -> tuple[SessionReport, Collection[str]]:
        """The same, with those whom Slurm would refuse."""
        if not plan.requests:
            return report_of(plan, self.snapshots, None, {}), ()
        scripts, before = self._scripts(plan), self._before(plan)
        asking = asyncio.ensure_future(self._refusals(plan, scripts, as_users))
        unknown = _served_first(before)
        if 0 < len(as_users) < len(plan.asked_as):
            unknown.append(ASKED_AS.format(names=some(as_users)))
        try:
            first = [(other, self._scripts(other)) for other in before]
            seats = self._limits_left_out(plan, await count_seats(plan, scripts, self.clusters, first=first))
            try:
                refused = await asking
            except ConfigError as error:  # nothing can be run as these people
                refused = {}
                unknown.append(f"Whom Slurm would refuse is not known: {error}")
        finally:
            asking.cancel()
        return report_of(plan, self.snapshots, seats, refused, unknown=unknown), refused

    def _before(self, plan: SessionPlan) -> list[SessionPlan]:
        """The sessions whose people are served before those of a plan, and who have no server yet."""
        return _sharing(plan, [other for other in plan.served_before(self.others) if other.to_come])

    def _limits_left_out(self, plan: SessionPlan, seats: SeatCount | None) -> SeatCount | None:
        """The count, which says that it is without limits of accounting if it is an estimate where there are any."""
        limited = any(self.clusters[name].limited for name in plan.clusters)
        return replace(seats, not_counted=(NOT_BY_HAND,)) if seats is not None and seats.estimate and limited else seats

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
            starts, where = list[float](), ""
            try:
                for name, on, script in zip(plan.clusters, plan.on, self._scripts(plan), strict=True):
                    where = on
                    starts.append((await self._trial(plan, name, script, user)).starts_at)
                yield PersonsAnswer(user, min(starts))
            except (ConfigError, SubmitRejected) as error:
                yield PersonsAnswer(user, None, _refusal(error, where))

    def _scripts(self, plan: SessionPlan) -> list[str]:
        """The batch scripts of a session's profiles, of which only the requests matter; raises ConfigError."""
        return [
            batch_job(self.spawner.settings_of(request), request, Account(request.username, "/"), start_id="").script
            for request in plan.requests
        ]

    async def _trial(self, plan: SessionPlan, name: str, script: str, user: str) -> WillRun:
        cluster = self.clusters[name]
        return await dry_run(cluster.client, script, user, exec_prefix=cluster.exec_prefix, begin=plan.at)

    async def _refusals(self, plan: SessionPlan, scripts: Sequence[str], users: Sequence[str]) -> dict[str, str]:
        """Those of the users whose job Slurm would refuse, with its sentence.

        Raises ConfigError if nothing can be run as one of them, and SlurmUnavailable.
        """
        turns = asyncio.Semaphore(CONCURRENT_REQUESTS)

        async def refusal(user: str) -> str:
            for name, on, script in zip(plan.clusters, plan.on, scripts, strict=True):
                async with turns:
                    try:
                        await self._trial(plan, name, script, user)
                    except SubmitRejected as error:
                        return _refusal(error, on)
            return ""

        sentences = await together(refusal(user) for user in users)
        return {user: sentence for user, sentence in zip(users, sentences, strict=True) if sentence}


async def rehearsal_with(
    spawner: GPUProfilesSpawner,
    snapshots: Mapping[str, ClusterSnapshot],
    clients: Mapping[str, SlurmClient] = MappingProxyType({}),
    *,
    others: Sequence[SessionPlan] = (),
) -> Rehearsal:
    """What asks about the sessions of a hub with this spawner; raises SlurmUnavailable and SlurmOutputError.

    ``snapshots`` are of the clusters that are asked, by name, ``clients`` what asks some of them in place of the hub's
    connections; ``others`` are the sessions of all its courses.
    """
    clients = {name: slurm.client for name, slurm in spawner.connections().items()} | dict(clients)
    prefixes = {name: str(spawner.effective(name).exec_prefix) for name in snapshots}

    async def cluster_of(name: str) -> RehearsalCluster:
        client, site = clients[name], await _site_or_fault(clients[name])
        limited = (await client.config()).enforces_limits
        return RehearsalCluster(client, snapshots[name], site, limited, prefixes[name])

    clusters = await together(cluster_of(name) for name in snapshots)
    return Rehearsal(spawner, dict(zip(snapshots, clusters, strict=True)), others)


async def rehearsal_beside(
    spawner: GPUProfilesSpawner, planned: Sequence[SessionPlan], files: Sequence[CourseFile], inputs: CourseInputs
) -> Rehearsal:
    """What asks about these sessions, beside those of any of the courses that are held at the same time.

    See :func:`rehearsal_with`.
    """
    others = await asyncio.to_thread(plans_beside, planned, files, inputs)
    return await rehearsal_with(spawner, inputs.snapshots_of([*planned, *others]), others=others)


async def _site_or_fault(client: SlurmClient) -> Site | GPUSpawnerError:
    try:
        return await read_site(client.installation)
    except GPUSpawnerError as error:
        return error


def _refusal(error: GPUSpawnerError, on: str) -> str:
    return f"{on.strip()}: {error.message}" if on else error.message


def _served_first(before: Sequence[SessionPlan]) -> list[str]:
    """What a number of seats is to be read with that are counted after those of other sessions."""
    sentences = []
    for plan in before:
        text = f"Counted after the servers of course {plan.course}, whose session is at the same time"
        some_are_there = f": {people(plan.to_come)} of it {'has' if plan.to_come == 1 else 'have'} none yet"
        sentences.append(f"{text}{some_are_there if plan.served else ''}.")
    return list(dict.fromkeys(sentences))


def _sharing(plan: SessionPlan, before: Sequence[SessionPlan]) -> list[SessionPlan]:
    """Those of the sessions ``before`` on which it depends what is left on the clusters of a plan."""
    clusters, sharing = set(plan.clusters), list[SessionPlan]()
    for other in reversed(before):
        if not clusters.isdisjoint(other.clusters):
            clusters |= set(other.clusters)
            sharing.insert(0, other)
    return sharing


async def together(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of coroutines that run at the same time; if one of them fails, none of the others goes on."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# How many servers of a session start together, and with how many cores beside their GPUs.


async def count_seats(
    plan: SessionPlan,
    scripts: Sequence[str],
    clusters: Mapping[str, RehearsalCluster],
    *,
    first: Sequence[tuple[SessionPlan, Sequence[str]]] = (),
) -> SeatCount | None:
    """Ask Slurm's scheduler how many servers of a session start; where it cannot be asked, estimate.

    ``scripts``: one for each of its profiles, in the order in which their seats are filled; each is counted on its own
    cluster. Where not everybody's server starts, Slurm is asked again with fewer cores and with less memory, for one
    profile after the other. ``first`` are sessions that are served before, with their scripts.
    """
    filling, snapshots = _Filling(plan, clusters), {name: cluster.snapshot for name, cluster in clusters.items()}
    wanted, profiles, served = len(plan.people), _profiles(plan, scripts), dict[str, list[Request]]()
    try:
        for other, of_other in first:
            to_come = [name for name in other.people if name not in other.served]
            filled = await filling.fill(served, _profiles(other, of_other), _people(to_come, len(to_come)))
            for name, requests in filled.requests.items():
                served.setdefault(name, []).extend(requests)
        filled = await filling.fill(served, profiles, _people(plan.people, tries(wanted)))
        count = replace(filling.counted(filled, profiles), by_profile=by_profile(plan, filled.starting))
        if count.fit >= wanted or count.refusal:
            return count

        async def with_less(rank: int, option: str, value: int) -> Smaller:
            name, options = profiles[rank]
            less = [*profiles[:rank], (name, with_value(options, option, value)), *profiles[rank + 1 :]]
            return Smaller(option, value, sum((await filling.fill(served, less, everybody)).starting), rank)

        everybody, limit = _people(plan.people, wanted), max(1, PARTS // len(profiles))
        smaller = [
            with_less(rank, option, value)
            for rank, ((name, options), request) in enumerate(zip(profiles, plan.requests, strict=True))
            for option, value in smaller_values(options, request.resources, snapshots[name], limit=limit)
        ]
        helpful = [tried for tried in await together(smaller) if tried.fit > count.fit]
    except GPUSpawnerError as error:
        return estimated(plan, snapshots, f"{BY_HAND}{error}", [other for other, _ in first])
    return replace(count, smaller=max(helpful, key=lambda tried: tried.fit, default=None))


_Profile: TypeAlias = tuple[str, Mapping[str, str]]
"""The cluster of a profile, and the options of its batch script."""


def _profiles(plan: SessionPlan, scripts: Sequence[str]) -> list[_Profile]:
    return [(cluster, dict(options_in(script))) for cluster, script in zip(plan.clusters, scripts, strict=True)]


@dataclass(frozen=True)
class _Person:
    """Somebody who starts a server."""

    name: str
    other: int = 0
    """Not 0: somebody more, with the limits of the one of this name."""


def _people(names: Sequence[str], number: int) -> list[_Person]:
    """So many people, of whom the last are more than those with these names, and have the limits of the first."""
    first = names[0] if names else ""
    more = (_Person(first, other) for other in range(1, number - len(names) + 1))
    return [*map(_Person, names[:number]), *more]


@dataclass(frozen=True)
class _Filled:
    """What people request who each start the first profile that has a seat."""

    requests: dict[str, list[Request]] = field(default_factory=dict)
    """By cluster."""
    answers: dict[str, Answers] = field(default_factory=dict)
    """What becomes of them, by cluster."""
    starting: list[int] = field(default_factory=list)
    """How many servers start with each profile."""
    kept: list[list[_Person]] = field(default_factory=list)
    """Who requests each profile: those whose server starts, and all who are left the last."""


@dataclass(frozen=True)
class _Filling:
    """Asks the scheduler of each cluster who of a session starts there."""

    plan: SessionPlan
    clusters: Mapping[str, RehearsalCluster]

    async def fill(
        self, before: Mapping[str, Sequence[Request]], profiles: Sequence[_Profile], people: Sequence[_Person]
    ) -> _Filled:
        """These people start one after the other, each with the first profile that has a seat, or else the last.

        They come after the requests ``before``, by cluster. Raises GPUSpawnerError.
        """
        filled, left = _Filled(), [*people]
        for rank, (name, options) in enumerate(profiles):
            earlier, here = before.get(name, ()), filled.requests.setdefault(name, [])
            own, start = self._requests(name, options, left), list[bool]()
            if own:
                answers = await self._ask(name, [*earlier, *here, *own])
                start = [answer.runs for answer in answers.answers[len(earlier) + len(here) :]]
                stay = [rank == len(profiles) - 1 or runs for runs in start]
                mine = [True] * len(here) + stay
                here += compress(own, stay)
                filled.answers[name] = replace(answers, answers=tuple(compress(answers.answers[len(earlier) :], mine)))
                filled.kept.append([*compress(left, stay)])
                left = [person for person, stays in zip(left, stay, strict=True) if not stays]
            else:
                filled.kept.append([])
            filled.starting.append(sum(start))
        return filled

    def _requests(self, name: str, options: Mapping[str, str], people: Sequence[_Person]) -> list[Request]:
        """The jobs of these people on a cluster."""
        prefix = self.clusters[name].exec_prefix
        users = {person.name: job_owner(prefix, person.name) for person in people}
        return [
            replace(request, user=users[person.name], other=person.other)
            for request, person in zip(requests_with(options, len(people)), people, strict=True)
        ]

    async def _ask(self, name: str, requests: Sequence[Request]) -> Answers:
        cluster, plan = self.clusters[name], self.plan
        try:
            if isinstance(cluster.site, GPUSpawnerError):
                raise cluster.site
            return await what_runs(
                cluster.site,
                requests,
                at=plan.at,
                slurm=cluster.client.installation,
                without=plan.own_jobs.get(name, ()),
                users={job_owner(cluster.exec_prefix, person) for person in plan.people},
            )
        except GPUSpawnerError as error:
            raise SlurmUnavailable(f"{self._head(name)}{error}") from error

    def counted(self, filled: _Filled, profiles: Sequence[_Profile]) -> SeatCount:
        """What became of the people, in the order in which they started."""
        jobs, wanted = dict[str, Iterator[JobOutcome]](), len(self.plan.people)
        for name, answers in filled.answers.items():
            site = self.clusters[name].site
            assert not isinstance(site, GPUSpawnerError)
            jobs[name] = iter(outcome(answers, site, near_cpus(site)).jobs)
        pairs = zip(profiles, filled.kept, strict=True)
        tried = [
            (person, job)
            for (name, _), kept in pairs
            if kept
            for person, job in zip(kept, islice(jobs[name], len(kept)), strict=True)
        ]
        starting = sum(bool(job.shares) for _, job in tried)
        own = [job for person, job in tried if not person.other]
        in_seats = sum(bool(job.shares) for job in own)
        reasons = Counter(job.reason for job in own if job.reason)
        first = next(iter(reasons), "")
        if first not in ("", "Priority"):  # that of the others: the first one is before them
            reasons[first] += reasons.pop("Priority", 0)
        beside = [job.beside for job in own if job.beside is not None]
        notes = (f"{self._head(name)}{note}" for name, answers in filled.answers.items() for note in answers.notes)
        left_out = (f"{self._head(name)}{text}" for name, of in filled.answers.items() for text in of.not_counted)
        return SeatCount(
            wanted,
            len(tried),
            starting if in_seats >= wanted else in_seats,  # whom a limit holds back, nobody more starts for
            waiting=dict(reasons),
            refusal=next((job.refusal for job in own if job.refusal), ""),
            with_gpu=len(beside),
            beside=sum(beside),
            notes=tuple(dict.fromkeys(notes)),
            not_counted=tuple(dict.fromkeys(left_out)),
        )

    def _head(self, name: str) -> str:
        """The beginning of a sentence about a cluster; empty in a hub with a single one."""
        return f"Cluster {name}: " if any(self.plan.on) else ""


def requests_with(options: Mapping[str, str], number: int) -> list[Request]:
    """So many jobs with these options."""
    lines = tuple(f"--{name}={shlex.quote(value)}" if value else f"--{name}" for name, value in options.items())
    return [Request(str(index), lines) for index in range(number)]
