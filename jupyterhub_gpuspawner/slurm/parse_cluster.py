"""``scontrol show node -d -o``, ``show partition -o`` and ``show reservation -o``: the cluster. Pure."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.cluster import NodeState, Partition, Reservation
from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.slurm import parse
from jupyterhub_gpuspawner.slurm.parse import epoch, fields, present, read, words
from jupyterhub_gpuspawner.units import expand_nodelist, parse_memory, parse_walltime

if TYPE_CHECKING:
    from collections.abc import Mapping


def parse_nodes(text: str) -> tuple[NodeState, ...]:
    """Every node of ``scontrol show node -d -o``; GresUsed is there only with ``-d``. Raises SlurmOutputError."""
    return tuple(_node(record) for record in _records(text, "NodeName"))


def parse_partitions(text: str) -> tuple[Partition, ...]:
    """Every partition of ``scontrol show partition -o``; with ``-a`` the hidden ones too. Raises SlurmOutputError."""
    return tuple(_partition(record) for record in _records(text, "PartitionName"))


def parse_reservations(text: str) -> tuple[Reservation, ...]:
    """Every reservation of ``scontrol show reservation -o``; none for 'No reservations in the system'."""
    if text.strip() == "No reservations in the system":
        return ()
    return tuple(_reservation(record) for record in _records(text, "ReservationName"))


def _records(text: str, first: str) -> list[dict[str, str]]:
    found = []
    for part in re.split(rf"^(?={first}=)", text, flags=re.MULTILINE):
        record = fields(part)
        if record.get(first):
            found.append(record)
        elif part.strip():
            raise SlurmOutputError(f"scontrol gave an answer that does not start with {first}=.", raw=part)
    return found


def _number(record: Mapping[str, str], key: str, default: int = 0) -> int:
    value = present(record.get(key))
    return read(int, key, value) if value else default


def _count(record: Mapping[str, str], key: str) -> int | None:
    value = present(record.get(key))
    return None if not value or value == "UNLIMITED" else read(int, key, value)


def _node(record: Mapping[str, str]) -> NodeState:
    name = record["NodeName"]
    if "State" not in record or "CPUTot" not in record:
        raise SlurmOutputError(f"scontrol did not tell State and CPUTot of node {name}.", raw=repr(dict(record)))
    return NodeState(
        name=name,
        address=present(record.get("NodeAddr")),
        states=_states(record["State"]),
        cpus=_number(record, "CPUEfctv") or _number(record, "CPUTot"),
        cpus_allocated=_number(record, "CPUAlloc"),
        sockets=_number(record, "Sockets", 1),
        cores_per_socket=_number(record, "CoresPerSocket", 1),
        threads_per_core=_number(record, "ThreadsPerCore", 1),
        memory_mib=_number(record, "RealMemory"),
        memory_allocated_mib=_number(record, "AllocMem"),
        gres=parse.gres("Gres", record.get("Gres", "")),
        gres_used=parse.gres("GresUsed", record.get("GresUsed", "")),
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
    return Partition(
        name=record["PartitionName"],
        state=present(record.get("State")),
        default=record.get("Default") == "YES",
        hidden=record.get("Hidden") == "YES",
        nodes=read(expand_nodelist, "Nodes", record.get("Nodes", "")),
        max_time=_walltime(record, "MaxTime"),
        default_time=_walltime(record, "DefaultTime"),
        min_nodes=_number(record, "MinNodes"),
        max_nodes=_count(record, "MaxNodes"),
        max_cpus_per_node=_count(record, "MaxCPUsPerNode"),
        max_memory_per_node_mib=_memory(record, "MaxMemPerNode"),
        allow_groups=words(record.get("AllowGroups"), everyone="ALL"),
        allow_accounts=words(record.get("AllowAccounts"), everyone="ALL"),
        deny_accounts=words(record.get("DenyAccounts")),
        allow_qos=words(record.get("AllowQos"), everyone="ALL"),
        deny_qos=words(record.get("DenyQos")),
        root_allowed=record.get("DisableRootJobs") != "YES",
        needs_reservation=record.get("ReqResv") == "YES",
    )


def _walltime(record: Mapping[str, str], key: str) -> int | None:
    value = present(record.get(key))
    return read(parse_walltime, key, value) if value else None


def _memory(record: Mapping[str, str], key: str) -> int | None:
    value = present(record.get(key))
    return None if not value or value == "UNLIMITED" else read(parse_memory, key, value)


def _reservation(record: Mapping[str, str]) -> Reservation:
    return Reservation(
        name=record["ReservationName"],
        start=epoch(record.get("StartTime")),
        end=epoch(record.get("EndTime")),
        nodes=read(expand_nodelist, "Nodes", record.get("Nodes", "")),
        partition=present(record.get("PartitionName")),
        flags=frozenset(words(record.get("Flags"))),
        users=words(record.get("Users")),
        accounts=words(record.get("Accounts")),
        groups=words(record.get("Groups")),
    )
