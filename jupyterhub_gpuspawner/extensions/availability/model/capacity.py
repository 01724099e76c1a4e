"""The cluster's resources and its queue, indexed once for each snapshot; :mod:`.availability` reads them. Pure."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from math import inf
from typing import NamedTuple

from jupyterhub_gpuspawner.extensions.availability.model.change import QueueView
from jupyterhub_gpuspawner.extensions.availability.model.fit import (
    ANY,
    Need,
    NodeFit,
    NodeSet,
    Place,
    ReservedPeriod,
    satisfies,
)
from jupyterhub_gpuspawner.slurm.estimate import QueuePosition
from jupyterhub_gpuspawner.slurm.gpu_model import GpuModel, gpu_model
from jupyterhub_gpuspawner.slurm.job import parse_tag
from jupyterhub_gpuspawner.slurm.snapshot import (
    ClusterJob,
    ClusterSnapshot,
    NodeState,
    Reservation,
    Table,
    rank,
    waits_for_resources,
)


class Competition(NamedTuple):
    """Pending jobs of any partition that could use nodes which a request could use, and may start before it."""

    jobs: tuple[int, ...]
    """Their positions in the snapshot's jobs."""
    people: frozenset[str]
    """Whose they are, see :attr:`Capacity.person_of_job`."""
    first_start: float | None
    """The earliest of Slurm's estimates; None if it has none for some job."""
    last_start: float | None
    """The latest of them; None likewise, or where one is a job array, whose estimate is that of its first task."""


class _Alike(NamedTuple):
    """What pending jobs have in common that may use the same nodes."""

    partitions: tuple[str, ...]
    reservation: str
    is_new: bool
    """Slurm has not considered them yet."""
    need: Need


