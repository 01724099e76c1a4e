"""``scontrol show job -d -o``: the details of one job, or what every job holds on its nodes. Pure.

Name, paths and comment in this answer are chosen by the owner and unescaped. A record in which a required field occurs
twice is rejected, since it is unclear which one is real.
"""

from __future__ import annotations

import re

from jupyterhub_gpuspawner.cpulist import parse_cpulist
from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.jobs.status import JobDetail, NodeAllocation, Phase, end_of, phase_of
from jupyterhub_gpuspawner.slurm.parse.records import epoch, present, read
from jupyterhub_gpuspawner.units import expand_nodelist, parse_gres, parse_walltime

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
_OPTIONAL = ("BatchHost", "StdErr", "StdOut", "Comment", "Deadline", "TimeMin")
_RECORD = re.compile(r"^(?=JobId=\d+ )", re.MULTILINE)
_FIRST = re.compile(r"JobId=(\d+) ", re.ASCII)
_SPECIALISED = "ThreadSpec"
"""What a job with ``--thread-spec`` has in the place of CoreSpec."""
_ALLOCATED = re.compile(rf"(?<=\s)(?:CoreSpec|{_SPECIALISED}|MinCPUsNode)=", re.ASCII)
_KEY = re.compile(r"(?<=\s)(" + "|".join((*_NEEDED, *_OPTIONAL, _SPECIALISED)) + r")=", re.ASCII)
_VALUE_ENDS = re.compile(r"\s+[A-Za-z][\w/:]*=|\s*\Z", re.ASCII)
_SLUID = re.compile(r" SLUID=\S+ $", re.ASCII)
"""Printed between a job's name and its owner since 26.05."""
_NODE = re.compile(r"Nodes=(\S+) CPU_IDs=(\S*) Mem=(\d+) GRES=(\S*)")


def parse_job(text: str, job_id: str) -> JobDetail | None:
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
    found: dict[str, tuple[NodeAllocation, ...]] = {}
    odd = set()
    for record in _RECORD.split(text):
        first = _FIRST.match(record)
        if first is None:
            continue
        parts = _ALLOCATED.split(record)
        if first[1] in found or len(parts) != 3:
            odd.add(first[1])
            continue
        try:
            found[first[1]] = _allocations(parts[1])
        except SlurmOutputError:
            odd.add(first[1])
    return {job_id: parts for job_id, parts in found.items() if parts and job_id not in odd}


def _detail(record: str, job_id: str) -> JobDetail:
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
    return JobDetail(
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
    found: list[NodeAllocation] = []
    for nodes, cpus, memory, gres in _NODE.findall(text):
        ids = read(parse_cpulist, "CPU_IDs", cpus)
        granted = read(parse_gres, "GRES", gres)
        found.extend(NodeAllocation(node, ids, int(memory), granted) for node in read(expand_nodelist, "Nodes", nodes))
    return tuple(found)
