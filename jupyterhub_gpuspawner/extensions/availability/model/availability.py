"""Whether a job could start now, judged from one snapshot; pages show it beside each profile. Pure.

When it would start later is Slurm's to say, as are limits of accounts and QOS, licences, priorities and preemption: the
trial asks it (``sbatch --test-only``). Sentences are for participants; ``field`` names the profile field at fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from math import inf
from types import MappingProxyType
from typing import NamedTuple

from jupyterhub_gpuspawner.extensions.availability.model.capacity import (
    Capacity,
    Competition,
    capacity_of,
    model_of_type,
)
from jupyterhub_gpuspawner.extensions.availability.model.fit import ANY, Need, NodeFit, NodeSet
from jupyterhub_gpuspawner.extensions.availability.model.limits import (
    MEMORY_OPTIONS,
    Fault,
    fault_in,
    fault_of,
    in_allowed_group,
    may_be_of_others,
    may_be_refused_account,
    most_memory,
    need_of,
    requested_cpus,
    requested_memory,
    runs_until_end_of,
)
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm.estimate import (
    UNKNOWN,
    Availability,
    Chance,
    Room,
    not_before,
    starts_now,
)
from jupyterhub_gpuspawner.slurm.reason import out_of_service
from jupyterhub_gpuspawner.slurm.sbatch_options import DECIDES, Decides
from jupyterhub_gpuspawner.slurm.snapshot import ClusterJob, ClusterSnapshot, Partition, Reservation
from jupyterhub_gpuspawner.words import cpus, duration, people

STALE = 900.0
"""Age in seconds beyond which a snapshot no longer says what is free."""


HIDDEN = "Slurm does not show all nodes that could run this job; some may be powered down"


class _Asker(NamedTuple):
    """Who asks, and when; see :func:`availability`."""

    now: float
    user: str
    person: str
    groups: Mapping[str, bool]
    binds_cores: bool


def availability(
    resources: Resources,
    snapshot: ClusterSnapshot | None,
    *,
    now: float,
    user: str = "",
    person: str = "",
    groups: Mapping[str, bool] = MappingProxyType({}),
    binds_cores: bool = False,
) -> Availability:
    """Whether a job with these resources would start now; ``now`` in seconds since the epoch.

    When it starts later is known only where that is a set time, such as the begin of its reservation.

    ``user`` owns the job, and is checked against the users of a reservation; ``person`` asks, and is not ahead of
    themselves. ``groups`` is checked against AllowGroups of the partitions, see :func:`in_allowed_group`.
    ``binds_cores``: the job gets its GPUs with cores beside them alone (``--gres-flags=enforce-binding``). Of several
    partitions the best one counts.
    """
    if snapshot is None or not snapshot.partitions:
        return _unknown("Slurm has not responded yet")
    fault = fault_of(resources, snapshot, now=now, user=user, groups=groups)
    if fault is not None:
        return _dated(_never(fault), snapshot)
    if _has_unchecked_options(resources):
        return _dated(_unknown("part of what this profile asks for is checked at submission"), snapshot)
    binds_cores = bool(resources.gres) and (binds_cores or _binds_cores(resources))
    asker = _Asker(now, user, person or user, groups, binds_cores)
    by_partition = [
        replace(_in_partition(resources, snapshot, name, asker), partition=name)
        for name in snapshot.partitions_of(resources.partition)
    ]
    best = _dated(min(by_partition, key=_rank), snapshot)
    age = now - snapshot.taken_at
    return _not_known(best, age) if age > STALE and best.chance is not Chance.NEVER else best


def beyond(expected: float | None, limit: float | None, *, now: float) -> str:
    """A clause to add where the start is expected after the time that a job may wait in the queue; else empty.

    ``expected`` and ``now`` in seconds since the epoch, ``limit`` in seconds; None: unknown, and no limit.
    """
    if expected is None or limit is None or expected - now <= limit:
        return ""
    return f", but a start may wait for at most {duration(limit)} here"


def within(answer: Availability, limit: float | None, *, now: float) -> Availability:
    """``answer`` with a warning where its start is expected :func:`beyond` ``limit``."""
    return replace(answer, sentence=answer.sentence + beyond(answer.estimate.likely, limit, now=now))


def _dated(answer: Availability, snapshot: ClusterSnapshot) -> Availability:
    return replace(answer, taken_at=snapshot.taken_at)


def no_longer_now(answer: Availability, *, now: float) -> Availability:
    """``answer`` of a cluster that does not respond: what was free by its snapshot may be taken by now."""
    if answer.chance is not Chance.NOW or answer.taken_at is None:
        return answer
    return _not_known(answer, now - answer.taken_at)


def _not_known(answer: Availability, age: float) -> Availability:
    unknown = _unknown(f"Slurm has not responded for {duration(age)}")
    return replace(answer, chance=unknown.chance, sentence=unknown.sentence, estimate=UNKNOWN)


def _unknown(why: str) -> Availability:
    return Availability(Chance.UNKNOWN, f"availability unknown: {why}")


def _never(fault: Fault) -> Availability:
    return Availability(Chance.NEVER, fault.clause, field=f"slurm.{fault.field}")


def _rank(answer: Availability) -> tuple[int, float]:
    order = (Chance.NOW, Chance.LATER, Chance.UNKNOWN, Chance.NEVER)
    return order.index(answer.chance), answer.estimate.likely if answer.estimate.likely is not None else inf


_OF_CORES = frozenset({"distribution", "gres-flags"})
"""Options that decide which cores of a node a job gets; for ``enforce-binding`` see :func:`availability`."""
_MODELLED = frozenset({"account", "constraint", "nice", "qos", "reservation"})
"""Options with a field of their own that are considered."""
_OF_THREADS = frozenset({("hint", "multithread"), ("hint", "nomultithread"), ("threads-per-core", "1")})
"""Options that :func:`need_of` considers."""


def _has_unchecked_options(resources: Resources) -> bool:
    """Whether an sbatch option that is not considered may change where or when the job starts."""
    of_fields = ((name, value) for name, value in resources.plain_options.items() if name not in _MODELLED)
    considered = set(_OF_CORES)
    with suppress(ValueError):
        requested_memory(resources)
        considered.update(MEMORY_OPTIONS)
    return any(
        DECIDES.get(name) is not Decides.NEITHER and name not in considered and (name, value) not in _OF_THREADS
        for name, value in (*resources.extra_options, *of_fields)
        if value is not None
    )


def _binds_cores(resources: Resources) -> bool:
    return any(name == "gres-flags" and "enforce-binding" in value for name, value in resources.extra_options)


def _in_partition(resources: Resources, snapshot: ClusterSnapshot, name: str, asker: _Asker) -> Availability:
    partition = snapshot.partition_by_name[name]
    own = snapshot.reservation_by_name.get(resources.reservation_name)
    fault = fault_in(resources, snapshot, name, groups=asker.groups)
    if fault is not None:
        return _never(fault)
    if partition.unread:
        return _unknown(f"the description of partition {name} could not be read")
    if partition.not_modelled:
        return _unknown(f"this hub cannot check {' and '.join(partition.not_modelled)} of partition {name}")
    if in_allowed_group(partition, asker.groups) is None:
        members = " or ".join(partition.allow_groups)
        return _unknown(f"partition {name} is restricted to members of {members}, which this hub cannot check")
    if own is not None and may_be_of_others(own, resources, asker.groups):
        return _unknown(f"this hub cannot check who may use reservation {own.name}")
    if may_be_refused_account(resources, partition):
        return _unknown(f"partition {name} may not allow account {resources.account}")
    left = runs_until_end_of(own, partition, resources, now=asker.now)
    ends = f"; ends after {duration(left)}, with reservation {resources.reservation_name}" if left is not None else ""
    if own is not None and own.start is not None and own.start > asker.now and "FLEX" not in own.flags:
        return Availability(
            Chance.LATER,
            f"not yet: reservation {own.name} starts {{time}}{ends}",
            not_before(own.start),
            field="slurm.reservation",
        )
    need, capacity = need_of(resources, partition, snapshot), capacity_of(snapshot)
    if need.memory_per_gpu and most_memory(partition, snapshot.config)[1]:
        return _unknown("this hub cannot check memory for each GPU where MaxMemPerCPU limits that for each CPU")
    if own is not None and capacity.is_partial(own):
        return _unknown(f"this hub cannot check which cores are free in reservation {own.name}")
    nodes = capacity.nodes(name, constraint=resources.constraint or "", reservation=own.name if own is not None else "")
    if nodes.count_capable(need) < resources.node_count:  # nodes that Slurm hides may have it: else it had been a fault
        return _unknown(HIDDEN)
    competition = capacity.competition(name, resources.reservation_name, need)
    length = partition.length_of(resources.time)
    fit = _Fit(
        need,
        resources.node_count,
        length,
        nodes,
        capacity,
        competition,
        partition,
        resources.reservation_name,
        snapshot,
        asker,
        requested_cpus=requested_cpus(resources, partition, snapshot),
        ends=ends,
    )
    return replace(fit.availability(), room=fit.room())


@dataclass(frozen=True)
class _Fit:
    """A job on the nodes of a partition."""

    need: Need
    count: int
    """The number of nodes that it requests."""
    length: float
    nodes: NodeSet
    capacity: Capacity
    competition: Competition | None
    partition: Partition
    reservation: str
    snapshot: ClusterSnapshot
    asker: _Asker
    requested_cpus: int
    """Those that it requests itself: :attr:`need` may have more, for its memory."""
    ends: str
    """A clause to add where it does not run for :attr:`length`."""

    def availability(self) -> Availability:
        chosen = list(islice((node for node in self._open_nodes() if not self._obstacle(node)), self.count))
        if len(chosen) < self.count and len(list(islice(self._open_nodes(), self.count))) == self.count:
            obstacle = next(filter(None, map(self._obstacle, self._open_nodes())))
            return Availability(Chance.LATER, f"not available now: {obstacle}")
        if len(chosen) < self.count:
            return self._full()
        if self.snapshot.partial:
            return _unknown("part of what Slurm says could not be read")
        if self.capacity.hides_jobs:
            return _unknown("Slurm does not show this hub the jobs of others")
        number, free = self._free()
        chosen = list(islice(self._unclaimed(), self.count))
        if len(chosen) == self.count:
            chosen = list(islice(filter(self._has_cores_beside, self._unclaimed()), self.count))
            if len(chosen) < self.count:
                return _unknown("this hub cannot check which cores beside the GPUs are free")
            names = {node.name for node in chosen}
            other = next((reservation for reservation in self._of_cores() if names & set(reservation.nodes)), None)
            if other is not None:
                return _unknown(f"this hub cannot check which cores reservation {other.name} leaves free")
            power_on = "; a node has to be powered on first" if any(node.powered_down for node in chosen) else ""
            return Availability(Chance.NOW, f"starts now, {free} free{power_on}{self.ends}", starts_now())
        free = f"{free} {'is' if number == 1 else 'are'} free, but"
        if self.competition is None:
            return Availability(Chance.LATER, f"{free} Slurm keeps them for a job that waits")
        return Availability(Chance.LATER, f"{free} {self._ahead(self.competition, verb=True)}")

    def _has_cores_beside(self, node: NodeFit) -> bool:
        """Whether the GPUs' own cores are certain to be free, where the job has to get these.

        A snapshot does not say which cores are in use, nor beside which GPU they are: an even share of the cores is.
        """
        if not self.asker.binds_cores:
            return True
        cpus, _ = node.used_by(self.need)
        share = node.cpus * max(1, self.need.gpus) // max(1, node.gpus.get(ANY, 0))
        whole = self.need.exclusive and not self.partition.shares_cpus
        return node.idle and (self.requested_cpus if whole else cpus) <= share

    def _unclaimed(self) -> Iterator[NodeFit]:
        """Nodes on which Slurm starts it now: it has planned no other job there, and may start none there first."""
        for node in self._open_nodes():
            claimed = node.planned or self.capacity.is_claimed(node, self.partition.name, self.reservation)
            if not claimed and not self._obstacle(node):
                yield node

    def _of_cores(self) -> Iterator[Reservation]:
        """Reservations for others of some cores of their nodes, which overlap the job if it starts now."""
        now = self.asker.now
        for other in self.snapshot.reservations:
            begun = other.start is None or other.start < now + self.length
            if self.capacity.is_partial(other) and begun and (other.end is None or now < other.end):
                yield other

    def _open_nodes(self) -> Iterator[NodeFit]:
        """Nodes on which it fits now, and that no reservation for others takes before its end."""
        return filter(self._is_open, self.nodes.fitting(self.need))

    def _is_open(self, node: NodeFit) -> bool:
        """Whether no reservation for others begins on the node before the job's end."""
        return node.open_at(self.asker.now, self.length) == self.asker.now

    def _obstacle(self, node: NodeFit) -> str:
        """Why Slurm starts the job not beside those on a node that has what it requests: a clause; else empty."""
        jobs = [self.snapshot.job_table[at] for at in node.jobs]
        return self._of_most_cpus(node, jobs) or self._of_sharing(jobs) or self._of_one_user(jobs)

    def _of_most_cpus(self, node: NodeFit, jobs: Sequence[ClusterJob]) -> str:
        """Jobs of a partition hold at most so many CPUs of a node together (MaxCPUsPerNode).

        Slurm compares the cores that a job requests, also where it gives out whole sockets. Where no job of the
        partition runs, those that it gets for its memory (MaxMemPerCPU) may exceed the limit.
        """
        name, most = self.partition.name, self.partition.max_cpus_per_node
        if most is None:
            return ""
        held = sum(job.cpus // job.node_count for job in jobs if job.partition == name)
        requested = self.need.cpus if held else self.requested_cpus
        cores = -(-requested // node.cpus_per_core)
        if held + cores * node.cpus_per_core <= most:
            return ""
        return f"jobs hold the {most} CPUs of a node that partition {name} allows"

    def _of_sharing(self, jobs: Sequence[ClusterJob]) -> str:
        """Jobs that share CPUs, and those of other partitions that do not, are on different nodes (OverSubscribe)."""
        own = self.partition
        for other in self._partitions_of(jobs):
            mixes = other.shares_cpus if own.shares_cpus else other.jobs_per_cpu == 1
            if other.name != own.name and not mixes:
                return f"jobs of partition {other.name} run there, which share no node with those of {own.name}"
        return ""

    def _of_one_user(self, jobs: Sequence[ClusterJob]) -> str:
        """Each node is for the jobs of one user (ExclusiveUser)."""
        others = [job for job in jobs if job.user != self.asker.user or not job.user]
        partitions = [self.partition] if others else []
        for partition in (*partitions, *self._partitions_of(others)):
            if partition.one_user:
                return f"others have jobs there, and partition {partition.name} gives a node to one person at a time"
        return ""

    def _partitions_of(self, jobs: Sequence[ClusterJob]) -> list[Partition]:
        by_name = self.snapshot.partition_by_name
        return [by_name[name] for name in dict.fromkeys(job.partition for job in jobs) if name in by_name]

    def _full(self) -> Availability:
        if self.competition is None and self.snapshot.hides_nodes_of(self.partition):
            return _unknown(HIDDEN)  # Slurm may power one on
        if self.nodes.count_capable(self.need, usable=True) < self.count:
            nodes = [node for node in self.nodes.all if node.offers(self.need) and not node.usable]
            out = out_of_service((node.name, node.reason) for node in nodes)
            for_long = not all(node.comes_back for node in nodes)
            return Availability(Chance.LATER, f"not available now: {out}", out_of_service=out if for_long else "")
        clause = f"full, {self._ahead(self.competition)}" if self.competition is not None else "full"
        return Availability(Chance.LATER, clause)

    def _ahead(self, competition: Competition, *, verb: bool = False) -> str:
        others = len(competition.people - {self.asker.person})
        if not others:
            return "your own job is ahead"
        count_is = (" is" if others == 1 else " are") if verb else ""
        return f"{people(others)}{count_is} ahead of you"

    def room(self) -> Room:
        """How much is free of what it needs."""
        what, unit, per_core = self._counted()
        free, of = self.nodes.count(what, self.asker.now, self.length)
        if what != "cpu":
            return Room(free, of, unit if what == "node" else "")
        return Room(free // max(1, per_core), of // max(1, per_core), "cores" if per_core else "CPUs")

    def _counted(self) -> tuple[str, str, int]:
        """What is counted of the nodes, what that is called (CPUs have no name here), and the CPUs of a core."""
        need, nodes = self.need, self.nodes
        if need.exclusive or need.all_memory:
            return "node", "nodes", 0
        if need.gpus:
            gpu_type = need.gpu_type or (nodes.types[0] if len(nodes.types) == 1 else ANY)
            return f"gpu:{need.gpu_type}", model_of_type(gpu_type, self.snapshot).plural if gpu_type else "GPUs", 0
        if need.shards:
            return "shard", "GPU shards", 0
        return "cpu", "", nodes.cpus_per_core

    def _free(self) -> tuple[int, str]:
        """How many are free, as a number and such as ``6 of 16 K80``."""
        what, unit, per_core = self._counted()
        free, of = self.nodes.count(what, self.asker.now, self.length)
        if unit:
            return free, f"{free:,} of {of:,} {unit}"
        if per_core < 2:
            return free, f"{free:,} of {cpus(of, per_core=per_core)}"
        in_cores = f"{free // per_core:,} of {cpus(of // per_core, per_core=1)}"
        return free, f"{free:,} of {cpus(of, per_core=0)} ({in_cores})"
