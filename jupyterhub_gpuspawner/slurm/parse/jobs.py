"""``squeue`` for the whole cluster: every job that is pending or holds nodes. Pure.

Fields that a job's owner can write freely come last, each enclosed in a random mark, new for each query, which no owner
can foresee. Besides account, name and comment these are the requested generic resources: slurmctld keeps
``--gres=gpu:k80|x:1`` or a type with a newline unchanged while the job is held. See :mod:`.squeue`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.cluster.snapshot import ClusterJob, Unread
from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.jobs.status import Phase, phase_of
from jupyterhub_gpuspawner.slurm.parse.records import each_read, epoch, gres, ignored, nodes, present, read, words
from jupyterhub_gpuspawner.slurm.parse.squeue import job_id_of
from jupyterhub_gpuspawner.units import GPU_GRES, Gres, parse_memory, parse_walltime

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.slurm.parse.records import Notice

STATES = "PD,CF,R,CG,S,ST"
"""The value for ``squeue -t``: jobs that are pending or hold nodes."""
PLAIN = (
    "JobID",
    "State",
    "Reason",
    "UserName",
    "Partition",
    "PriorityLong",
    "NodeList",
    "NumNodes",
    "NumCPUs",
    "NumTasks",
    "tres-alloc",
    "SubmitTime",
    "StartTime",
    "EndTime",
    "TimeLimit",
)
"""Fields whose values slurmctld generates, or checks against its own names."""
OWN_WORDS = (
    "tres-per-job",
    "tres-per-node",
    "tres-per-socket",
    "tres-per-task",
    "Reservation",
    "Account",
    "Name",
    "Comment",
)
"""Fields that owners can write freely; slurmctld accepts at most 1,024 bytes for each."""
_COUNT = re.compile(r"(?P<number>\d+)(?P<unit>[KMG]?)(?:-\S*)?", re.ASCII)


def columns(mark: str) -> str:
    """The value for ``squeue -O``; ``mark`` is a random word of letters and digits, unknown to job owners."""
    plain = ",".join(f"{name}:|" for name in PLAIN)
    return f"{plain}{mark}|,{f'|{mark}|,'.join(f'{name}:' for name in OWN_WORDS)}|{mark}"


def parse_jobs(text: str, mark: str, notice: Notice = ignored) -> tuple[ClusterJob, ...]:
    """Every job of an answer to ``squeue -h -O columns(mark)``, in Slurm's order.

    A job whose generic resources are not understood is kept with :attr:`ClusterJob.gpus_unknown`; any other record
    that is not understood is left out. Both are reported to ``notice``. Raises SlurmOutputError if the answer is cut
    off, or no record is understood.
    """
    *records, rest = text.split(f"|{mark}\n")
    if rest.strip():
        raise SlurmOutputError("squeue's answer is cut off.", raw=rest)
    return each_read(records, lambda record: _job(record, mark, notice), "job", job_id_of, notice)


def _job(record: str, mark: str, notice: Notice) -> ClusterJob:
    head, *owners = record.split(f"|{mark}|")
    values = head.split("|")
    if len(values) != len(PLAIN) or len(owners) != len(OWN_WORDS) or not job_id_of(record):
        raise SlurmOutputError("squeue printed a line that does not match the requested columns.", raw=record)
    told = dict(zip((*PLAIN, *OWN_WORDS), (*values, *owners), strict=True))
    phase = phase_of(told["State"])
    node_count = _count(told, "NumNodes") or 1
    limit = read(_time_limit, "TimeLimit", told["TimeLimit"])
    waits = phase is Phase.QUEUED
    odd = ""
    try:
        gpus = _gpus(told, node_count)
    except SlurmOutputError as error:
        gpus, odd = (), error.field
        notice(Unread("job", told["JobID"], odd, kept=True))
    comment = told["Comment"]
    return ClusterJob(
        job_id=told["JobID"],
        phase=phase,
        state=told["State"],
        reason=present(told["Reason"]),
        user=present(told["UserName"]),
        account=present(told["Account"]),
        partitions=words(told["Partition"]),
        priority=_count(told, "PriorityLong"),
        nodes=nodes("NodeList", told["NodeList"]),
        node_count=node_count,
        cpus=_count(told, "NumCPUs"),
        memory_mib=_memory(told["tres-alloc"]),
        gpus=gpus,
        gpus_unknown=bool(odd),
        submitted_at=epoch(told["SubmitTime"], "SubmitTime"),
        starts_at=epoch(told["StartTime"], "StartTime"),
        ends_at=None if waits or limit is None else epoch(told["EndTime"], "EndTime"),
        time_limit=limit,
        reservation=present(told["Reservation"]),
        name=told["Name"],
        tag="" if comment == "(null)" else comment,
    )


def _count(told: dict[str, str], key: str) -> int:
    """``4``; round numbers may be printed as ``1K``, and the nodes of a pending job as a range."""
    value = present(told[key])
    match = _COUNT.fullmatch(value)
    if value and match is None:
        raise SlurmOutputError(f"squeue gave {value[:80]!r} for {key}.", raw=f"{key}={value}", field=key)
    return int(match["number"]) * 1024 ** " KMG".index(match["unit"] or " ") if match else 0


def _time_limit(text: str) -> int | None:
    value = present(text)
    return None if value in ("", "NOT_SET", "INVALID", "Partition_Limit") else parse_walltime(value)


def _memory(tres: str) -> int:
    found = re.search(r"(?:^|,)mem=([^,]+)", tres)
    return read(parse_memory, "tres-alloc", found[1]) if found else 0


def _gpus(told: dict[str, str], node_count: int) -> tuple[Gres, ...]:
    """GPUs per node: as allocated where Slurm reports it, otherwise as requested per node, job, socket or task."""
    asked = (
        ("tres-alloc", 1, node_count),
        ("tres-per-node", 1, 1),
        ("tres-per-job", 1, node_count),
        ("tres-per-socket", 1, 1),
        ("tres-per-task", _count(told, "NumTasks") or 1, node_count),
    )
    return next((found for each in asked if (found := _devices(told, *each))), ())


def _devices(told: dict[str, str], key: str, times: int, node_count: int) -> tuple[Gres, ...]:
    found = [each for each in gres(key, told[key]) if each.name in GPU_GRES]
    typed = {each.name for each in found if each.type}  # a TRES list contains both gpu and gpu:a100
    return tuple(
        Gres(each.name, each.type, -(-each.count * times // node_count))
        for each in found
        if each.type or each.name not in typed
    )
