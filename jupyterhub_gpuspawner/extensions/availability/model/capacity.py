"""The cluster's resources and its queue, indexed once for each snapshot; :mod:`.availability` reads them. Pure."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from math import inf
from typing import NamedTuple

from jupyterhub_gpuspawner.extensions.availability.model.change import QueueView
from jupyterhub_gpuspawner.extensions.availability.model.fit import (
    ANY,
    Need,
    NodeFit,
    NodeSet,
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
    Partition,
    Reservation,
    Table,
    rank,
    waits_for_resources,
)
from jupyterhub_gpuspawner.units import Gres

_UNKNOWN_REQUEST = frozenset((f"gpu:{ANY}", f"shard:{ANY}"))
"""What a job whose request could not be read may ask for: any GPU or shard."""


class Competition(NamedTuple):
    """Pending jobs that compete with a request for the same resources."""

    jobs: tuple[int, ...]
    """Their positions in the snapshot's jobs."""
    people: frozenset[str]
    """Whose they are, see :attr:`Capacity.person_of_job`."""
    gpu_types: frozenset[str]
    """The GPU types they request; includes :data:`ANY` if one of them accepts any type."""
    first_start: float | None
    """The earliest of Slurm's estimates; None if it has none for some job."""
    last_start: float | None
    """The latest of them; None likewise, or where one is a job array, whose estimate is that of its first task."""


