"""The jobs that are tried together: in which order, and which of them the limits of accounting hold back. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jupyterhub_gpuspawner.errors import GPUSpawnerError
from jupyterhub_gpuspawner.extensions.seats.accounting import Accounting
from jupyterhub_gpuspawner.extensions.seats.held import HeldJob, WaitingJob
from jupyterhub_gpuspawner.extensions.seats.ledger import Charged, Ledger, UnknownCharge, Usage, billing
from jupyterhub_gpuspawner.extensions.seats.priority import comes_before, least_priority
from jupyterhub_gpuspawner.extensions.seats.site import Request, Site
from jupyterhub_gpuspawner.slurm.snapshot import ClusterJob, Partition, rank, waits_for_resources
from jupyterhub_gpuspawner.slurm.text import value_or_empty, words
from jupyterhub_gpuspawner.units import NodeAllocation
from jupyterhub_gpuspawner.words import people, some

WAITING_AT_MOST = 2000
"""Jobs that wait at the site and are tried; slurmctld plans each of them."""
HIDDEN = "Limits of Slurm's accounting are not counted for {who}: Slurm shows no association of theirs."
UNREAD = "Limits of Slurm's accounting are not counted: {error}"
TOO_MANY = "Only the first {some:,} of {all:,} jobs that wait for these nodes are counted."
JOBS_HIDDEN = "Jobs of others that wait or run are not counted: Slurm does not show them to this account (PrivateData)."


@dataclass(frozen=True)
class Started:
    """What a job has in the twin."""

    partition: str
    tres: Mapping[str, float]
    minutes: float | None
    allocations: Sequence[NodeAllocation] = ()


@dataclass(frozen=True)
class Verdict:
    """What accounting says of requests, by their place."""

    refused: Mapping[int, str] = field(default_factory=dict)
    """Slurm's word for why sbatch refuses them."""
    held_back: Mapping[int, str] = field(default_factory=dict)
    """Slurm's word for why they wait."""
    unknown: tuple[str, ...] = ()
    """The users whose limits Slurm does not show."""


# --- the jobs that wait ---------------------------------------------------------------------------------------------


def waiting_before(site: Site, requests: Sequence[Request], at: float) -> tuple[list[Request], list[str]]:
    """The jobs of the site that wait for nodes of these requests at a moment, in their order, and what is left out.

    One that would have run to its time limit by then is taken to be gone, and so is one that waits for more than nodes
    and a limit: for another job, for its own moment, or for somebody to release it. One with a lower priority than
    theirs is left out: it delays nobody.
    """
    wanted = _nodes_of(site, {name for request in requests for name in partitions_of(site, request)})
    known = isinstance(site.accounting, Accounting)
    least = [least_priority(site, charged_of(site, request)) for request in requests]
    newest = None if None in least else min((priority for priority in least if priority is not None), default=None)
    waiting = [
        waits
        for waits in site.waiting
        if _is_there(waits.job, site, at)
        and (waits_for_resources(waits.job.priority, waits.job.reason) or (known and _is_limited(waits.job)))
        and not wanted.isdisjoint(_nodes_of(site, waits.job.partitions))
        and comes_before(waits, site, newest, at)
    ]
    waiting.sort(key=lambda waits: (-_tier(site, waits.job), rank(waits.job.priority, waits.job.job_id)))
    each = [_request(waits) for waits in waiting for _ in range(waits.job.array_tasks)]
    left_out = [TOO_MANY.format(some=WAITING_AT_MOST, all=len(each))] if len(each) > WAITING_AT_MOST else []
    return each[:WAITING_AT_MOST], left_out


def _is_there(job: ClusterJob, site: Site, at: float) -> bool:
    now = site.config.answered_at
    if now is None or job.time_limit is None:
        return True
    return max(now, job.starts_at or 0.0) + job.time_limit > at


def _is_limited(job: ClusterJob) -> bool:
    return job.priority > 0 and job.reason.startswith(("Assoc", "QOS", "Max"))


