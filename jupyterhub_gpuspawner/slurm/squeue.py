"""Questions to ``squeue`` and their answers: the hub's jobs, and all jobs of the cluster. Pure.

Fields that a job's owner can write freely come last, each enclosed in a random mark, new for each query, which no
owner can foresee. Besides account, name and comment these are the requested generic resources: slurmctld keeps
``--gres=gpu:k80|x:1`` or a type with a newline unchanged while the job is held.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple, TypeVar

from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.slurm.job import Job, Phase, end_of, phase_of
from jupyterhub_gpuspawner.slurm.snapshot import ClusterJob, Table
from jupyterhub_gpuspawner.slurm.text import (
    Notice,
    UnparsedField,
    epoch,
    gres,
    no_report,
    nodes,
    parse_records,
    read,
    time_limit,
    value_or_empty,
    words,
)
from jupyterhub_gpuspawner.units import GPU_GRES, Gres, parse_memory

T = TypeVar("T")

STATES = "PD,CF,R,CG,S,ST"
"""The value for ``squeue -t``: jobs that are pending or hold nodes."""


class Question(NamedTuple):
    """The fields that squeue is asked for."""

    slurms: tuple[str, ...]
    """Fields whose values slurmctld generates, or checks against its own names; the job's id is the first."""
    owners: tuple[str, ...]
    """Fields that owners can write freely; slurmctld accepts at most 1,024 bytes for each."""

    def columns(self, mark: str) -> str:
        """The value for ``squeue -O``; ``mark`` is a random word of letters and digits, unknown to job owners."""
        plain = ",".join(f"{name}:|" for name in self.slurms)
        return f"{plain}{mark}|,{f'|{mark}|,'.join(f'{name}:' for name in self.owners)}|{mark}"

    def jobs(self, text: str, mark: str, reader: Callable[[list[str]], T], notice: Notice) -> Iterator[T]:
        """Each job of an answer, which ``reader`` makes of the texts of its fields, in Slurm's order.

        A record that is not understood is left out and reported to ``notice``. Raises SlurmOutputError if the answer
        is cut off, or no record is understood.
        """
        end = f"|{mark}\n"
        rest = text[text.rfind(end) + len(end) :] if end in text else text
        if rest.strip():
            raise SlurmOutputError("squeue's answer is cut off.", raw=rest)
        return parse_records(
            _records(text, end), lambda record: reader(self._texts(record, mark)), "job", job_id_of, notice
        )

    def _texts(self, record: str, mark: str) -> list[str]:
        head, *written = record.split(f"|{mark}|")
        values = head.split("|")
        if len(values) != len(self.slurms) or len(written) != len(self.owners) or not is_job_id(values[0]):
            raise SlurmOutputError("squeue printed a line that does not match the requested columns.", raw=record)
        return values + written


def _records(text: str, end: str) -> Iterator[str]:
    """The records, one after the other: splitting the whole answer at once holds the interpreter for long."""
    begin = 0
    while (at := text.find(end, begin)) >= 0:
        yield text[begin:at]
        begin = at + len(end)


def job_id_of(record: str) -> str:
    """The job id at the start of a record; empty if there is none."""
    first = record.partition("|")[0]
    return first if is_job_id(first) else ""


def is_job_id(text: str) -> bool:
    """Whether this is the id of a job."""
    return text.isascii() and text.isdigit() and len(text) <= 10


_OF_JOBS = "JobID State Reason StartTime EndTime BatchHost NodeList Partition UserName exit_code UserID"
JOBS = Question(tuple(_OF_JOBS.split()), ("Comment", "Name"))
"""About the hub's own jobs."""
_OF_CLUSTER = """
JobID ArrayTaskID State Reason UserName Partition PriorityLong NodeList NumNodes NumCPUs NumTasks tres-alloc
SubmitTime StartTime EndTime TimeLimit
"""
_BY_OWNERS = "tres-per-job tres-per-node tres-per-socket tres-per-task Reservation Account Name Comment"
CLUSTER = Question(tuple(_OF_CLUSTER.split()), tuple(_BY_OWNERS.split()))
"""About every job that is pending or holds nodes."""


def parse_squeue(text: str, mark: str, notice: Notice = no_report) -> dict[str, Job]:
    """The jobs of an answer to :data:`JOBS`, by job id, see :meth:`Question.jobs`.

    A task of a job array is listed under its own job id.
    """
    return {job.job_id: job for job in JOBS.jobs(text, mark, _job, notice)}


def _job(texts: list[str]) -> Job:
    job_id, state, reason, start, end, host, node_list, partition, user, code, uid, comment, name = texts
    phase = phase_of(state)
    return Job(
        job_id=job_id,
        phase=phase,
        state=state,
        reason=value_or_empty(reason),
        nodes=value_or_empty(node_list),
        batch_host=value_or_empty(host),
        user=value_or_empty(user),
        partition=value_or_empty(partition),
        starts_at=epoch(start, "StartTime"),
        ends_at=epoch(end, "EndTime"),
        exit_code=_exit_code(code) if phase in (Phase.ENDING, Phase.ENDED) else "",
        end=end_of(state),
        tag=_comment(comment),
        name=name,
        uid=read(int, "UserID", uid),
    )


def _comment(text: str) -> str:
    return "" if text == "(null)" else text


_WAIT_STATUS = re.compile(r"[0-9]{1,10}")


def _exit_code(text: str) -> str:
    """``3:0`` of ``3:0`` (24.11 and later) or of the wait status 768 (22.05)."""
    value = value_or_empty(text)
    if not _WAIT_STATUS.fullmatch(value):
        return value
    signal = int(value) & 0x7F
    return f"0:{signal}" if signal else f"{int(value) >> 8 & 0xFF}:0"


