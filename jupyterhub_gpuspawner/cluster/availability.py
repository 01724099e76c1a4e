"""Whether a job could start, and when: the truth that a page shows beside each profile, from one snapshot. Pure.

What only Slurm knows stays out: limits of accounts and QOS, licences, priorities. The trial (``sbatch --test-only``)
asks for that. Sentences are for a participant; ``field`` names the profile's field that is at fault.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from itertools import islice
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.cluster.limits import (
    Fault,
    fault_in,
    fault_of,
    in_allowed_group,
    length_of,
    need_of,
    partitions_of,
    span,
)
from jupyterhub_gpuspawner.cluster.node_fit import ANY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jupyterhub_gpuspawner.cluster.capacity import Rooms, Waiting
    from jupyterhub_gpuspawner.cluster.node_fit import Need
    from jupyterhub_gpuspawner.cluster.snapshot import ClusterSnapshot, Partition, Reservation
    from jupyterhub_gpuspawner.profiles.resolve import ResolvedResources

STALE = 900.0
"""Seconds after which a snapshot tells no more what is free."""


class Chance(str, Enum):
    """How a job would fare if it were submitted now."""

    NOW = "now"
    LATER = "later"
    NEVER = "never"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Availability:
    """How a job would fare, in one sentence without capital and full stop; times in seconds since the epoch."""

    chance: Chance
    sentence: str
    starts_at: float | None = None
    """When it would start, as far as that can be told; for NOW the snapshot's own time is not repeated here."""
    taken_at: float | None = None
    """When Slurm told what this is drawn from."""
    field: str = ""
    """The profile's field at fault, such as ``slurm.time``; empty where none is."""
    partition: str = ""
    """The one of its partitions that this is said of; empty where it is said of all."""


def availability(
    resources: ResolvedResources,
    snapshot: ClusterSnapshot | None,
    *,
    now: float,
    user: str = "",
    groups: Mapping[str, bool] = MappingProxyType({}),
) -> Availability:
    """How a job of these resources would fare; ``now`` in seconds since the epoch.

    ``user`` is compared with those whom a reservation names, ``groups`` with AllowGroups of partitions, see
    :func:`in_allowed_group`. Several partitions count as their best one.
    """
    if snapshot is None or not snapshot.partitions:
        return Availability(Chance.UNKNOWN, "Slurm has not told yet what is free")
    fault = fault_of(resources, snapshot, now=now, user=user, groups=groups)
    if fault is not None:
        return _dated(_never(fault), snapshot)
    unread = _unread_option(resources)
    if unread:
        text = f"it also asks Slurm for {unread}, which this page does not weigh"
        return _dated(Availability(Chance.UNKNOWN, text), snapshot)
    found = [
        replace(_in_partition(resources, snapshot, name, now, groups), partition=name)
        for name in partitions_of(resources, snapshot)
    ]
    best = _dated(min(found, key=_rank), snapshot)
    age = now - snapshot.taken_at
    if age > STALE and best.chance is not Chance.NEVER:
        return replace(
            best,
            chance=Chance.UNKNOWN,
            sentence=f"not known: Slurm has not answered for {span(age)}",
            starts_at=None,
        )
    return best


def _dated(found: Availability, snapshot: ClusterSnapshot) -> Availability:
    return replace(found, taken_at=snapshot.taken_at)


def _never(fault: Fault) -> Availability:
    return Availability(Chance.NEVER, f"cannot run: {fault.clause}", field=f"slurm.{fault.field}")


def _rank(found: Availability) -> tuple[int, float]:
    order = (Chance.NOW, Chance.LATER, Chance.UNKNOWN, Chance.NEVER)
    return order.index(found.chance), found.starts_at if found.starts_at is not None else inf


_WEIGHED = re.compile(
    r"--(comment|gres-flags|mail-type|mail-user|export|job-name|output|error|chdir|signal|open-mode|no-requeue|requeue"
    r"|hint|distribution|cpu-freq|profile|acctg-freq|wckey|get-user-env|propagate|kill-on-invalid-dep|wait-all-nodes)\b"
)


def _unread_option(resources: ResolvedResources) -> str:
    """The first further sbatch option that may change where or when the job starts."""
    for line in resources.extra:
        for word in line.split():
            if word.startswith("-") and not _WEIGHED.match(word):
                return word.partition("=")[0]
    return ""


def _in_partition(
    resources: ResolvedResources, snapshot: ClusterSnapshot, name: str, now: float, groups: Mapping[str, bool]
) -> Availability:
    partition = snapshot.partition_by_name[name]
    kept = snapshot.reservation_by_name.get(resources.reservation or "")
    fault = fault_in(resources, snapshot, name, now=now, groups=groups)
    if fault is not None:
        return _never(fault)
    unknown = _unknown(partition, groups)
    if unknown:
        return Availability(Chance.UNKNOWN, f"not known: {unknown}")
    if kept is not None and kept.start is not None and kept.start > now:
        return _not_before(kept, now)
    rooms = snapshot.capacity.rooms(
        name, constraint=resources.constraint or "", reservation=kept.name if kept is not None else ""
    )
    return _in_rooms(resources, rooms, snapshot, partition, now)


def _unknown(partition: Partition, groups: Mapping[str, bool]) -> str:
    """What is not known of the partition; empty where all is."""
    if partition.unread:
        return f"what Slurm tells of partition {partition.name} is not understood"
    if in_allowed_group(partition, groups) is None:
        return f"partition {partition.name} is for {' or '.join(partition.allow_groups)}, and Slurm knows who that is"
    return ""


