"""Answers of ``scontrol show``: the cluster, its configuration, and single jobs. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Any, Literal

from jupyterhub_gpuspawner import units
from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.slurm.job import Job, Phase, end_of, phase_of
from jupyterhub_gpuspawner.slurm.snapshot import NodeState, Partition, Reservation, SlurmConfig, Table, Unread
from jupyterhub_gpuspawner.slurm.text import (
    Notice,
    default_per_gpu,
    epoch,
    fields,
    gres,
    ignored,
    memory,
    nodes,
    present,
    read,
    readable,
    words,
)
from jupyterhub_gpuspawner.units import NodeAllocation, parse_cpulist, parse_walltime

# ``scontrol show node -d -o``, ``show partition -o`` and ``show reservation -o``: the cluster.


def parse_nodes(text: str, notice: Notice = ignored) -> Table[NodeState]:
    """Every node of ``scontrol show node -d -o``; GresUsed requires ``-d``.

    A node with a field that is not understood is left out, so that nothing relies on it, and reported to ``notice``.
    Raises SlurmOutputError if the answer lists no nodes, or none is understood.
    """
    return Table.of(NodeState, readable(_records(text, "NodeName"), _node, "node", itemgetter("NodeName"), notice))


def parse_partitions(text: str, notice: Notice = ignored) -> tuple[Partition, ...]:
    """Every partition of ``scontrol show partition -o``; with ``-a`` also hidden ones.

    A partition with fields that are not understood is kept, see :attr:`Partition.unread`, and reported to ``notice``.
    Raises SlurmOutputError if the answer lists no partitions.
    """
    partitions = tuple(_partition(record) for record in _records(text, "PartitionName"))
    for partition in partitions:
        for key in partition.unread:
            notice(Unread("partition", partition.name, key, partial=True))
    return partitions


def parse_reservations(text: str, notice: Notice = ignored) -> tuple[Reservation, ...]:
    """Every reservation of ``scontrol show reservation -o``; none for 'No reservations in the system'.

    One with a field that is not understood is left out and reported to ``notice``. Raises SlurmOutputError if the
    answer lists no reservations.
    """
    if text.strip() == "No reservations in the system":
        return ()
    reservations = []
    for record, part in _records_with_text(text, "ReservationName"):
        try:
            reservations.append(_reservation(record, part))
        except SlurmOutputError as error:  # even if it is the only one, which must not hide the cluster
            notice(Unread("reservation", record["ReservationName"], error.field))
    return tuple(reservations)


def _records(text: str, first: str) -> Iterator[dict[str, str]]:
    """The records of an answer by their first field; a repeated name comes from text that imitates a record."""
    return (record for record, _ in _records_with_text(text, first))


def _records_with_text(text: str, first: str) -> Iterator[tuple[dict[str, str], str]]:
    names = set()
    for part in _parts(text, first):
        record = fields(part)
        name = record.get(first)
        if not name and part.strip():
            raise SlurmOutputError(f"scontrol gave an answer that does not start with {first}=.", raw=part)
        if name and name not in names:
            names.add(name)
            yield record, part


def _parts(text: str, first: str) -> Iterator[str]:
    """The text from each line that begins with ``first=`` to the next; before them, what does not belong there."""
    begin, mark = 0, f"\n{first}="
    while begin < len(text):
        end = text.find(mark, begin) + 1 or len(text)
        yield text[begin:end]
        begin = end


def _number(record: Mapping[str, str], key: str) -> int:
    text = record.get(key, "")
    if text.isdecimal():  # of most, in answers about thousands of nodes
        return int(text)
    value = present(text)
    return read(int, key, value) if value else 0


def _node(record: Mapping[str, str]) -> NodeState:
    if not (record.get("State") and record.get("CPUTot")):
        name = record["NodeName"]
        raise SlurmOutputError(
            f"scontrol did not report State and CPUTot of node {name}.", raw=repr(record), field="State"
        )
    cpus, sockets, cores = (_number(record, key) for key in ("CPUTot", "Sockets", "CoresPerSocket"))
    features, possible = words(record.get("ActiveFeatures")), words(record.get("AvailableFeatures"))
    return NodeState(
        name=record["NodeName"],
        address=present(record.get("NodeAddr")),
        states=_states(record["State"]),
        cpus=_number(record, "CPUEfctv") or cpus,
        cpus_allocated=_number(record, "CPUAlloc"),
        memory_mib=max(0, _number(record, "RealMemory") - _number(record, "MemSpecLimit")),
        memory_allocated_mib=_number(record, "AllocMem"),
        gres=gres("Gres", record.get("Gres", "")),
        gres_used=gres("GresUsed", record.get("GresUsed", "")),
        features=features,
        other_features=() if possible == features else tuple(name for name in possible if name not in features),
        partitions=words(record.get("Partitions")),
        reason=present(record.get("Reason")),
        cpus_per_core=max(1, cpus // ((sockets or 1) * cores)) if cores else 1,
        socket_cores=cores,
        hardware=_hardware(*map(record.get, _HARDWARE)),
    )


_HARDWARE = (
    *("CPUTot", "Boards", "Sockets", "CoresPerSocket", "ThreadsPerCore"),
    *("RealMemory", "MemSpecLimit", "CoreSpecCount", "CPUSpecList", "TmpDisk", "Weight"),
)
"""Parameters of a node that slurm.conf gives it."""


@lru_cache(maxsize=1024)
def _hardware(*texts: str | None) -> tuple[tuple[str, str], ...]:
    """The values of these parameters, which thousands of nodes share; without those that are absent."""
    return tuple((key, text) for key, text in zip(_HARDWARE, map(present, texts), strict=True) if text)


_SUFFIXES = {"*": "NOT_RESPONDING", "~": "POWERED_DOWN", "#": "POWERING_UP", "!": "POWER_DOWN", "%": "POWERING_DOWN"}
_SUFFIXES |= {"$": "MAINTENANCE", "@": "REBOOT_REQUESTED", "^": "REBOOT_ISSUED", "-": "PLANNED"}


@lru_cache(maxsize=1024)
def _states(text: str) -> frozenset[str]:
    """``DOWN+NOT_RESPONDING``, or with the suffixes that older versions print: ``DOWN*+DRAIN``."""
    states = set()
    for word in text.upper().split("+"):
        bare = word.rstrip("".join(_SUFFIXES))
        states |= {bare, *(_SUFFIXES[mark] for mark in word[len(bare) :])}
    return frozenset(states - {""})


def _yes(_key: str, text: str) -> bool:
    return text == "YES"


def _count(key: str, text: str) -> int | None:
    value = present(text)
    return None if not value or value == "UNLIMITED" else read(int, key, value)


def _walltime(key: str, text: str) -> int | None:
    value = present(text)
    return read(parse_walltime, key, value) if value else None


def _jobs_per_cpu(key: str, text: str) -> int:
    """``FORCE:4`` and ``YES:4``: each CPU is given to four jobs (slurm.conf(5))."""
    name, _, number = present(text).partition(":")
    return read(int, key, number or "4") if name in ("FORCE", "YES") else 1


def _allowed(_key: str, text: str) -> tuple[str, ...]:
    return words(text, everyone="ALL")


_PARTITION: Mapping[str, tuple[str, Callable[[str, str], Any]]] = {
    "state": ("State", lambda _, text: present(text)),
    "default": ("Default", _yes),
    "hidden": ("Hidden", _yes),
    "nodes": ("Nodes", nodes),
    "max_time": ("MaxTime", _walltime),
    "default_time": ("DefaultTime", _walltime),
    "min_nodes": ("MinNodes", lambda key, text: _count(key, text) or 0),
    "max_nodes": ("MaxNodes", _count),
    "max_cpus_per_node": ("MaxCPUsPerNode", _count),
    "max_memory_per_node_mib": ("MaxMemPerNode", memory),
    "max_memory_per_cpu_mib": ("MaxMemPerCPU", memory),
    "default_memory_per_cpu_mib": ("DefMemPerCPU", memory),
    "default_memory_per_node_mib": ("DefMemPerNode", memory),
    "allow_groups": ("AllowGroups", _allowed),
    "allow_accounts": ("AllowAccounts", _allowed),
    "deny_accounts": ("DenyAccounts", lambda _, text: words(text)),
    "allow_qos": ("AllowQos", _allowed),
    "deny_qos": ("DenyQos", lambda _, text: words(text)),
    "needs_reservation": ("ReqResv", _yes),
    "jobs_per_cpu": ("OverSubscribe", _jobs_per_cpu),
    "shares_cpus": ("OverSubscribe", lambda _, text: text.startswith("FORCE")),
    "priority_tier": ("PriorityTier", lambda key, text: read(int, key, present(text) or "1")),
    "preemptable": ("PreemptMode", lambda _, text: not {"CANCEL", "REQUEUE"}.isdisjoint(words(text))),
    "suspendable": ("PreemptMode", lambda _, text: "SUSPEND" in words(text)),
    "default_cpus_per_gpu": ("JobDefaults", lambda _, text: default_per_gpu(text, "DefCpuPerGPU")),
    "default_memory_per_gpu_mib": ("JobDefaults", lambda _, text: default_per_gpu(text, "DefMemPerGPU")),
}
"""For each field of :class:`Partition` the parameter that it is read from, and how."""
_NO_MATTER = """
    AllocNodes DisableRootJobs GraceTime LLN NodeSets OverTimeLimit PowerDownOnIdle PriorityJobFactor QoS
    ResumeTimeout SuspendTime SuspendTimeout Topology TotalCPUs TotalNodes TRES TRESBillingWeights Alternate
