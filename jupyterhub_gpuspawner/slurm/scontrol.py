"""Answers of ``scontrol show``: the cluster, its configuration, and single jobs. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Any, Literal

from jupyterhub_gpuspawner import units
from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.slurm.job import Job, Phase, end_of, phase_of
from jupyterhub_gpuspawner.slurm.snapshot import NodeState, Partition, Reservation, SlurmConfig, Table
from jupyterhub_gpuspawner.slurm.text import (
    Notice,
    UnparsedField,
    epoch,
    fields,
    free_text,
    gres,
    memory,
    no_report,
    number,
    parameters,
    parse_records,
    parse_tres,
    read,
    time_limit,
    value_or_empty,
    values,
    words,
)
from jupyterhub_gpuspawner.units import NodeAllocation, parse_cpulist

# ``scontrol show node -d -o``, ``show partition -o`` and ``show reservation -o``: the cluster.

_BEHIND_COMMENT = ("Extra", "InstanceId", "InstanceType", "ReservationName")
_TEXTS = {
    "NodeName": {
        "OS": free_text("RealMemory"),
        "Reason": free_text("Comment", *_BEHIND_COMMENT, signed=True),
        "Comment": free_text(*_BEHIND_COMMENT),
        "Extra": free_text(*_BEHIND_COMMENT[1:]),
    },
    "PartitionName": {},
    "ReservationName": {"ReservationName": free_text("StartTime"), "Comment": free_text()},
}
"""The free texts of a record by its first parameter."""


def parse_nodes(text: str, notice: Notice = no_report) -> Table[NodeState]:
    """Every node of ``scontrol show node -d -o``; GresUsed requires ``-d``.

    A node with a field that is not understood is left out, so that nothing relies on it, and reported to ``notice``.
    Raises SlurmOutputError if the answer lists no nodes, or none is understood.
    """
    return Table.of(NodeState, parse_records(_records(text, "NodeName"), _node, "node", itemgetter("NodeName"), notice))


def parse_partitions(text: str, notice: Notice = no_report) -> tuple[Partition, ...]:
    """Every partition of ``scontrol show partition -o``; with ``-a`` also hidden ones.

    A partition with fields that are not understood is kept, see :attr:`Partition.unread`, and reported to ``notice``.
    Raises SlurmOutputError if the answer lists no partitions.
    """
    partitions = tuple(_partition(record) for record in _records(text, "PartitionName"))
    for partition in partitions:
        for key in partition.unread:
            notice(UnparsedField("partition", partition.name, key, partial=True))
    return partitions


def parse_reservations(text: str, notice: Notice = no_report) -> tuple[Reservation, ...]:
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
            notice(UnparsedField("reservation", record["ReservationName"], error.field))
    return tuple(reservations)


def _records(text: str, first: str) -> Iterator[dict[str, str]]:
    """The records of an answer by their first field; a repeated name comes from text that imitates a record."""
    return (record for record, _ in _records_with_text(text, first))


def _records_with_text(text: str, first: str) -> Iterator[tuple[dict[str, str], str]]:
    names = set()
    for part in _parts(text, first):
        record = fields(part, _TEXTS[first])
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


def _node(record: Mapping[str, str]) -> NodeState:
    if not (record.get("State") and record.get("CPUTot")):
        name = record["NodeName"]
        raise SlurmOutputError(
            f"scontrol did not report State and CPUTot of node {name}.", raw=repr(record), field="State"
        )

    def size(key: str) -> int:
        return number(key, record.get(key, ""))

    cpus, sockets, cores = map(size, ("CPUTot", "Sockets", "CoresPerSocket"))
    features, possible = words(record.get("ActiveFeatures")), words(record.get("AvailableFeatures"))
    return NodeState(
        name=record["NodeName"],
        address=value_or_empty(record.get("NodeAddr")),
        states=_states(record["State"]),
        cpus=size("CPUEfctv") or cpus,
        cpus_allocated=size("CPUAlloc"),
        memory_mib=max(0, size("RealMemory") - size("MemSpecLimit")),
        memory_allocated_mib=size("AllocMem"),
        gres=gres("Gres", record.get("Gres", "")),
        gres_used=gres("GresUsed", record.get("GresUsed", "")),
        features=features,
        other_features=() if possible == features else tuple(name for name in possible if name not in features),
        partitions=words(record.get("Partitions")),
        reason=value_or_empty(record.get("Reason")),
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
    return tuple((key, text) for key, text in zip(_HARDWARE, map(value_or_empty, texts), strict=True) if text)


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


_NO_MATTER = """
    AllocNodes DisableRootJobs GraceTime LLN NodeSets OverTimeLimit PowerDownOnIdle PriorityJobFactor QoS
    ResumeTimeout SuspendTime SuspendTimeout Topology TotalCPUs TotalNodes TRES TRESBillingWeights Alternate
