"""``scontrol show node -d -o``, ``show partition -o`` and ``show reservation -o``: the cluster. Pure."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from jupyterhub_gpuspawner.cluster.node_state import NodeState
from jupyterhub_gpuspawner.cluster.snapshot import Partition, Reservation, Unread
from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.slurm.parse import records
from jupyterhub_gpuspawner.slurm.parse.records import each_read, epoch, fields, ignored, memory, present, read, words
from jupyterhub_gpuspawner.units import expand_nodelist, parse_walltime

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jupyterhub_gpuspawner.slurm.parse.records import Notice

T = TypeVar("T")


def parse_nodes(text: str, notice: Notice = ignored) -> tuple[NodeState, ...]:
    """Every node of ``scontrol show node -d -o``; GresUsed requires ``-d``.

    A node with a field that is not understood is left out, so that nothing relies on it, and reported to ``notice``.
    Raises SlurmOutputError if the answer lists no nodes, or none is understood.
    """
    return each_read(_records(text, "NodeName"), _node, "node", lambda record: record["NodeName"], notice)


def parse_partitions(text: str, notice: Notice = ignored) -> tuple[Partition, ...]:
    """Every partition of ``scontrol show partition -o``; with ``-a`` also hidden ones.

    A partition with fields that are not understood is kept, see :attr:`Partition.unread`, and reported to ``notice``.
    Raises SlurmOutputError if the answer lists no partitions.
    """
    found = tuple(_partition(record) for record in _records(text, "PartitionName"))
    for partition in found:
        for key in partition.unread:
            notice(Unread("partition", partition.name, key, kept=True))
    return found


def parse_reservations(text: str, notice: Notice = ignored) -> tuple[Reservation, ...]:
    """Every reservation of ``scontrol show reservation -o``; none for 'No reservations in the system'.

    One with a field that is not understood is left out and reported to ``notice``. Raises SlurmOutputError if the
    answer lists no reservations.
    """
    if text.strip() == "No reservations in the system":
        return ()
    records, found = _records(text, "ReservationName"), []
    for record in records:
        try:
            found.append(_reservation(record))
        except SlurmOutputError as error:  # even if it is the only one, which must not hide the cluster
            notice(Unread("reservation", record["ReservationName"], error.field))
    return tuple(found)


def _records(text: str, first: str) -> list[dict[str, str]]:
    """The records of an answer by their first field; a repeated name comes from text that imitates a record."""
    found: dict[str, dict[str, str]] = {}
    for part in re.split(rf"^(?={first}=)", text, flags=re.MULTILINE):
        record = fields(part)
        if record.get(first):
            found.setdefault(record[first], record)
        elif part.strip():
            raise SlurmOutputError(f"scontrol gave an answer that does not start with {first}=.", raw=part)
    return list(found.values())


def _number(record: Mapping[str, str], key: str, default: int = 0) -> int:
    value = present(record.get(key))
    return read(int, key, value) if value else default


def _count(record: Mapping[str, str], key: str) -> int | None:
    value = present(record.get(key))
    return None if not value or value == "UNLIMITED" else read(int, key, value)


def _node(record: Mapping[str, str]) -> NodeState:
    name = record["NodeName"]
    if "State" not in record or "CPUTot" not in record:
        raise SlurmOutputError(
            f"scontrol did not report State and CPUTot of node {name}.", raw=repr(dict(record)), field="State"
        )
    return NodeState(
        name=name,
        address=present(record.get("NodeAddr")),
        states=_states(record["State"]),
        cpus=_number(record, "CPUEfctv") or _number(record, "CPUTot"),
        cpus_allocated=_number(record, "CPUAlloc"),
        memory_mib=_number(record, "RealMemory"),
        memory_allocated_mib=_number(record, "AllocMem"),
        gres=records.gres("Gres", record.get("Gres", "")),
        gres_used=records.gres("GresUsed", record.get("GresUsed", "")),
        features=words(record.get("ActiveFeatures")),
        other_features=tuple(
            name for name in words(record.get("AvailableFeatures")) if name not in words(record.get("ActiveFeatures"))
        ),
        partitions=words(record.get("Partitions")),
        reason=present(record.get("Reason")),
    )


_SUFFIXES = {"*": "NOT_RESPONDING", "~": "POWERED_DOWN", "#": "POWERING_UP", "!": "POWER_DOWN", "%": "POWERING_DOWN"}
_SUFFIXES |= {"$": "MAINTENANCE", "@": "REBOOT_REQUESTED", "^": "REBOOT_ISSUED", "-": "PLANNED"}


@lru_cache(maxsize=1024)
def _states(text: str) -> frozenset[str]:
    """``DOWN+NOT_RESPONDING``, or with the suffixes that older versions print: ``DOWN*+DRAIN``."""
    found = set()
    for word in text.upper().split("+"):
        bare = word.rstrip("".join(_SUFFIXES))
        found |= {bare, *(_SUFFIXES[mark] for mark in word[len(bare) :])}
    return frozenset(found - {""})


def _partition(record: Mapping[str, str]) -> Partition:
    unread: list[str] = []

    def value(key: str, reader: Callable[[Mapping[str, str], str], T], default: T) -> T:
        try:
            return reader(record, key)
        except SlurmOutputError:
            unread.append(key)
            return default

    return Partition(
        name=record["PartitionName"],
        state=present(record.get("State")),
        default=record.get("Default") == "YES",
        hidden=record.get("Hidden") == "YES",
        nodes=value("Nodes", _nodes, ()),
        max_time=value("MaxTime", _walltime, None),
        default_time=value("DefaultTime", _walltime, None),
        min_nodes=value("MinNodes", _number, 0),
        max_nodes=value("MaxNodes", _count, None),
        max_cpus_per_node=value("MaxCPUsPerNode", _count, None),
        max_memory_per_node_mib=value("MaxMemPerNode", _memory, None),
        max_memory_per_cpu_mib=value("MaxMemPerCPU", _memory, None),
        default_memory_per_cpu_mib=value("DefMemPerCPU", _memory, None),
        default_memory_per_node_mib=value("DefMemPerNode", _memory, None),
        allow_groups=words(record.get("AllowGroups"), everyone="ALL"),
        allow_accounts=words(record.get("AllowAccounts"), everyone="ALL"),
        deny_accounts=words(record.get("DenyAccounts")),
        allow_qos=words(record.get("AllowQos"), everyone="ALL"),
        deny_qos=words(record.get("DenyQos")),
        needs_reservation=record.get("ReqResv") == "YES",
        unread=tuple(unread),
    )


def _nodes(record: Mapping[str, str], key: str) -> tuple[str, ...]:
    return read(expand_nodelist, key, record.get(key, ""))


def _walltime(record: Mapping[str, str], key: str) -> int | None:
    value = present(record.get(key))
    return read(parse_walltime, key, value) if value else None


def _memory(record: Mapping[str, str], key: str) -> int | None:
    return memory(key, record.get(key))


def _reservation(record: Mapping[str, str]) -> Reservation:
    return Reservation(
        name=record["ReservationName"],
        start=epoch(record.get("StartTime"), "StartTime"),
        end=epoch(record.get("EndTime"), "EndTime"),
        nodes=_nodes(record, "Nodes"),
        partition=present(record.get("PartitionName")),
        flags=frozenset(words(record.get("Flags"))),
        users=words(record.get("Users")),
        accounts=words(record.get("Accounts")),
        groups=words(record.get("Groups")),
    )