def parse_jobs(text: str, mark: str, notice: Notice = no_report) -> Table[ClusterJob]:
    """The jobs of an answer to :data:`CLUSTER`, see :meth:`Question.jobs`.

    A job whose generic resources are not understood is kept with :attr:`ClusterJob.gpus_unknown`, and reported to
    ``notice``.
    """

    def job(texts: list[str]) -> ClusterJob:
        row, unknown_gres = cluster_job(texts)
        if unknown_gres:
            notice(UnparsedField("job", row.job_id, unknown_gres, partial=True))
        return row

    return Table.of(ClusterJob, CLUSTER.jobs(text, mark, job, notice))


def cluster_job(texts: list[str]) -> tuple[ClusterJob, str]:
    """The job of the fields of :data:`CLUSTER`, and the field with generic resources that are not understood.

    That field is empty if all are.
    """
    job_id, array, state, reason, user, partitions, priority, *slurms = texts
    node_list, node_count, cpus, tasks, allocated, *more = slurms
    submit, start, end, limit, per_job, per_node, per_socket, per_task, reservation, account, name, comment = more
    phase, seconds = phase_of(state), time_limit(limit)
    count = _count("NumNodes", node_count) or 1
    requests = (allocated, per_node, per_job, per_socket, per_task)
    gpus, unknown_gres = _gpus(requests, count, _count("NumTasks", tasks) or 1)
    job = ClusterJob(
        job_id=job_id,
        phase=phase,
        state=_shared(state),
        reason=value_or_empty(reason),
        user=value_or_empty(user),
        account=value_or_empty(account),
        partitions=words(partitions),
        priority=_count("PriorityLong", priority),
        nodes=nodes("NodeList", node_list),
        node_count=count,
        array_tasks=_array_tasks(array),
        cpus=_count("NumCPUs", cpus),
        memory_mib=_memory(allocated),
        gpus=gpus,
        gpus_unknown=bool(unknown_gres),
        submitted_at=epoch(submit, "SubmitTime"),
        starts_at=epoch(start, "StartTime"),
        # what Slurm prints for a job without an end is not read
        ends_at=epoch(end, "EndTime") if phase is not Phase.QUEUED and seconds is not None else None,
        time_limit=seconds,
        reservation=value_or_empty(reservation),
        name=_shared(name),
        tag=_comment(comment),
    )
    return job, unknown_gres


@lru_cache(maxsize=8192)
def _shared(text: str) -> str:
    """One object for the many jobs of the same name; not interned, since Python may keep what is for good."""
    return text


def _count(key: str, text: str) -> int:
    """``4``; round numbers may be printed as ``1K``, and the nodes of a pending job as a range."""
    if text.isascii() and text.isdigit():
        return int(text)
    value = value_or_empty(text)
    match = _COUNT.fullmatch(value)
    if value and match is None:
        raise SlurmOutputError(f"squeue gave {value[:80]!r} for {key}.", raw=f"{key}={value}", field=key)
    return int(match["number"]) * 1024 ** " KMGTP".index(match["unit"] or " ") if match else 0


@lru_cache(maxsize=8192)
def _array_tasks(text: str) -> int:
    """How many tasks of a job array ``4-99``, ``1,3,5-9:2`` or ``4-99%4`` names, at most those that may run at once.

    squeue prints 64 characters of a long list: the rest is not counted.
    """
    indexes, _, at_once = text.partition("%")
    tasks = sum(
        (int(match["last"] or match["first"]) - int(match["first"])) // int(match["step"] or 1) + 1
        for match in map(_INDEXES.fullmatch, indexes.split(","))
        if match is not None
    )
    return max(1, min(tasks, int(at_once)) if _NUMBER.fullmatch(at_once) else tasks)


_NUMBER = re.compile(r"\d{1,10}", re.ASCII)
_INDEXES = re.compile(r"(?P<first>\d{1,10})(-(?P<last>\d{1,10})(:(?P<step>[1-9]\d{0,9}))?)?", re.ASCII)
_COUNT = re.compile(r"(?P<number>\d+)(?P<unit>[KMGTP]?)(?:-\S*)?", re.ASCII)


@lru_cache(maxsize=8192)
def _memory(tres: str) -> int:
    match = re.search(r"(?:^|,)mem=([^,]+)", tres)
    return read(parse_memory, "tres-alloc", match[1]) if match else 0


@lru_cache(maxsize=8192)
def _gpus(requests: tuple[str, ...], node_count: int, tasks: int) -> tuple[tuple[Gres, ...], str]:
    """GPUs per node, as allocated where Slurm reports it, else as requested; and the field that is not understood."""
    shares = (
        ("tres-alloc", 1, node_count),
        ("tres-per-node", 1, 1),
        ("tres-per-job", 1, node_count),
        ("tres-per-socket", 1, 1),
        ("tres-per-task", tasks, node_count),
    )
    try:
        for text, share in zip(requests, shares, strict=True):
            if devices := _devices(text, *share):
                return devices, ""
    except SlurmOutputError as error:
        return (), error.field
    return (), ""


def _devices(text: str, key: str, times: int, node_count: int) -> tuple[Gres, ...]:
    devices = [device for device in gres(key, text) if device.name in GPU_GRES]
    typed = {device.name for device in devices if device.type}  # a TRES list contains both gpu and gpu:a100
    return tuple(
        Gres(device.name, device.type, -(-device.count * times // node_count))
        for device in devices
        if device.type or device.name not in typed
    )