"""
"""Parameters that decide not when a job starts, or that the trial of a job (sbatch --test-only) knows alone."""
_NOT_NOW = frozenset({"Exclusive", "ExclusiveTopo", "MaxCPUsPerSocket", "RootOnly", "SelectTypeParameters"})
"""Parameters of which nobody says what follows, so that where they are set a start is not promised."""
_NOTHING = frozenset({"", "NO", "NONE", "UNLIMITED", "0"})
"""Values with which these, and parameters of which nobody knows, change nothing."""
PARTITION_PARAMETERS = frozenset(
    ("PartitionName", "ExclusiveUser", *(key for _, key, _ in parameters(Partition)), *_NO_MATTER.split(), *_NOT_NOW)
)
"""What ``scontrol show partition`` prints of a partition in Slurm 22.05 to 26.05."""


def _partition(record: Mapping[str, str]) -> Partition:
    understood: dict[str, Any] = {}
    unread = dict[str, None]()
    for field, key, reader in parameters(Partition):
        try:
            understood[field] = reader(key, record.get(key, ""))
        except SlurmOutputError:
            unread[key] = None
    exclusive = record.get("Exclusive")
    return Partition(
        name=record["PartitionName"],
        exclusive=record.get("OverSubscribe") == "EXCLUSIVE" or exclusive == "NODE",
        one_user=record.get("ExclusiveUser") == "YES" or exclusive == "USER",
        unread=tuple(unread),
        not_modelled=tuple(
            sorted(
                key
                for key, value in record.items()
                if (key in _NOT_NOW or key not in PARTITION_PARAMETERS)
                and value_or_empty(value).upper() not in _NOTHING
                and (key, value) not in (("Exclusive", "USER"), ("Exclusive", "NODE"))
            )
        ),
        parameters=record,
        **understood,
    )


_CORES = re.compile(r"\bNodeName=\S+ CoreIDs=(\S+)")


def _reservation(record: Mapping[str, str], text: str) -> Reservation:
    return Reservation(
        name=record["ReservationName"],
        partial="CoreIDs" in record,
        cores=tuple(
            len(read(parse_cpulist, "CoreIDs", cores)) for cores in _CORES.findall(text.partition(" TRES=")[0])
        ),
        **values(Reservation, record),
    )


# ``scontrol show config``: the parts of slurm.conf(5) that a hub needs.

_LINE = re.compile(r"^(?P<key>[A-Za-z][\w/]*) *= ?(?P<value>.*)$", re.ASCII | re.MULTILINE)
_AS_OF = re.compile(r"Configuration data as of ([0-9]+)\s*$", re.MULTILINE)


def parse_config(text: str) -> SlurmConfig:
    """Parse ``scontrol show config``; raises SlurmOutputError if PrivateData is missing."""
    record = {match["key"]: match["value"].strip() for match in _LINE.finditer(text)}
    if "PrivateData" not in record:
        raise SlurmOutputError("scontrol show config did not report PrivateData.", raw=text, field="PrivateData")
    private = {word.strip().lower() for word in words(record["PrivateData"])} - {"none"}
    # mcs(5): jobs of another security label are hidden likewise
    if "privatedata" in words(record.get("MCSParameters")) and value_or_empty(record.get("MCSPlugin")) not in (
        "",
        "mcs/none",
    ):
        private.add("jobs")
    answered_at = _AS_OF.match(text)  # its first line, in seconds since the epoch with SLURM_TIME_FORMAT=%s
    return SlurmConfig(
        private_data=frozenset(private),
        answered_at=float(answered_at[1]) if answered_at is not None else None,
        resume_timeout=parameter_seconds(record, "ResumeTimeout")
        if value_or_empty(record.get("ResumeProgram"))
        else None,
        cpu_unit=_cpu_unit(record.get("SelectType", ""), record.get("SelectTypeParameters", "CR_CORE").upper()),
        parameters=record,
        **values(SlurmConfig, record),
    )


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
_OPTIONAL = ("BatchHost", "StdErr", "StdOut", "Comment", "Deadline", "TimeMin", "MinMemoryNode", "AllocTRES", "TRES")
_RECORD = re.compile(r"^(?=JobId=\d+ )", re.MULTILINE)
_FIRST = re.compile(r"JobId=(\d+) ", re.ASCII)
_SPECIALISED = "ThreadSpec"
"""What a job with ``--thread-spec`` has in the place of CoreSpec."""
_ALLOCATED = re.compile(rf"(?<=\s)(?:CoreSpec|{_SPECIALISED}|MinCPUsNode)=", re.ASCII)
_KEY = re.compile(r"(?<=\s)(" + "|".join((*_NEEDED, *_OPTIONAL, _SPECIALISED)) + r")=", re.ASCII)
_WORD = re.compile(r".*?(?=\s+[A-Za-z][\w/:]*=|\s*\Z)", re.ASCII | re.DOTALL)
_BEHIND_STDOUT = """
    Power Switches BurstBuffer CpusPerTres MemPerTres TresBind TresFreq TresPerJob TresPerNode TresPerSocket TresPerTask
    MailUser MailType
