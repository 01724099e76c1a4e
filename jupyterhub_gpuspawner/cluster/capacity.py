"""What nodes offer, have free and will have free: the facts of :mod:`.availability`, indexed once a snapshot. Pure.

A :class:`Rooms` is a set of nodes, such as a partition's, sorted by what is asked for most, so that ten thousand nodes
answer for thirty profiles within milliseconds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from functools import cached_property
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from jupyterhub_gpuspawner.cluster.constraint import satisfies
from jupyterhub_gpuspawner.cluster.node_fit import ANY, Block, Freed, Need, Room
from jupyterhub_gpuspawner.cluster.pending import in_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from jupyterhub_gpuspawner.cluster.snapshot import ClusterJob, ClusterSnapshot

RELEASES = 4000
"""Ends of jobs that are looked at for one answer."""

_ANYTHING = frozenset((f"gpu:{ANY}", f"shard:{ANY}"))
"""What a job may want of which that is not known."""


class Release(NamedTuple):
    """A job's end on one node."""

    moment: float
    room: Room
    job: ClusterJob


class Waiting(NamedTuple):
    """Jobs in line that compete with a request."""

    jobs: int
    gpu_types: frozenset[str]
    """Types of GPU that they want; :data:`ANY` among them for one that takes any."""
    first_start: float | None
    """The earliest of Slurm's estimates; None where a job has none."""
    last_start: float | None
    """The latest of them; None where a job has none."""


class Rooms:
    """Some nodes, such as those of a partition, sorted by what they have free."""

    def __init__(self, rooms: Iterable[Room]) -> None:
        self.all = tuple(rooms)
        self.usable = tuple(room for room in self.all if room.usable)

    @cached_property
    def kinds(self) -> Mapping[Room, int]:
        """One room of each kind of hardware, and how many there are."""
        return _kinds(self.all)

    @cached_property
    def usable_kinds(self) -> Mapping[Room, int]:
        """The same of those that are in service."""
        return _kinds(self.usable)

    @cached_property
    def types(self) -> tuple[str, ...]:
        """Types of GPU that there are; :data:`ANY` among them for GPUs without one."""
        found = {kind for room in self.kinds for kind in room.gpus if kind}
        untyped = any(sum(room.gpus.values()) < 2 * room.gpus.get(ANY, 0) for room in self.kinds)
        return tuple(sorted(found | ({ANY} if untyped else set())))

    def offering(self, need: Need, *, usable: bool = False) -> int:
        """Nodes that could give this when empty: whatever their state, or in service."""
        kinds = self.usable_kinds if usable else self.kinds
        return sum(count for kind, count in kinds.items() if kind.offers(need))

    def with_room(self, need: Need) -> Iterator[Room]:
        """Usable nodes that have this free now, whatever reservations say."""
        rooms, counts, least = self._sorted(need)
        return (room for room in islice(rooms, bisect_left(counts, least), None) if room.has(need))

    def _sorted(self, need: Need) -> tuple[Sequence[Room], Sequence[int], int]:
        if need.gpus:
            rooms, counts = self._by_gpus.get(need.gpu_type, ((), ()))
            return rooms, counts, need.gpus
        if need.shards:
            return (*self._by_shards, need.shards)
        return (*self._by_cpus, need.cpus)

    @cached_property
    def _by_gpus(self) -> Mapping[str, tuple[Sequence[Room], Sequence[int]]]:
        types = {kind for room in self.kinds for kind in room.gpus}
        return {kind: _ascending(self.usable, lambda room, kind=kind: room.free_gpus.get(kind, 0)) for kind in types}  # type: ignore[misc]

    @cached_property
    def _by_shards(self) -> tuple[Sequence[Room], Sequence[int]]:
        return _ascending(self.usable, lambda room: room.free_shards)

    @cached_property
    def _by_cpus(self) -> tuple[Sequence[Room], Sequence[int]]:
        return _ascending(self.usable, lambda room: room.free_cpus)

    @cached_property
    def _blocked(self) -> tuple[Room, ...]:
        return tuple(room for room in self.usable if room.blocks)

    @cached_property
    def _totals(self) -> Mapping[str, tuple[int, int]]:
        return _totals(room for room in self.usable if not room.blocks)

    def count(self, what: str, moment: float, length: float) -> tuple[int, int]:
        """Free ones and all of ``what`` (``gpu:TYPE``, ``shard``, ``cpu``, ``node``) on usable nodes that are open."""
        free, of = self._totals.get(what, (0, 0))
        opened = _totals(room for room in self._blocked if room.open_at(moment, length) == moment)
        more = opened.get(what, (0, 0))
        return free + more[0], of + more[1]

    @cached_property
    def releases(self) -> tuple[Release, ...]:
        """Ends of jobs on usable nodes, by time; jobs without an end are left out."""
        found = [
            Release(job.ends_at, room, job) for room in self.usable for job in room.held_by if job.ends_at is not None
        ]
        found.sort(key=lambda release: release.moment)
        return tuple(found)

    def opening(self, need: Need, nodes: int, *, now: float, length: float) -> float | None:
        """When so many nodes will have this free if every job runs to its limit; None where no end tells."""
        moments = sorted(room.open_at(now, length) for room in self.with_room(need))
        done = {room.name for room in self.with_room(need)}
        freed: dict[str, Freed] = {}
        for release in islice(self.releases, RELEASES):
            moment = max(now, release.moment)
            if len(moments) >= nodes and moments[nodes - 1] <= moment:
                break
            room = release.room
            if room.name in done or not room.offers(need):
                continue
            so_far = freed.setdefault(room.name, Freed())
            so_far.add(release.job, room.only_type)
            if room.has_after(need, so_far):
                done.add(room.name)
                moments.append(room.open_at(moment, length))
                moments.sort()
        return moments[nodes - 1] if len(moments) >= nodes else None