class Capacity:
    """The nodes of one snapshot by partition, and by part of a partition as requests ask for it.

    It keeps no reference to the snapshot, which :func:`capacity_of` relies on.
    """

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._states = snapshot.node_by_name
        self._reservations = snapshot.reservation_by_name
        self._jobs = snapshot.job_table
        jobs = snapshot.jobs_by_node.positions
        whole = (reservation for reservation in snapshot.reservations if not self.is_partial(reservation))
        reserved = _reserved_periods(whole)
        self._config = snapshot.config
        complete = not snapshot.partial
        self._partitions_of = _partitions_of_nodes(snapshot)
        nodes = [
            NodeFit(
                state,
                jobs.get(state.name, ()),
                reserved.get(state.name, ()),
                complete=complete,
                config=self._config,
                partitions=self._partitions_of.get(state.name, frozenset()),
                shards_held=self._shards_held(state, jobs.get(state.name, ())),
            )
            for state in snapshot.node_table
        ]
        self.hides_jobs = self._config.hides_jobs and any(
            node.free_cpus < node.cpus and not node.jobs for node in nodes
        )
        """Slurm does not show this account the jobs of others: some hold CPUs, and none is seen there."""
        self._shared = {
            partition.name: partition.jobs_per_cpu for partition in snapshot.partitions if partition.shares_cpus
        }
        self._partitions = {}
        for name, positions in snapshot.nodes_by_partition.positions.items():
            members = [nodes[at] for at in positions]
            if name in self._shared:
                members = [self._as_seen_by(node, node.reserved, name) for node in members]
            self._partitions[name] = NodeSet(members)
        self._parts: dict[tuple[str, str, str], NodeSet] = {}
        self.types_beside: dict[str, set[str]] = {}
        """For each type of GPU, those that some node has beside it."""
        for types in {tuple(node.gpus) for node in nodes}:
            for gpu_type in filter(None, types):
                self.types_beside.setdefault(gpu_type, set()).update(filter(None, types))
        self.queue_views: dict[str, QueueView] = {}
        """Filled by :func:`queue_view`."""
        self.person_of_job = _people(self._jobs)
        """Whose each job is: the hub's user in its comment, else its account; the job's id where nobody is known."""
        self._tiers = {partition.name: partition.priority_tier for partition in snapshot.partitions}
        priority, reason = self._jobs.column("priority"), self._jobs.column("reason")
        self._queued = {
            name: [at for at in jobs if waits_for_resources(priority[at], reason[at])]
            for name, jobs in snapshot.waiting_by_partition.positions.items()
        }
        self._alike = _alike(self._jobs, {at for jobs in self._queued.values() for at in jobs})
        self._rivals = self._rivals_by_place({node.place: node for node in nodes})
        self._claimed: dict[tuple[Place, str, int], bool] = {}
        self._competitions: dict[tuple[frozenset[Place], str, int, str], Competition | None] = {}

    def _rivals_by_place(self, places: Mapping[Place, NodeFit]) -> Mapping[Place, Sequence[_Alike]]:
        """The pending jobs that could use the nodes of each place, if these were empty.

        One that seems to request more CPUs or memory of a node than any has, such as one of many tasks whose number of
        nodes Slurm has not worked out, may use all that have its GPUs. Where Slurm starts jobs in their order alone,
        each keeps all nodes of its partitions.
        """
        rivals: dict[Place, list[_Alike]] = {place: [] for place in places}
        by_partition: dict[str, list[Place]] = {}
        for place in places:
            for name in place.partitions:
                by_partition.setdefault(name, []).append(place)
        for alike in self._alike:
            reach = list(dict.fromkeys(place for name in alike.partitions for place in by_partition.get(name, ())))
            if self._config.backfills:
                devices = replace(alike.need, cpus=1, memory=0)
                usable = [place for place in reach if places[place].offers(alike.need)]
                reach = usable or [place for place in reach if places[place].offers(devices)]
            for place in reach:
                rivals[place].append(alike)
        return rivals

    @cached_property
    def queue_order(self) -> Mapping[str, Sequence[int]]:
        """The pending jobs that wait for nodes of each partition, also in others, in Slurm's order of them.

        That is by the PriorityTier of their partition, by priority, and then by age.
        """
        priority, job_id, partitions = (self._jobs.column(field) for field in ("priority", "job_id", "partitions"))
        overlapping = {name: frozenset({name}) for name in self._queued} | _overlapping(self._partitions_of.values())
        orders: dict[frozenset[str], Sequence[int]] = {}
        for names in overlapping.values():
            if names in orders:
                continue
            tiers = {other: self._tiers.get(other, 1) for other in names}
            orders[names] = sorted(
                {at for other in names for at in self._queued.get(other, ())},
                key=lambda at, tiers=tiers: (  # type: ignore[misc]
                    -max(tiers.get(other, 0) for other in partitions[at]),
                    *rank(priority[at], job_id[at]),
                ),
            )
        return {name: orders[names] for name, names in overlapping.items()}

    @cached_property
    def queue_positions(self) -> Mapping[str, Mapping[str, tuple[int, int]]]:
        """The same by job id: the job's position, and how many other people have jobs ahead of it."""
        person, job_id = self.person_of_job, self._jobs.column("job_id")
        of_order: dict[int, dict[str, tuple[int, int]]] = {}
        for order in self.queue_order.values():  # partitions with the same nodes have the same order
            if id(order) in of_order:
                continue
            positions, ahead = dict[str, tuple[int, int]](), set[str]()
            for position, at in enumerate(order, 1):
                positions[job_id[at]] = position, len(ahead) - (person[at] in ahead)
                ahead.add(person[at])
            of_order[id(order)] = positions
        return {name: of_order[id(order)] for name, order in self.queue_order.items()}

    def is_partial(self, reservation: Reservation) -> bool:
        """Whether a reservation is of some cores of its nodes, and not of all."""
        nodes = [self._states[name] for name in reservation.nodes if name in self._states]
        cores = sum(node.cpus // node.cpus_per_core for node in nodes)
        of_all = len(nodes) == len(reservation.nodes) and cores and reservation.core_count >= cores
        return reservation.partial and not of_all

    def _shards_held(self, node: NodeState, jobs: Iterable[int]) -> int:
        """How many shards the jobs of a node hold, where it does not report how many of each GPU are in use."""
        if not any(gres.name == "shard" and gres.indices and not gres.shares for gres in node.gres_used):
            return 0
        gpus = self._jobs.column("gpus")
        return sum(gres.count for job in jobs for gres in gpus[job] if gres.name == "shard")

    def warm(self) -> None:
        """Build the indexes now: in the thread that read the snapshot, not in the event loop that serves pages."""
        _ = self.queue_positions
        for nodes in self._partitions.values():
            for need in (Need(), Need(gpus=1), Need(shards=1)):
                nodes.fitting(need)
            nodes.count_capable(Need(), usable=True)
            nodes.count("node", 0.0, 0.0)
        for name, nodes in self._partitions.items():
            for need in (Need(), Need(gpus=1), *(Need(gpus=1, gpu_type=kind) for kind in nodes.types if kind)):
                self.competition(name, "", need)

    def nodes(self, partition: str, *, constraint: str = "", reservation: str = "") -> NodeSet:
        """The nodes of a partition that satisfy ``constraint`` and belong to ``reservation``, where these are given."""
        if not constraint and not reservation:
            return self._partitions.get(partition) or NodeSet(())
        key = (partition, constraint, reservation)
        if key not in self._parts:
            self._parts[key] = NodeSet(self._part(*key))
        return self._parts[key]

    def _part(self, partition: str, constraint: str, reservation: str) -> Iterator[NodeFit]:
        nodes: Iterable[NodeFit] = self.nodes(partition).all
        own = self._reservations.get(reservation)
        if own is not None:
            nodes = [
                self._as_seen_by(
                    node,
                    tuple(period for period in node.reserved if period.name != reservation),
                    partition,
                    maintained=node.name in own.nodes,
                )
                for node in nodes
                if not own.nodes or node.name in own.nodes
            ]
        return (node for node in nodes if not constraint or satisfies(constraint, node.features) is not False)

    def _as_seen_by(
        self,
        node: NodeFit,
        reserved: tuple[ReservedPeriod, ...],
        partition: str,
        *,
        maintained: bool = False,
    ) -> NodeFit:
        """The same node as the jobs of a partition, and perhaps of a reservation, may use it.

        ``maintained``: that reservation may be what it is in maintenance for, and ``reserved`` says where others are.
        """
        state = self._states[node.name]
        if maintained:
            state = state._replace(states=state.states - {"MAINTENANCE"})
        oversubscribed = None
        if partition in self._shared:
            columns = (self._jobs.column(field) for field in ("cpus", "node_count", "partitions"))
            cpus, node_count, partitions = columns
            own = [cpus[job] // node_count[job] for job in node.jobs if partition in partitions[job]]
            oversubscribed = self._shared[partition], own
        return NodeFit(
            state,
            node.jobs,
            reserved,
            complete=node.complete,
            config=self._config,
            partitions=node.place.partitions,
            shards_held=self._shards_held(state, node.jobs),
            oversubscribed=oversubscribed,
        )

    def competition(
        self, partition: str, reservation: str, need: Need, *, of_these_devices: bool = False
    ) -> Competition | None:
        """Pending jobs of any partition, in the same reservation or none, that could use nodes which have ``need``.

        Those of a partition with a lower PriorityTier come after a job of this one, once Slurm has considered them.
        ``of_these_devices``: only those that request what ``need`` asks for first.
        """
        nodes, tier = self.nodes(partition, reservation=reservation), self._tiers.get(partition, 1)
        places = frozenset(place for place, node in nodes.places.items() if node.offers(need))
        key = places, reservation, tier, need.what if of_these_devices else ""
        if key not in self._competitions:
            rivals = dict.fromkeys(
                alike
                for place in places
                for alike in self._before(place, reservation, tier)
                if not of_these_devices or _requests(alike.need, need)
            )
            self._competitions[key] = self._competition(rivals) if rivals else None
        return self._competitions[key]

    def is_claimed(self, node: NodeFit, partition: str, reservation: str) -> bool:
        """Whether a pending job could use this node, and may start before one of the partition."""
        key = node.place, reservation, self._tiers.get(partition, 1)
        if key not in self._claimed:
            self._claimed[key] = any(self._before(*key))
        return self._claimed[key]

    def _before(self, place: Place, reservation: str, tier: int) -> Iterator[_Alike]:
        for alike in self._rivals.get(place, ()):
            own = alike.reservation == reservation or self._is_flexible(alike.reservation)
            tiers = (self._tiers.get(name, 1) for name in alike.partitions if name in place.partitions)
            if own and (alike.is_new or max(tiers) >= tier):
                yield alike

    def _is_flexible(self, reservation: str) -> bool:
        """Whether its jobs may have nodes outside of it."""
        return reservation in self._reservations and "FLEX" in self._reservations[reservation].flags

    def _competition(self, rivals: Iterable[_Alike]) -> Competition:
        starts_at, array_tasks = self._jobs.column("starts_at"), self._jobs.column("array_tasks")
        jobs = tuple(at for alike in rivals for at in self._alike[alike])
        return Competition(
            jobs,
            frozenset(self.person_of_job[at] for at in jobs),
            _extreme([starts_at[at] for at in jobs], min),
            _extreme([starts_at[at] if array_tasks[at] == 1 else None for at in jobs], max),
        )


_capacities: dict[int, Capacity] = {}
"""By the snapshot's id; an entry goes with its snapshot."""


def capacity_of(snapshot: ClusterSnapshot) -> Capacity:
    """The capacity of a snapshot, computed on the first call and kept for as long as the snapshot exists."""
    key = id(snapshot)  # hashing a snapshot would hash every node
    capacity = _capacities.get(key)
    if capacity is None:
        capacity = _capacities[key] = Capacity(snapshot)
        weakref.finalize(snapshot, _capacities.pop, key, None).atexit = False
    return capacity


def warm(snapshot: ClusterSnapshot) -> None:
    """Build the indexes of a snapshot now: in a thread, not in the event loop that serves pages."""
    capacity_of(snapshot).warm()


def model_of_type(gpu_type: str, snapshot: ClusterSnapshot | None) -> GpuModel:
    """The model that Slurm's type of GPU names on this cluster, as :func:`gpu_model` tells it from the nodes."""
    return gpu_model(gpu_type, capacity_of(snapshot).types_beside.get(gpu_type, ()) if snapshot is not None else ())


def _reserved_periods(reservations: Iterable[Reservation]) -> dict[str, tuple[ReservedPeriod, ...]]:
    """When nodes are reserved, by whole ones: what some cores leave free depends on the cores of the jobs."""
    by_node: dict[str, list[ReservedPeriod]] = {}
    for reservation in reservations:
        start, end = (
            reservation.start if reservation.start is not None else 0.0,
            reservation.end if reservation.end is not None else inf,
        )
        for node in reservation.nodes:
            by_node.setdefault(node, []).append(
                ReservedPeriod(start, end, reservation.name, "MAINT" in reservation.flags)
            )
    return {node: tuple(sorted(periods)) for node, periods in by_node.items()}


def _people(jobs: Table[ClusterJob]) -> list[str]:
    job_id, user, tag = (jobs.column(field) for field in ("job_id", "user", "tag"))
    return [_person(tag[at]) or user[at] or job_id[at] for at in range(len(jobs))]


@lru_cache(maxsize=8192)
def _person(tag: str) -> str:
    """The user of the hub that submitted a job with this comment; empty for any other job."""
    names = parse_tag(tag) if tag else None
    return names[1] if names is not None else ""


def _alike(table: Table[ClusterJob], jobs: Iterable[int]) -> Mapping[_Alike, Sequence[int]]:
    """These pending jobs by what they have in common."""
    names = ("partitions", "reservation", "reason", "gpus", "cpus", "memory_mib", "node_count")
    columns = [table.column(field) for field in names]
    by_values: dict[tuple[object, ...], list[int]] = {}
    for at in sorted(jobs):
        partitions, reservation, reason, *request = (column[at] for column in columns)
        by_values.setdefault((partitions, reservation, not reason, *request), []).append(at)
    alike: dict[_Alike, list[int]] = {}
    for same in by_values.values():
        job = table[same[0]]
        alike.setdefault(_Alike(job.partitions, job.reservation, not job.reason, _need_of(job)), []).extend(same)
    return alike


def _need_of(job: ClusterJob) -> Need:
    """What a pending job requests on each of its nodes, as far as squeue shows it."""
    gpus = [gres for gres in job.gpus if gres.name == "gpu"]
    return Need(
        gpus=sum(gres.count for gres in gpus),
        gpu_type=gpus[0].type or ANY if len(gpus) == 1 else ANY,
        shards=sum(gres.count for gres in job.gpus if gres.name == "shard"),
        cpus=job.cpus // job.node_count,
        memory=job.memory_mib // job.node_count,
    )


def _requests(other: Need, need: Need) -> bool:
    """Whether the other request is for devices that this one is for."""
    if need.gpus:
        return bool(other.gpus) and (ANY in (other.gpu_type, need.gpu_type) or other.gpu_type == need.gpu_type)
    return bool(other.shards) if need.shards else not other.gpus and not other.shards


def _partitions_of_nodes(snapshot: ClusterSnapshot) -> Mapping[str, frozenset[str]]:
    """The partitions of each node; those of many nodes are the same object."""
    names, table = snapshot.node_table.column("name"), dict[int, list[str]]()
    for partition, positions in snapshot.nodes_by_partition.positions.items():
        for at in positions:
            table.setdefault(at, []).append(partition)
    same = {tuple(partitions): frozenset(partitions) for partitions in table.values()}
    return {names[at]: same[tuple(partitions)] for at, partitions in table.items()}


def _overlapping(of_nodes: Iterable[frozenset[str]]) -> dict[str, frozenset[str]]:
    """The partitions that share a node with each, itself included."""
    overlapping: dict[str, set[str]] = {}
    for names in set(of_nodes):
        for name in names:
            overlapping.setdefault(name, set()).update(names)
    same: dict[frozenset[str], frozenset[str]] = {}
    return {name: same.setdefault(frozenset(names), frozenset(names)) for name, names in overlapping.items()}


def _extreme(moments: Sequence[float | None], pick: Callable[[list[float]], float]) -> float | None:
    dated = [moment for moment in moments if moment is not None]
    return pick(dated) if len(dated) == len(moments) else None


# A pending job's position in the queue for its partition's nodes.
#
# Slurm may start a job with lower priority first if that delays no other (backfill), so a position is no promise.


def queue_position(snapshot: ClusterSnapshot, job_id: str) -> QueuePosition | None:
    """The job's best position in the queues of its partitions; None for a job that is in no queue."""
    job = snapshot.job_by_id.get(job_id)
    if job is None or not job.in_queue:
        return None
    positions, in_queues = [], capacity_of(snapshot).queue_positions
    for partition in job.partitions:
        position, people = in_queues[partition][job_id]
        positions.append(QueuePosition(position, len(in_queues[partition]), partition, people, job.starts_at))
    return min(positions, key=lambda index: index.position, default=None)


def queue_view(snapshot: ClusterSnapshot, partition: str) -> QueueView:
    """What decides when the pending jobs of a partition start; computed once for all who wait there."""
    capacity = capacity_of(snapshot)
    views = capacity.queue_views
    if partition not in views:
        table, order = snapshot.job_table, capacity.queue_order.get(partition, ())
        job_id, ends_at, person = table.column("job_id"), table.column("ends_at"), capacity.person_of_job
        members = [node.name for node in snapshot.nodes_of(partition) if node.usable]
        held = {at for name in members for at in snapshot.jobs_by_node.positions.get(name, ())}
        views[partition] = QueueView(
            taken_at=snapshot.taken_at,
            order=tuple(job_id[at] for at in order),
            people={job_id[at]: person[at] for at in order},
            ends={job_id[at]: ends_at[at] for at in held},
            nodes=frozenset(members),
        )
    return views[partition]