"""
"""Parameters that decide not when a job starts, or that the trial of a job (sbatch --test-only) knows alone."""
_NOT_NOW = frozenset({"Exclusive", "ExclusiveTopo", "MaxCPUsPerSocket", "RootOnly", "SelectTypeParameters"})
"""Parameters of which nobody says what follows, so that where they are set a start is not promised."""
_NOTHING = frozenset({"", "NO", "NONE", "UNLIMITED", "USER", "NODE", "0"})
"""Values with which these change nothing, or that another field says."""
PARTITION_PARAMETERS = frozenset(
    ("PartitionName", "ExclusiveUser", *(key for key, _ in _PARTITION.values()), *_NO_MATTER.split(), *_NOT_NOW)
)
"""What ``scontrol show partition`` prints of a partition in Slurm 22.05 to 26.05."""


def _partition(record: Mapping[str, str]) -> Partition:
    values: dict[str, Any] = {}
    unread = dict[str, None]()
    for field, (key, reader) in _PARTITION.items():
        try:
            values[field] = reader(key, record.get(key, ""))
        except SlurmOutputError:
            unread[key] = None
    exclusive = record.get("Exclusive")
    return Partition(
        name=record["PartitionName"],
        exclusive=record.get("OverSubscribe") == "EXCLUSIVE" or exclusive == "NODE",
        one_user=record.get("ExclusiveUser") == "YES" or exclusive == "USER",
        unread=tuple(unread),
        not_modelled=tuple(
            sorted(key for key in _NOT_NOW & record.keys() if present(record[key]).upper() not in _NOTHING)
        ),
        parameters=record,
        **values,
    )


_CORES = re.compile(r"\bNodeName=\S+ CoreIDs=(\S+)")


def _reservation(record: Mapping[str, str], text: str) -> Reservation:
    return Reservation(
        name=record["ReservationName"],
        start=epoch(record.get("StartTime"), "StartTime"),
        end=epoch(record.get("EndTime"), "EndTime"),
        nodes=nodes("Nodes", record.get("Nodes", "")),
        partial="CoreIDs" in record,
        core_count=_number(record, "CoreCnt"),
        cores=tuple(len(read(parse_cpulist, "CoreIDs", cores)) for cores in _CORES.findall(text)),
        licenses=present(record.get("Licenses")),
        flags=frozenset(words(record.get("Flags"))),
        users=words(record.get("Users")),
        accounts=words(record.get("Accounts")),
        groups=words(record.get("Groups")),
    )


# ``scontrol show config``: the parts of slurm.conf(5) that a hub needs.

_LINE = re.compile(r"^(?P<key>[A-Za-z][\w/]*) *= ?(?P<value>.*)$", re.ASCII | re.MULTILINE)
_AS_OF = re.compile(r"Configuration data as of ([0-9]+)\s*$", re.MULTILINE)
_ACCOUNT = re.compile(r"(?P<name>.*)\((?P<uid>[0-9]+)\)")


def parse_config(text: str) -> SlurmConfig:
    """Parse ``scontrol show config``; raises SlurmOutputError if PrivateData is missing."""
    values = {match["key"]: match["value"].strip() for match in _LINE.finditer(text)}
    if "PrivateData" not in values:
        raise SlurmOutputError("scontrol show config did not report PrivateData.", raw=text, field="PrivateData")
    private = {word.strip().lower() for word in words(values["PrivateData"])} - {"none"}
    # mcs(5): jobs of another security label are hidden likewise
    if "privatedata" in words(values.get("MCSParameters")) and present(values.get("MCSPlugin")) not in ("", "mcs/none"):
        private.add("jobs")
    account = _ACCOUNT.fullmatch(values.get("SlurmUser", ""))
    storage = present(values.get("AccountingStorageType"))
    selected = values.get("SelectTypeParameters", "CR_CORE_MEMORY").upper()
    return SlurmConfig(
        version=values.get("SLURM_VERSION", ""),
        parameters=values,
        private_data=frozenset(private),
        slurm_uid=int(account["uid"]) if account is not None else None,
        accounting=storage not in ("", "accounting_storage/none"),
        accounting_enforced=frozenset(words(values.get("AccountingStorageEnforce"))) - {"none"},
        cluster_name=present(values.get("ClusterName")),
        answered_at=_answered_at(text),
        resume_timeout=parameter_seconds(values, "ResumeTimeout") if present(values.get("ResumeProgram")) else None,
        default_memory_per_cpu_mib=memory("DefMemPerCPU", values.get("DefMemPerCPU")),
        default_memory_per_node_mib=memory("DefMemPerNode", values.get("DefMemPerNode")),
        max_memory_per_cpu_mib=memory("MaxMemPerCPU", values.get("MaxMemPerCPU")),
        max_memory_per_node_mib=memory("MaxMemPerNode", values.get("MaxMemPerNode")),
        default_memory_per_gpu_mib=default_per_gpu(values.get("JobDefaults"), "DefMemPerGPU"),
        default_cpus_per_gpu=default_per_gpu(values.get("JobDefaults"), "DefCpuPerGPU"),
        cpu_unit=_cpu_unit(values.get("SelectType", ""), selected),
        shards_of_several_gpus="MULTIPLE_SHARING_GRES_PJ" in selected,
        preemption=_PREEMPTION.get(values.get("PreemptType", ""), ""),
        enforces_limits_of_all=values.get("EnforcePartLimits") == "ALL",
        memory_is_allocated="MEMORY" in selected,
    )


_PREEMPTION: Mapping[str, Literal["partition", "qos"]] = {
    "preempt/partition_prio": "partition",
    "preempt/qos": "qos",
}


def _answered_at(text: str) -> float | None:
    """The time in the first line, which is in seconds since the epoch with SLURM_TIME_FORMAT=%s."""
    match = _AS_OF.match(text)
    return float(match[1]) if match is not None else None


def parameter_seconds(values: Mapping[str, str], key: str) -> int | None:
    """The seconds of a parameter such as ``60 sec``; None where it is not reported."""
    seconds = re.match(r"[0-9]+", values.get(key, ""))
    return int(seconds[0]) if seconds is not None else None


def parse_licenses(text: str) -> dict[str, int]:
    """How many there are of each licence in ``scontrol show licenses -o``; raises SlurmOutputError."""
    records = [fields(line) for line in text.splitlines() if line.startswith("LicenseName=")]
    return {record["LicenseName"]: read(int, "Total", record.get("Total", "")) for record in records}


def _cpu_unit(select: str, parameters: str) -> Literal["cpu", "core", "socket", "node"]:
    if select == "select/linear":
        return "node"
    if "CR_SOCKET" in parameters:
        return "socket"
    return "cpu" if "CR_CPU" in parameters else "core"


# ``scontrol show job -d -o``: the details of one job, or what every job holds on its nodes.
#
# Name, paths and comment in this answer are chosen by the owner and unescaped. A record in which a required field
# occurs twice is rejected, since it is unclear which one is real.

_NEEDED = (
    "UserId",
    "JobState",
    "Reason",
    "Restarts",
    "ExitCode",
    "TimeLimit",
    "StartTime",
    "EndTime",
    "Partition",
    "NodeList",
    "CoreSpec",
    "MinCPUsNode",
)
_OPTIONAL = ("BatchHost", "StdErr", "StdOut", "Comment", "Deadline", "TimeMin", "MinMemoryNode")
_RECORD = re.compile(r"^(?=JobId=\d+ )", re.MULTILINE)
_FIRST = re.compile(r"JobId=(\d+) ", re.ASCII)
_SPECIALISED = "ThreadSpec"
"""What a job with ``--thread-spec`` has in the place of CoreSpec."""
_ALLOCATED = re.compile(rf"(?<=\s)(?:CoreSpec|{_SPECIALISED}|MinCPUsNode)=", re.ASCII)
_KEY = re.compile(r"(?<=\s)(" + "|".join((*_NEEDED, *_OPTIONAL, _SPECIALISED)) + r")=", re.ASCII)
_VALUE_ENDS = re.compile(r"\s+[A-Za-z][\w/:]*=|\s*\Z", re.ASCII)
_SLUID = re.compile(r" SLUID=\S+ $", re.ASCII)
"""Printed between a job's name and its owner since 26.05."""