def _request(waits: WaitingJob) -> Request:
    job = waits.job
    charged = (*([f"--account={job.account}"] if job.account else ()), *([f"--qos={waits.qos}"] if waits.qos else ()))
    limit = job.reason if _is_limited(job) else ""
    return Request(f"job {job.job_id}", (*waits.options, *charged), job.user, of_site=True, limit=limit)


def _tier(site: Site, job: ClusterJob) -> int:
    return max((part.priority_tier for part in site.partitions if part.name in job.partitions), default=1)


def partitions_of(site: Site, request: Request) -> tuple[str, ...]:
    """Those that it names, or else the site's default."""
    named = words(request.option("partition"))
    return named or tuple(partition.name for partition in site.partitions if partition.default)[:1]


def charged_of(site: Site, request: Request, partition: str = "") -> Charged:
    """To whom a request is charged that runs in this partition; by default, in the first that it names."""
    where = partition or next(iter(partitions_of(site, request)), "")
    return Charged(request.user, request.option("account"), where, request.option("qos"), request.other)


def _nodes_of(site: Site, names: Collection[str]) -> frozenset[str]:
    return frozenset(node for partition in site.partitions if partition.name in names for node in partition.nodes)


# --- the limits -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Limited:
    """Jobs of a site at a moment, and what its accounting says of them."""

    site: Site
    at: float
    without: Collection[str] = ()
    """Ids of jobs that hold nothing then."""

    @property
    def accounting(self) -> Accounting | None:
        """What is limited; None where nothing is, or it is not known."""
        return self.site.accounting if isinstance(self.site.accounting, Accounting) else None

    def refused(self, requests: Sequence[Request]) -> Verdict:
        """Those that sbatch refuses, if they are submitted in this order; jobs of the site are submitted already."""
        ledger, refused, unknown = self._ledger(), dict[int, str](), dict[str, None]()
        for place, request in enumerate(requests):
            if ledger is None or request.of_site or not request.user:
                continue
            try:
                if reason := ledger.refused(charged_of(self.site, request)):
                    refused[place] = reason
            except UnknownCharge as error:
                unknown[f"{error}"] = None
        return Verdict(refused, {}, tuple(unknown))

    def with_time(self, requests: Sequence[Request]) -> list[Request]:
        """Those without a time limit with the one that accounting gives them: Slurm asks their first partition."""
        ledger = self._ledger()
        return [*requests] if ledger is None else [self._with_time(request, ledger) for request in requests]

    def _with_time(self, request: Request, ledger: Ledger) -> Request:
        charged = charged_of(self.site, request)
        partition = next((part for part in self.site.partitions if part.name == charged.partition), None)
        if request.option("time") or not request.user or partition is None or partition.default_time is not None:
            return request
        try:
            wall = ledger.longest(charged)
        except UnknownCharge:
            return request
        if wall is None or (partition.max_time is not None and partition.max_time <= wall * 60):
            return request
        return replace(request, options=(*request.options, f"--time={wall:.0f}"))

    def held_back(self, requests: Sequence[Request], started: Mapping[int, Started]) -> Verdict:
        """Those that have no right to what they get, in this order; ``started``: what the twin gives, by their place.

        Whoever gets nothing is judged last, by what others get who request the same. If nobody gets that, a job of the
        site waits for the limit that Slurm names, until a job has ended: slurmctld keeps no nodes for it.
        """
        ledger, held, alike = self._ledger(), dict[int, str](), dict[tuple[str, ...], Started]()
        if ledger is None:
            return Verdict()
        has_changed = bool(self.without) or not all(job.holds_at(self.at) for job in self.site.jobs)
        for place, share in started.items():
            alike.setdefault(requests[place].options, share)
        rest = (place for place in range(len(requests)) if place not in started)
        for place in [*sorted(started), *rest]:
            request = requests[place]
            waits = place not in started
            got: Started | None = alike.get(request.options) if waits else started[place]
            if got is None and request.limit and not has_changed:
                held[place] = request.limit
            if not request.user or got is None:
                continue
            charged, usage = charged_of(self.site, request, got.partition), self._usage(request, got)
            try:
                if reason := ledger.held_back(charged, usage):
                    held[place] = reason
                elif not waits:
                    ledger.add(charged, usage)
            except UnknownCharge:
                continue
        return Verdict({}, held)

    def _ledger(self) -> Ledger | None:
        """What is used at that moment: jobs that have ended by then use nothing, and others have run for longer."""
        if self.accounting is None:
            return None
        ledger = Ledger(self.accounting, {part.name: _qos(part) for part in self.site.partitions if _qos(part)})
        now = self.site.config.answered_at
        for held in self.site.jobs:
            charged = Charged(held.job.user, held.job.account, held.job.partition, held.qos)
            gone = held.job.job_id in self.without or not held.holds_at(self.at)
            try:
                self._age(ledger, held, charged, now, gone=gone)
            except UnknownCharge:
                continue
        return ledger

    def _age(self, ledger: Ledger, held: HeldJob, charged: Charged, now: float | None, *, gone: bool) -> None:
        moment = self.at if now is None else now
        end = held.job.ends_at
        left = None if end is None else max(0.0, end - moment) / 60
        usage = Usage(held.tres, left, frozenset(held.job.nodes))
        if gone:
            if left is not None and held.job.job_id not in self.without:
                ledger.pass_time(charged, usage, left)
                usage = replace(usage, minutes=0.0)
            ledger.add(charged, usage, jobs=-1)
            ledger.withdraw(charged)
        else:
            ledger.on_nodes(charged, held.job.nodes)
            ledger.pass_time(charged, usage, max(0.0, self.at - moment) / 60)

    def _usage(self, request: Request, started: Started) -> Usage:
        parts, config = started.allocations, self.site.config.parameters
        named = {word for option in _DEVICES for word in re.split("[:,/=]", request.option(option))}
        untyped = set[str]()
        tres = {name: amount for name, amount in started.tres.items() if "/" not in name}
        for gres in (gres for part in parts for gres in part.gres):
            for name in (f"gres/{gres.name}", *([f"gres/{gres.name}:{gres.type}"] if gres.type else [])):
                tres[name] = tres.get(name, 0.0) + gres.count
            if gres.type and gres.type not in named:
                untyped.add(f"gres/{gres.name}:{gres.type}")
        partition = next((part for part in self.site.partitions if part.name == started.partition), None)
        weights = value_or_empty(partition.parameters.get("TRESBillingWeights")) if partition is not None else ""
        flags = config.get("PriorityFlags", "").split(",")
        tres["billing"] = billing(tres, weights, most_of_a_node="MAX_TRES" in flags)
        minutes = started.minutes
        return Usage(tres, minutes, frozenset(part.node for part in parts), frozenset(untyped))


_DEVICES = ("gres", "gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task", "tres-per-task")
"""Options that may name a type."""


def _qos(partition: Partition) -> str:
    """A partition's QOS, as slurmdbd writes names; slurm.conf may have them in other letters."""
    return value_or_empty(partition.parameters.get("QoS")).lower()


# --- what is not counted --------------------------------------------------------------------------------------------


def not_counted(site: Site, verdict: Verdict, requests: Iterable[Request]) -> list[str]:
    """Sentences: what of accounting and of others' jobs is not known of these requests."""
    sentences = []
    if isinstance(site.accounting, GPUSpawnerError):
        sentences.append(UNREAD.format(error=site.accounting))
    elif site.accounting is not None and verdict.unknown:
        sentences.append(HIDDEN.format(who=some(verdict.unknown)))
    elif site.accounting is not None and (nobody := sum(not request.user for request in requests)):
        sentences.append(HIDDEN.format(who=people(nobody)))
    if site.hides_jobs:
        sentences.append(JOBS_HIDDEN)
    return sentences
