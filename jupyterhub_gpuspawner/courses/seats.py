"""How many people of a course fit at the same time, counted node by node. Pure.

``sbatch --test-only`` tries one job; fifty may fail where one fits. So the seats of each node are counted: what the
node has, less what jobs of others still hold when the session starts, divided by what one participant requests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from jupyterhub_gpuspawner.cluster.fit import Freed, Need, NodeFit
from jupyterhub_gpuspawner.slurm.snapshot import ClusterJob
from jupyterhub_gpuspawner.words import cpus, memory

GPUS, SHARDS, CPUS, MEMORY, NODES = "gpus", "shards", "cpus", "memory", "nodes"
"""Resources by the names of a profile's fields; ``nodes`` where each participant requests whole nodes."""
_ORDER = (GPUS, SHARDS, NODES, CPUS, MEMORY)


@dataclass(frozen=True)
class Free:
    """What a node has for the course at the start of a session."""

    gpus: Mapping[str, int]
    """By type; the empty type counts all."""
    shards: int = 0
    cpus: int = 0
    memory: int = 0
    """MiB."""
    idle: bool = True
    """No job is left on it."""
    step: int = 1
    """How many CPUs Slurm gives out together; see :meth:`NodeFit.used_by`."""
    cpus_per_core: int = 1


@dataclass(frozen=True)
class Sharing:
    """How a partition lets jobs share a node's CPUs."""

    partition: str = ""
    cpus_at_most: int | None = None
    """MaxCPUsPerNode: CPUs of a node that all jobs of the partition may hold together."""
    jobs_per_cpu: int = 1
    """OverSubscribe=FORCE."""
    own_jobs: frozenset[str] = frozenset()
    """Ids of jobs that are the participants' servers already, so that they take no seats from them."""


@dataclass(frozen=True)
class NodeSeats:
    """The seats of one node."""

    node: str
    limits: Mapping[str, int]
    """How many participants each requested resource has room for; empty where the node cannot be used at all."""
    why: str = ""
    """Why it cannot be used; empty where it can."""

    @property
    def seats(self) -> int:
        """How many participants fit."""
        return min(self.limits.values(), default=0)

    def seats_without(self, resource: str) -> int:
        """How many would fit if there were plenty of one resource."""
        return min((limit for name, limit in self.limits.items() if name != resource), default=self.seats)


@dataclass(frozen=True)
class Seats:
    """How many participants fit at the same time."""

    wanted: int
    nodes: tuple[NodeSeats, ...]
    nodes_per_person: int = 1
    """Nodes that each participant requests."""

    @property
    def fit(self) -> int:
        """How many fit."""
        return _together([node.seats for node in self.nodes], self.nodes_per_person)

    @property
    def tight(self) -> str:
        """The resource of which more would let most further people in; empty where all fit, or none alone would."""
        if self.fit >= self.wanted:
            return ""
        gain = {name: self._without(name) for name in _ORDER if any(name in node.limits for node in self.nodes)}
        best = max(gain, key=lambda name: gain[name], default="")
        return best if best and gain[best] > self.fit else ""

    def _without(self, resource: str) -> int:
        return _together([node.seats_without(resource) for node in self.nodes], self.nodes_per_person)


def _together(seats: list[int], nodes_per_person: int) -> int:
    """How many jobs of ``nodes_each`` different nodes fit on nodes with so many seats."""
    if nodes_per_person <= 1:
        return sum(seats)
    low, high = 0, sum(seats) // nodes_per_person
    while low < high:  # the largest number of jobs for which every job finds enough different nodes
        middle = (low + high + 1) // 2
        if sum(min(seat, middle) for seat in seats) >= middle * nodes_per_person:
            low = middle
        else:
            high = middle - 1
    return low