def parse_job(text: str, job_id: str) -> Job | None:
    """The job ``job_id`` in the answer; None if it is not there (for an array the answer lists all its tasks).

    Raises SlurmOutputError if a field is missing or occurs twice.
    """
    records = [record for record in _RECORD.split(text) if record.startswith(f"JobId={job_id} ")]
    if len(records) > 1:
        raise SlurmOutputError(f"scontrol listed job {job_id} twice.", raw=text)
    return _detail(records[0], job_id) if records else None


def parse_allocations(text: str) -> dict[str, tuple[NodeAllocation, ...]]:
    """What each job holds on its nodes, by job id; pending and malformed ones are left out.

    Text chosen by an owner can look like fields, or like a whole job. So a job that is listed twice, or has a field
    twice, is left out; whether a job with some id exists at all has to be known from elsewhere.
    """
    by_job: dict[str, tuple[NodeAllocation, ...]] = {}
    odd = set()
    for record in _RECORD.split(text):
        first = _FIRST.match(record)
        if first is None:
            continue
        parts = _ALLOCATED.split(record)
        if first[1] in by_job or len(parts) != 3:
            odd.add(first[1])
            continue
        try:
            by_job[first[1]] = _allocations(parts[1])
        except SlurmOutputError:
            odd.add(first[1])
    return {job_id: parts for job_id, parts in by_job.items() if parts and job_id not in odd}