class Capacity:
    """The nodes of one snapshot by partition, and by part of a partition as requests ask for it.

    It keeps no reference to the snapshot, which :func:`capacity_of` relies on.
    """

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._states = snapshot.node_by_name
        self._reservations = snapshot.reservation_by_name
        self._jobs = snapshot.job_table
        jobs, reserved = snapshot.jobs_by_node.positions, _reserved_periods(snapshot.reservations)
        self._config = snapshot.config
        complete = not snapshot.partial
        nodes = [
            NodeFit(
                state,
                jobs.get(state.name, ()),
                reserved.get(state.name, ()),
                complete=complete,
                config=self._config,
                shards_held=self._shards_held(state, jobs.get(state.name, ())),
            )
            for state in snapshot.node_table
        ]
        self._shared = {
            partition.name: partition.jobs_per_cpu for partition in snapshot.partitions if partition.shares_cpus
        }
        self._usual = {partition.name: usual_limit(partition) for partition in snapshot.partitions}
        self._partitions = {}
        for name, positions in snapshot.nodes_by_partition.positions.items():
            members = [nodes[at] for at in positions]
            if name in self._shared:
                members = [self._as_seen_by(node, node.reserved, name) for node in members]
            self._partitions[name] = NodeSet(members, self._jobs)
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
        priority, reason = self._jobs.column("priority"), self._jobs.column("reason")
        self._queued = {
            name: [at for at in jobs if waits_for_resources(priority[at], reason[at])]
            for name, jobs in snapshot.waiting_by_partition.positions.items()
        }
        self._queues = {name: _queue(self._jobs, jobs, self.person_of_job) for name, jobs in self._queued.items()}

    @cached_property
    def queue_order(self) -> Mapping[str, Sequence[int]]:
        """The pending jobs of each partition that start as soon as their resources are free, in Slurm's order of them.

        That is by priority, and then by age.
        """
        priority, job_id = self._jobs.column("priority"), self._jobs.column("job_id")
        return {
            name: sorted(jobs, key=lambda at: rank(priority[at], job_id[at])) for name, jobs in self._queued.items()
        }

    @cached_property
    def queue_positions(self) -> Mapping[str, Mapping[str, tuple[int, int]]]:
        """The same by job id: the job's position, and how many other people have jobs ahead of it."""
        person, job_id = self.person_of_job, self._jobs.column("job_id")
        by_partition: dict[str, dict[str, tuple[int, int]]] = {}
        for name, ordered in self.queue_order.items():
            positions, ahead = dict[str, tuple[int, int]](), set[str]()
            for position, at in enumerate(ordered, 1):
                positions[job_id[at]] = position, len(ahead) - (person[at] in ahead)
                ahead.add(person[at])
            by_partition[name] = positions
        return by_partition

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
            _ = nodes.releases
        for name, nodes in self._partitions.items():
            for need in (Need(), Need(gpus=1), *(Need(gpus=1, gpu_type=kind) for kind in nodes.types if kind)):
                competition = self.competition(name, "", need)
                if competition is not None:
                    nodes.plan(need.what, competition.jobs, self._usual.get(name, inf))

    def nodes(self, partition: str, *, constraint: str = "", reservation: str = "") -> NodeSet:
        """The nodes of a partition that satisfy ``constraint`` and belong to ``reservation``, where these are given."""
        if not constraint and not reservation:
            return self._partitions.get(partition) or NodeSet((), self._jobs)
        key = (partition, constraint, reservation)
        if key not in self._parts:
            self._parts[key] = NodeSet(self._part(*key), self._jobs)
        return self._parts[key]

    def _part(self, partition: str, constraint: str, reservation: str) -> Iterator[NodeFit]:
        nodes: Iterable[NodeFit] = self.nodes(partition).all
        own = self._reservations.get(reservation)
        if own is not None:
            nodes = [
                self._as_seen_by(
                    node, tuple(period for period in node.reserved if period.name != reservation), partition
                )
                for node in nodes
                if not own.nodes or node.name in own.nodes
            ]
        return (node for node in nodes if not constraint or satisfies(constraint, node.features) is not False)

    def _as_seen_by(self, node: NodeFit, reserved: tuple[ReservedPeriod, ...], partition: str) -> NodeFit:
        """The same node as the jobs of a partition, and perhaps of a reservation, may use it."""
        oversubscribed = None
        if partition in self._shared:
            columns = (self._jobs.column(field) for field in ("cpus", "node_count", "partitions"))
            cpus, node_count, partitions = columns
            own = [cpus[job] // node_count[job] for job in node.jobs if partition in partitions[job]]
            oversubscribed = self._shared[partition], own
        return NodeFit(
            self._states[node.name],
            node.jobs,
            reserved,
            complete=node.complete,
            config=self._config,
            shards_held=self._shards_held(self._states[node.name], node.jobs),
            oversubscribed=oversubscribed,
        )

    def competition(self, partition: str, reservation: str, need: Need) -> Competition | None:
        """Pending jobs of the partition, in the same reservation or none, that request the same resources."""
        competitors = [
            queue
            for (where, kinds), queue in self._queues.get(partition, {}).items()
            if where == reservation and _compete(kinds, need)
        ]
        if not competitors:
            return None
        return Competition(
            tuple(at for queue in competitors for at in queue.jobs),
            frozenset().union(*(queue.people for queue in competitors)),
            frozenset().union(*(queue.gpu_types for queue in competitors)),
            _extreme([queue.first_start for queue in competitors], min),
            _extreme([queue.last_start for queue in competitors], max),
        )


def usual_limit(partition: Partition) -> float:
    """The time limit of a job that requests none, in seconds; infinite where there is none."""
    limit = partition.default_time if partition.default_time is not None else partition.max_time
    return inf if limit is None else limit


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
    """When whole nodes are reserved. What a reservation of some cores leaves free depends on the cores of the jobs."""
    by_node: dict[str, list[ReservedPeriod]] = {}
    for reservation in reservations:
        if reservation.partial:
            continue
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


def _queue(
    table: Table[ClusterJob], jobs: Iterable[int], person: Sequence[str]
) -> Mapping[tuple[str, frozenset[str]], Competition]:
    """The jobs of a queue, grouped by reservation and by the GPUs or shards they request, with Slurm's estimates."""
    groups: dict[tuple[str, frozenset[str]], list[int]] = {}
    columns = (table.column(field) for field in ("reservation", "gpus", "gpus_unknown", "starts_at", "array_tasks"))
    reservation, gpus, unknown, starts_at, array_tasks = columns
    for at in jobs:
        kinds = _UNKNOWN_REQUEST if unknown[at] else _kinds(gpus[at])
        groups.setdefault((reservation[at], kinds), []).append(at)
    return {
        key: Competition(
            tuple(members),
            frozenset(person[at] for at in members),
            frozenset(kind.partition(":")[2] for kind in key[1]),
            _extreme([starts_at[at] for at in members], min),
            _extreme([starts_at[at] if array_tasks[at] == 1 else None for at in members], max),
        )
        for key, members in groups.items()
    }


@lru_cache(maxsize=8192)
def _kinds(gpus: tuple[Gres, ...]) -> frozenset[str]:
    return frozenset(f"{gres.name}:{gres.type or ANY}" for gres in gpus)


def _extreme(moments: Sequence[float | None], pick: Callable[[list[float]], float]) -> float | None:
    dated = [moment for moment in moments if moment is not None]
    return pick(dated) if len(dated) == len(moments) else None


def _compete(kinds: frozenset[str], need: Need) -> bool:
    if not need.gpus and not need.shards:
        return not kinds or kinds == _UNKNOWN_REQUEST or need.exclusive
    wanted = "gpu" if need.gpus else "shard"
    for kind in kinds:
        name, _, gpu_type = kind.partition(":")
        if name == wanted and (not gpu_type or not need.gpu_type or gpu_type == need.gpu_type):
            return True
    return False


# A pending job's position in its partition's queue.
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