def free_at(node: NodeFit, jobs: Sequence[ClusterJob], moment: float, sharing: Sharing = Sharing()) -> Free:
    """What a node has once those of the snapshot's ``jobs`` have ended that end before ``moment``.

    ``moment`` in seconds since the epoch.

    A job without a time limit keeps what it holds; those that are the course's own keep nothing.
    """
    freed, held, of_partition = Freed(), 0, 0
    for job in (jobs[at] for at in node.jobs):
        cpus = job.cpus // job.node_count
        if job.job_id in sharing.own_jobs or (job.ends_at is not None and job.ends_at <= moment):
            freed.add(cpus, job.memory_mib // job.node_count, job.gpus, node.only_type)
            continue
        held += cpus
        of_partition += cpus if job.partition == sharing.partition else 0
    empty = node.complete and freed.jobs == len(node.jobs)
    free_cpus = node.cpus if empty else min(node.free_cpus + freed.cpus, node.cpus)
    if sharing.jobs_per_cpu > 1:
        free_cpus = max(0, node.cpus * sharing.jobs_per_cpu - held)
    if sharing.cpus_at_most is not None:
        free_cpus = max(0, min(free_cpus, sharing.cpus_at_most - of_partition))
    if empty:
        return Free(node.gpus, node.shards, free_cpus, node.memory, step=node.step, cpus_per_core=node.cpus_per_core)
    gpus = Counter(node.free_gpus) + freed.gpus
    return Free(
        {kind: min(gpus[kind], count) for kind, count in node.gpus.items()},
        min(node.free_shards + freed.shards, node.shards),
        free_cpus,
        min(node.free_memory + freed.memory, node.memory),
        idle=False,
        step=node.step,
        cpus_per_core=node.cpus_per_core,
    )


def seats_of(
    node: NodeFit,
    need: Need,
    jobs: Sequence[ClusterJob],
    *,
    start: float,
    end: float,
    sharing: Sharing = Sharing(),
) -> NodeSeats:
    """The seats of one node from ``start`` to ``end``, in seconds since the epoch."""
    why = _unusable(node, start, end)
    if why:
        return NodeSeats(node.name, {}, why)
    free = free_at(node, jobs, start, sharing)
    cpus, cores = node.used_by(need)
    need = replace(need, cpus=cpus, memory=cores)
    if need.exclusive or need.all_memory:
        whole = Free(node.gpus, node.shards, node.cpus, node.memory)
        fits = free.idle and min(_limits(whole, replace(need, all_memory=False)).values(), default=1) > 0
        return NodeSeats(node.name, {NODES: int(fits)})
    return NodeSeats(node.name, _limits(free, need))


def _limits(free: Free, need: Need) -> dict[str, int]:
    amounts = (
        (GPUS, need.gpus, free.gpus.get(need.gpu_type, 0)),
        (SHARDS, need.shards, free.shards),
        (CPUS, need.cpus, free.cpus),
        (MEMORY, need.memory, free.memory),
    )
    return {name: has // limit for name, limit, has in amounts if limit}


def _unusable(node: NodeFit, start: float, end: float) -> str:
    if not node.usable:
        return f"out of service now{f' ({node.reason})' if node.reason else ''}"
    other = next((period for period in node.reserved if period.start < end and start < period.end), None)
    if other is None:
        return ""
    return f"in maintenance (reservation {other.name})" if other.maintenance else f"reserved for {other.name}"


def count_seats(
    nodes: Iterable[NodeFit],
    need: Need,
    jobs: Sequence[ClusterJob],
    *,
    wanted: int,
    start: float,
    end: float,
    nodes_per_person: int = 1,
    sharing: Sharing = Sharing(),
) -> Seats:
    """The seats of a session; ``nodes`` are those of its partition, constraint and reservation, ``jobs`` all jobs."""
    seats = tuple(seats_of(node, need, jobs, start=start, end=end, sharing=sharing) for node in nodes)
    return Seats(wanted, seats, nodes_per_person)


def either(of_partitions: Sequence[Seats]) -> Seats:
    """The seats of jobs that are submitted to several partitions: each node counts as the one with most seats."""
    best: dict[str, NodeSeats] = {}
    for node in (node for seats in of_partitions for node in seats.nodes):
        if node.node not in best or node.seats > best[node.node].seats:
            best[node.node] = node
    return replace(of_partitions[0], nodes=tuple(best.values()))


def remedy(seats: Seats, need: Need, free: Mapping[str, Free]) -> str:
    """What would let more people in, for the instructor; empty where nothing that the request can change would.

    ``free`` is what each node has. The remedy is the largest request of the tight resource with which each node has as
    many seats as its other resources allow.
    """
    name = seats.tight
    if name not in (CPUS, MEMORY):
        return ""
    crowded = [node for node in seats.nodes if node.limits and node.seats_without(name) > node.seats]
    has = {node.node: getattr(free[node.node], name) for node in crowded}
    less = min(has[node.node] // node.seats_without(name) for node in crowded)
    example = max(crowded, key=lambda node: node.seats_without(name) - node.seats)
    if name == CPUS:
        step = max(free[node.node].step for node in crowded)
        less = less // step * step
    requested: int = getattr(need, name)
    if not 0 < less < requested:
        return ""
    if name == MEMORY:
        rounded = less // 1024 * 1024 or less
        now, then = f"{memory(requested)} of memory", memory(rounded)
    else:
        now, then = (cpus(number, per_core=free[example.node].cpus_per_core) for number in (requested, less))
    would = example.seats_without(name)
    what = _unit(need, would)
    return (
        f"With {now} for each person, {example.seats} of {would} {what} of node {example.node} can be used; "
        f"{then} each would allow all {would}."
    )


def _unit(need: Need, number: int) -> str:
    if need.gpus:
        return "GPUs" if need.gpus == 1 and number != 1 else "seats"
    return "seats"
