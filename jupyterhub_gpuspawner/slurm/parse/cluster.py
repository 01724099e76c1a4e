"""``scontrol show node -d -o``, ``show partition -o`` and ``show reservation -o``: the cluster. Pure."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from jupyterhub_gpuspawner.cluster.node_state import NodeState
from jupyterhub_gpuspawner.cluster.snapshot import Partition, Reservation, Unread
from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.slurm.parse import records
from jupyterhub_gpuspawner.slurm.parse.records import (
    Layout,
    Memo,
    default_per_gpu,
    epoch,
    fields,
    ignored,
    memory,
    present,
    read,
    read_columns,
    words,
)
from jupyterhub_gpuspawner.table import Table
from jupyterhub_gpuspawner.units import expand_nodelist, parse_walltime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from jupyterhub_gpuspawner.slurm.parse.records import Notice

T = TypeVar("T")


def parse_nodes(text: str, notice: Notice = ignored) -> Table[NodeState]:
    """Every node of ``scontrol show node -d -o``; GresUsed requires ``-d``.

    A node with a field that is not understood is left out, so that nothing relies on it, and reported to ``notice``.
    Raises SlurmOutputError if the answer lists no nodes, or none is understood.
    """
    columns = read_columns(_rows(text), _NodeReader(), "node", lambda row: row.NodeName, notice)
    return Table(NodeState, columns) if columns else Table.of(NodeState, ())


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


class _Row(NamedTuple):
    """The texts of one node, by Slurm's names of the fields."""

    NodeName: str
    NodeAddr: str
    State: str
    CPUTot: str
    CPUEfctv: str
    CPUAlloc: str
    RealMemory: str
    AllocMem: str
    MemSpecLimit: str
    Gres: str
    GresUsed: str
    ActiveFeatures: str
    AvailableFeatures: str
    Partitions: str
    Reason: str
    Sockets: str
    CoresPerSocket: str


def _rows(text: str) -> Iterator[_Row]:
    """The nodes of an answer, each once."""
    layout, seen = Layout(_Row._fields), set()
    for part in _parts(text, "NodeName"):
        row = _Row(*layout.row(part))
        if not row.NodeName and part.strip():
            raise _no_record("NodeName", part)
        if row.NodeName and row.NodeName not in seen:
            seen.add(row.NodeName)
            yield row


def _records(text: str, first: str) -> list[dict[str, str]]:
    """The records of an answer by their first field; a repeated name comes from text that imitates a record."""
    found: dict[str, dict[str, str]] = {}
    for part in _parts(text, first):
        record = fields(part)
        if record.get(first):
            found.setdefault(record[first], record)
        elif part.strip():
            raise _no_record(first, part)
    return list(found.values())


def _parts(text: str, first: str) -> Iterator[str]:
    """The text from each line that begins with ``first=`` to the next; before them, what does not belong there."""
    begin, mark = 0, f"\n{first}="
    while begin < len(text):
        end = text.find(mark, begin) + 1 or len(text)
        yield text[begin:end]
        begin = end


def _no_record(first: str, part: str) -> SlurmOutputError:
    return SlurmOutputError(f"scontrol gave an answer that does not start with {first}=.", raw=part)


def _number(record: Mapping[str, str], key: str, default: int = 0) -> int:
    value = present(record.get(key))
    return read(int, key, value) if value else default


def _count(record: Mapping[str, str], key: str) -> int | None:
    value = present(record.get(key))
    return None if not value or value == "UNLIMITED" else read(int, key, value)


class _NodeReader:
    """Reads nodes column by column: ten thousand of them have few different values."""

    def __init__(self) -> None:
        self._word = Memo(present)
        self._words = Memo(words)
        self._states = Memo(_states)
        self._gres = Memo(partial(records.gres, "Gres"))
        self._gres_used = Memo(partial(records.gres, "GresUsed"))

    def __call__(self, rows: Sequence[_Row]) -> Iterable[Iterable[Any]]:
        """The columns of :class:`NodeState` for these rows; raises SlurmOutputError if one is at fault."""
        for row in rows:
            if not (row.State and row.CPUTot):
                raise SlurmOutputError(
                    f"scontrol did not report State and CPUTot of node {row.NodeName}.", raw=repr(row), field="State"
                )
        column = _Row._make(zip(*rows, strict=True))
        total, effective = _numbers("CPUTot", column.CPUTot), _numbers("CPUEfctv", column.CPUEfctv)
        sockets, cores = _numbers("Sockets", column.Sockets), _numbers("CoresPerSocket", column.CoresPerSocket)
        memory = _numbers("RealMemory", column.RealMemory)
        kept = _numbers("MemSpecLimit", column.MemSpecLimit)
        features = list(map(self._words.__getitem__, column.ActiveFeatures))
        possible = map(self._words.__getitem__, column.AvailableFeatures)
        return (
            column.NodeName,
            map(self._word.__getitem__, column.NodeAddr),
            map(self._states.__getitem__, column.State),
            [for_jobs or cpus for for_jobs, cpus in zip(effective, total, strict=True)],
            _numbers("CPUAlloc", column.CPUAlloc),
            [max(0, real - of_system) for real, of_system in zip(memory, kept, strict=True)],
            _numbers("AllocMem", column.AllocMem),
            map(self._gres.__getitem__, column.Gres),
            map(self._gres_used.__getitem__, column.GresUsed),
            features,
            map(_others, possible, features),
            map(self._words.__getitem__, column.Partitions),
            map(self._word.__getitem__, column.Reason),
            map(_cpus_per_core, total, sockets, cores),
            cores,
        )


def _cpus_per_core(cpus: int, sockets: int, cores_per_socket: int) -> int:
    return max(1, cpus // (sockets * cores_per_socket)) if sockets and cores_per_socket else 1


def _numbers(key: str, texts: Iterable[str]) -> list[int]:
    return [int(text) if text.isdecimal() else _number({key: text}, key) for text in texts]


def _others(possible: tuple[str, ...], active: tuple[str, ...]) -> tuple[str, ...]:
    return () if possible == active else tuple(name for name in possible if name not in active)


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
        qos=present(record.get("QoS")),
        exclusive=record.get("OverSubscribe") == "EXCLUSIVE",
        jobs_per_cpu=value("OverSubscribe", _jobs_per_cpu, 1),
        priority_tier=value("PriorityTier", partial(_number, default=1), 1),
        preemptable=bool({"CANCEL", "REQUEUE"} & set(words(record.get("PreemptMode")))),
        default_cpus_per_gpu=value("JobDefaults", _default_per_gpu("DefCpuPerGPU"), None),
        default_memory_per_gpu_mib=value("JobDefaults", _default_per_gpu("DefMemPerGPU"), None),
        unread=tuple(unread),
    )


def _nodes(record: Mapping[str, str], key: str) -> tuple[str, ...]:
    return read(expand_nodelist, key, record.get(key, ""))


def _walltime(record: Mapping[str, str], key: str) -> int | None:
    value = present(record.get(key))
    return read(parse_walltime, key, value) if value else None


def _memory(record: Mapping[str, str], key: str) -> int | None:
    return memory(key, record.get(key))


def _jobs_per_cpu(record: Mapping[str, str], key: str) -> int:
    """``FORCE:4``: each CPU is given to four jobs without their asking for it (slurm.conf(5))."""
    name, _, number = present(record.get(key)).partition(":")
    return read(int, key, number or "4") if name == "FORCE" else 1


def _default_per_gpu(name: str) -> Callable[[Mapping[str, str], str], int | None]:
    return lambda record, key: default_per_gpu(record.get(key), name)


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