def _kinds(rooms: Iterable[Room]) -> dict[Room, int]:
    found: dict[object, tuple[Room, int]] = {}
    for room in rooms:
        key = (room.cpus, room.memory, room.shards, tuple(room.gpus.items()))
        first, count = found.get(key, (room, 0))
        found[key] = (first, count + 1)
    return dict(found.values())


def _ascending(rooms: Iterable[Room], count: Callable[[Room], int]) -> tuple[Sequence[Room], Sequence[int]]:
    found = sorted(rooms, key=count)
    return found, [count(room) for room in found]


def _totals(rooms: Iterable[Room]) -> dict[str, tuple[int, int]]:
    free: Counter[str] = Counter()
    of: Counter[str] = Counter()
    for room in rooms:
        of["node"] += 1
        free["node"] += room.idle
        of["cpu"] += room.cpus
        free["cpu"] += room.free_cpus
        of["shard"] += room.shards
        free["shard"] += room.free_shards
        for kind, count in room.gpus.items():
            of[f"gpu:{kind}"] += count
            free[f"gpu:{kind}"] += room.free_gpus.get(kind, 0)
    return {what: (free[what], count) for what, count in of.items()}


class Capacity:
    """The rooms of one snapshot, by partition; of a part of one, once it is asked for."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._snapshot = snapshot
        self._blocks = _blocks(snapshot)
        jobs = snapshot.jobs_by_node
        self._rooms = {
            node.name: Room(
                node, jobs.get(node.name, ()), self._blocks.get(node.name, ()), all_known=not snapshot.partial
            )
            for node in snapshot.nodes
        }
        self._partitions = {
            name: Rooms(self._rooms[node.name] for node in nodes) for name, nodes in snapshot.nodes_by_partition.items()
        }
        self._parts: dict[tuple[str, str, str], Rooms] = {}
        self._lines = {name: _lines(jobs) for name, jobs in snapshot.waiting_by_partition.items()}

    def warm(self) -> None:
        """Sort all partitions now: in the thread that has read the snapshot, not in the one that serves pages."""
        for rooms in self._partitions.values():
            for need in (Need(), Need(gpus=1), Need(shards=1)):
                rooms.with_room(need)
            rooms.offering(Need(), usable=True)
            rooms.count("node", 0.0, 0.0)
            _ = rooms.releases

    def rooms(self, partition: str, *, constraint: str = "", reservation: str = "") -> Rooms:
        """The nodes of a partition that satisfy a constraint and are in a reservation; all of them for empty ones."""
        if not constraint and not reservation:
            return self._partitions.get(partition) or Rooms(())
        key = (partition, constraint, reservation)
        if key not in self._parts:
            self._parts[key] = Rooms(self._part(*key))
        return self._parts[key]

    def _part(self, partition: str, constraint: str, reservation: str) -> Iterator[Room]:
        rooms: Iterable[Room] = self.rooms(partition).all
        kept = self._snapshot.reservation_by_name.get(reservation)
        if kept is not None:
            rooms = [
                Room(
                    self._snapshot.node_by_name[room.name],
                    room.held_by,
                    tuple(block for block in room.blocks if block.name != reservation),
                    all_known=room.all_known,
                )
                for room in rooms
                if not kept.nodes or room.name in kept.nodes
            ]
        return (room for room in rooms if not constraint or satisfies(constraint, room.features) is not False)

    def waiting(self, partition: str, reservation: str, need: Need) -> Waiting | None:
        """Jobs in line that want what the request wants, in the partition and the same reservation or none."""
        lines = [
            waiting
            for (where, kinds), waiting in self._lines.get(partition, {}).items()
            if where == reservation and _compete(kinds, need)
        ]
        if not lines:
            return None
        return Waiting(
            sum(line.jobs for line in lines),
            frozenset().union(*(line.gpu_types for line in lines)),
            _least([line.first_start for line in lines], min),
            _least([line.last_start for line in lines], max),
        )


def _blocks(snapshot: ClusterSnapshot) -> dict[str, tuple[Block, ...]]:
    found: dict[str, list[Block]] = {}
    for each in snapshot.reservations:
        block = Block(
            each.start if each.start is not None else 0.0, each.end if each.end is not None else inf, each.name
        )
        for node in each.nodes:
            found.setdefault(node, []).append(block)
    return {node: tuple(sorted(blocks)) for node, blocks in found.items()}


def _lines(jobs: Iterable[ClusterJob]) -> dict[tuple[str, frozenset[str]], Waiting]:
    found: dict[tuple[str, frozenset[str]], list[ClusterJob]] = {}
    for job in jobs:
        if in_line(job):
            kinds = _ANYTHING if job.gpus_unknown else frozenset(f"{gres.name}:{gres.type or ANY}" for gres in job.gpus)
            found.setdefault((job.reservation, kinds), []).append(job)
    return {
        key: Waiting(
            len(line),
            frozenset(kind.partition(":")[2] for kind in key[1]),
            _least([job.starts_at for job in line], min),
            _least([job.starts_at for job in line], max),
        )
        for key, line in found.items()
    }


def _least(moments: Sequence[float | None], pick: Callable[[list[float]], float]) -> float | None:
    known = [moment for moment in moments if moment is not None]
    return pick(known) if len(known) == len(moments) else None


def _compete(kinds: frozenset[str], need: Need) -> bool:
    if not need.gpus and not need.shards:
        return not kinds or kinds == _ANYTHING or need.exclusive
    wanted = "gpu" if need.gpus else "shard"
    for kind in kinds:
        name, _, gpu_type = kind.partition(":")
        if name == wanted and (not gpu_type or not need.gpu_type or gpu_type == need.gpu_type):
            return True
    return False