def _in_rooms(
    resources: ResolvedResources, rooms: Rooms, snapshot: ClusterSnapshot, partition: Partition, now: float
) -> Availability:
    need, length = need_of(resources, partition, snapshot.memory), length_of(resources, partition)
    if rooms.offering(need) < resources.nodes:  # nodes that Slurm hides may have it: else it had been a fault
        return Availability(Chance.UNKNOWN, "not known: Slurm does not show the nodes that could run it")
    waiting = snapshot.capacity.waiting(partition.name, resources.reservation or "", need)
    open_now = (room for room in rooms.with_room(need) if room.open_at(now, length) == now)
    found = list(islice(open_now, resources.nodes))
    if len(found) < resources.nodes:
        return _full(need, resources.nodes, rooms, waiting, now=now, length=length)
    if snapshot.partial:
        return Availability(Chance.UNKNOWN, "not known: a part of what Slurm tells of jobs is not understood")
    free = _free(rooms, need, now, length)
    if waiting is None or _passes(waiting, rooms, need, resources.nodes, now=now, length=length):
        asleep = "; a node is switched on for it first" if any(room.asleep for room in found) else ""
        return Availability(Chance.NOW, f"starts now, {free}{asleep}")
    return Availability(Chance.LATER, f"{free}, but {_jobs(waiting.jobs)} before you")


def _passes(waiting: Waiting, rooms: Rooms, need: Need, nodes: int, *, now: float, length: float) -> bool:
    """Nobody who waits is delayed: it ends before the first of them starts, or takes GPUs that none of them wants."""
    if waiting.first_start is not None and now + length <= waiting.first_start:
        return True
    wanted = waiting.gpu_types
    if not need.gpus or need.gpu_type or ANY in wanted:
        return False
    free = (
        room
        for room in rooms.with_room(need)
        if room.open_at(now, length) == now
        and room.free_gpus[ANY] - sum(room.free_gpus.get(kind, 0) for kind in wanted) >= need.gpus
    )
    return len(list(islice(free, nodes))) == nodes


def _full(need: Need, nodes: int, rooms: Rooms, waiting: Waiting | None, *, now: float, length: float) -> Availability:
    if rooms.offering(need, usable=True) < nodes:
        return Availability(Chance.LATER, f"not now: {_out_of_service(rooms, need)}")
    opening = rooms.opening(need, nodes, now=now, length=length)
    if waiting is not None:
        last = waiting.last_start
        when = f"; Slurm expects the last of them to start in about {span(last - now)}" if last and last > now else ""
        return Availability(Chance.LATER, f"full, and {_jobs(waiting.jobs)} before you{when}")
    if opening is None or opening == inf:
        return Availability(Chance.LATER, "full, and nothing tells until when")
    if opening <= now:
        return Availability(Chance.LATER, "full: a job is ending just now", starts_at=now)
    return Availability(
        Chance.LATER,
        f"full: about {span(opening - now)} at the latest, if nobody comes before you",
        starts_at=opening,
    )


def _out_of_service(rooms: Rooms, need: Need) -> str:
    out = [room for room in rooms.all if room.offers(need) and not room.usable]
    named = ", ".join(f"{room.name} ({room.reason})" if room.reason else room.name for room in out[:3])
    more = f" and {len(out) - 3} more" if len(out) > 3 else ""
    return f"{'nodes that fit are' if len(out) > 1 else 'the node that fits is'} out of service: {named}{more}"


def _free(rooms: Rooms, need: Need, now: float, length: float) -> str:
    """``6 of 16 K80 free``."""
    if need.exclusive or need.all_memory:
        what, unit = "node", "nodes"
    elif need.gpus:
        what = f"gpu:{need.gpu_type}"
        unit = gpu_name(need.gpu_type or (rooms.types[0] if len(rooms.types) == 1 else ANY))
    elif need.shards:
        what, unit = "shard", "GPU shares"
    else:
        what, unit = "cpu", "cores"
    free, of = rooms.count(what, now, length)
    return f"{free:,} of {of:,} {unit} free"


def gpu_name(gpu_type: str) -> str:
    """A type of GPU as people write it: ``k80`` is K80, ``1g.10gb`` a MIG device."""
    if not gpu_type:
        return "GPUs"
    if re.fullmatch(r"\d+[gc]\.\d+gb.*", gpu_type):
        return f"MIG devices {gpu_type}"
    return gpu_type.upper() if re.fullmatch(r"[a-z]{1,4}\d+[a-z]*", gpu_type) else gpu_type


def _jobs(count: int) -> str:
    return "1 job waits" if count == 1 else f"{count:,} jobs wait"


def _not_before(kept: Reservation, now: float) -> Availability:
    start, today = (datetime.fromtimestamp(moment).astimezone() for moment in (kept.start or now, now))
    days = (start.date() - today.date()).days
    day = "at" if days == 0 else "tomorrow at" if days == 1 else f"on {start:%Y-%m-%d} at"
    word = "not yet" if days == 0 else "not today"
    return Availability(
        Chance.LATER,
        f"{word}: reservation {kept.name} starts {day} {start:%H:%M}",
        starts_at=kept.start,
        field="slurm.reservation",
    )