"""
_JOBS_TEXTS = {"Comment": free_text("StdErr"), "StdOut": free_text(*_BEHIND_STDOUT.split())}
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
        text = _JOBS_TEXTS.get(key, _WORD).match(record, starts[key]) if key in starts else None
        return value_or_empty(text[0]) if text is not None else ""

    # the name follows the job id, and UserId follows the name
    name = record[record.index("JobName=") + 8 : starts["UserId"] - len("UserId=")] if "JobName=" in record else ""
    user, _, number = value("UserId").partition("(")
    state = value("JobState")
    phase = phase_of(state)
    limit = time_limit(value("TimeLimit"))
    deadline, shortest = epoch(value("Deadline"), "Deadline"), time_limit(value("TimeMin"), "TimeMin")
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
        tag=value("Comment"),
        name=_SLUID.sub("", name).strip(),
        uid=int(number[:-1]) if number[:-1].isdecimal() and number[:-1].isascii() else None,
        time_limit=limit,
        latest_start=None if deadline is None else deadline - (shortest or limit or 0),
        memory_mib=_memory_of_node(value("MinMemoryNode"), value("AllocTRES") or value("TRES"), value("NodeList")),
        stdout_path=value("StdOut"),
        allocations=_allocations(record[starts["CoreSpec"] : starts["MinCPUsNode"]]),
    )


def _memory_of_node(requested: str, allocated: str, nodes: str) -> int | None:
    """MiB that a job has on each node: as requested, or what it was allocated on its only one (TRES before 23.02)."""
    of_all = parse_tres(allocated).get("mem")
    of_one = int(of_all) if of_all and len(read(units.expand_nodelist, "NodeList", nodes)) == 1 else None
    return memory("MinMemoryNode", requested) or of_one


def _allocations(text: str) -> tuple[NodeAllocation, ...]:
    return read(units.parse_allocations, "Nodes", text)