def _detail(record: str, job_id: str) -> Job:
    starts: dict[str, int] = {}
    for key in _KEY.finditer(record):
        name = "CoreSpec" if key[1] == _SPECIALISED else key[1]
        if name in starts:
            raise SlurmOutputError(
                f"Job {job_id} has {key[1]} twice: its name, a path or its comment imitates it.", raw=record
            )
        starts[name] = key.end()
    missing = [key for key in _NEEDED if key not in starts]
    if missing:
        raise SlurmOutputError(f"scontrol did not report {missing[0]} of job {job_id}.", raw=record)

    def value(key: str) -> str:
        if key not in starts:
            return ""
        end = _VALUE_ENDS.search(record, starts[key])
        return present(record[starts[key] : end.start() if end else None])

    # the name follows the job id, and UserId follows the name
    name = record[record.index("JobName=") + 8 : starts["UserId"] - len("UserId=")] if "JobName=" in record else ""
    user, _, number = value("UserId").partition("(")
    state = value("JobState")
    phase = phase_of(state)
    time_limit = read(_time_limit, "TimeLimit", value("TimeLimit"))
    deadline, shortest = epoch(value("Deadline"), "Deadline"), read(_time_limit, "TimeMin", value("TimeMin"))
    return Job(
        job_id=job_id,
        phase=phase,
        state=state,
        reason=value("Reason").replace("_", " "),
        nodes=value("NodeList"),
        batch_host=value("BatchHost"),
        user=user,
        partition=value("Partition"),
        starts_at=epoch(value("StartTime")),
        ends_at=epoch(value("EndTime")),
        exit_code=value("ExitCode") if phase in (Phase.ENDING, Phase.ENDED) else "",
        end=end_of(state),
        tag=_comment(record, starts),
        name=_SLUID.sub("", name).strip(),
        uid=int(number[:-1]) if number[:-1].isdecimal() and number[:-1].isascii() else None,
        time_limit=time_limit,
        latest_start=None if deadline is None else deadline - (shortest or time_limit or 0),
        memory_mib=memory("MinMemoryNode", value("MinMemoryNode")),
        stdout_path=value("StdOut"),
        allocations=_allocations(record[starts["CoreSpec"] : starts["MinCPUsNode"]]),
    )


def _time_limit(text: str) -> int | None:
    return parse_walltime(text) if text and text != "Partition_Limit" else None


def _comment(record: str, starts: dict[str, int]) -> str:
    """The comment whole: it may hold what looks like a field, and StdErr follows it."""
    if "Comment" not in starts:
        return ""
    end = starts["StdErr"] - len("StdErr=") if "StdErr" in starts else None
    return present(record[starts["Comment"] : end])


def _allocations(text: str) -> tuple[NodeAllocation, ...]:
    return read(units.parse_allocations, "Nodes", text)
