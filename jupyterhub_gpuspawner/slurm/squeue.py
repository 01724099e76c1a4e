"""The format of the hub's regular ``squeue`` query, and the parser of its answer. Pure.

A job's comment and name are chosen by its owner: they may contain newlines, ``|`` and whole lines that look like
another job's. So each of the two is followed by a random mark, new for each query, which no owner can foresee.
``-O Field:suffix`` prints fields whole; ``-O Field`` cuts them at 20 characters (squeue(1), ``--Format``).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.slurm.job import Job, Phase, end_of, phase_of
from jupyterhub_gpuspawner.slurm.snapshot import ClusterJob, Unread
from jupyterhub_gpuspawner.slurm.text import (
    Memo,
    Notice,
    all_numbers,
    epoch,
    epochs,
    gres,
    ignored,
    nodes,
    present,
    read,
    read_columns,
    readable,
    words,
)
from jupyterhub_gpuspawner.table import Table
from jupyterhub_gpuspawner.units import GPU_GRES, Gres, expand_nodelist, parse_memory, parse_walltime

_STATUS = re.compile(r"[0-9]{1,10}")
COLUMNS = (
    "JobID",
    "State",
    "Reason",
    "StartTime",
    "EndTime",
    "BatchHost",
    "NodeList",
    "Partition",
    "UserName",
    "exit_code",
    "Comment",
)


# ``squeue`` for the whole cluster: every job that is pending or holds nodes.
#
# Fields that a job's owner can write freely come last, each enclosed in a random mark, new for each query, which no
# owner can foresee. Besides account, name and comment these are the requested generic resources: slurmctld keeps
# ``--gres=gpu:k80|x:1`` or a type with a newline unchanged while the job is held. See :mod:`.squeue`.


def columns(mark: str) -> str:
    """The value for ``squeue -O``; ``mark`` is a random word of letters and digits, unknown to job owners."""
    return ",".join(f"{name}:|" for name in COLUMNS) + f"{mark}|,UserID:|,Name:|{mark}"


def parse_squeue(text: str, mark: str, notice: Notice = ignored) -> dict[str, Job]:
    """Every job of an answer to ``squeue -h -O columns(mark)``, by job id, in Slurm's order.

    A task of a job array is listed under its own job id. A malformed record is left out and reported to ``notice``.
    Raises SlurmOutputError if the answer is cut off, or no record is well-formed.
    """
    *records, rest = text.split(f"|{mark}\n")
    if rest.strip():
        raise SlurmOutputError("squeue's answer is cut off.", raw=rest)
    return {status.job_id: status for status in readable(records, _reader(mark), "job", job_id_of, notice)}


def _reader(mark: str) -> Callable[[str], Job]:
    return lambda record: _status(*_parts(record, mark))


def job_id_of(record: str) -> str:
    """The job id at the start of a record; empty if there is none."""
    first = record.partition("|")[0]
    return first if is_job_id(first) else ""


def is_job_id(text: str) -> bool:
    """Whether this is the id of a job."""
    return text.isascii() and text.isdigit() and len(text) <= 10


def _parts(record: str, mark: str) -> tuple[str, str, str]:
    """The fields up to the comment, the owner's uid, and the job's name."""
    head, _, tail = record.partition(f"|{mark}|")
    uid, bar, name = tail.partition("|")
    if not (bar and uid.isascii() and uid.isdigit()):
        raise SlurmOutputError("squeue printed a line that does not match the requested columns.", raw=record)
    return head, uid, name


def _status(record: str, uid: str, name: str) -> Job:
    values = record.split("|", len(COLUMNS) - 1)
    if len(values) != len(COLUMNS) or not job_id_of(record):
        raise SlurmOutputError("squeue printed a line that does not match the requested columns.", raw=record)
    job_id, state, reason, start, end, host, nodes, partition, user, code, comment = values
    phase = phase_of(state)
    return Job(
        job_id=job_id,
        phase=phase,
        state=state,
        reason=present(reason),
        nodes=present(nodes),
        batch_host=present(host),
        user=present(user),
        partition=present(partition),
        starts_at=epoch(start, "StartTime"),
        ends_at=epoch(end, "EndTime"),
        exit_code=_exit_code(code) if phase in (Phase.ENDING, Phase.ENDED) else "",
        end=end_of(state),
        tag="" if comment == "(null)" else comment,
        name=name,
        uid=int(uid),
    )


def _exit_code(text: str) -> str:
    """``3:0`` of ``3:0`` (24.11 and later) or of the wait status 768 (22.05)."""
    value = present(text)
    if not _STATUS.fullmatch(value):
        return value
    signal = int(value) & 0x7F
    return f"0:{signal}" if signal else f"{int(value) >> 8 & 0xFF}:0"


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
_WIDTH = len(PLAIN) + 2 * len(OWN_WORDS)
"""Texts between the bars of a record, marks included, in which no owner has written a bar."""
_SIZE = ("NumNodes", "NumCPUs", "NumTasks", "tres-alloc", *OWN_WORDS[:4])
"""The fields on which a job's size depends: all of those that follow each other in a record."""
_COUNT = re.compile(r"(?P<number>\d+)(?P<unit>[KMG]?)(?:-\S*)?", re.ASCII)


def job_columns(mark: str) -> str:
    """The value for ``squeue -O``; ``mark`` is a random word of letters and digits, unknown to job owners."""
    plain = ",".join(f"{name}:|" for name in PLAIN)
    return f"{plain}{mark}|,{f'|{mark}|,'.join(f'{name}:' for name in OWN_WORDS)}|{mark}"


def parse_jobs(text: str, mark: str, notice: Notice = ignored) -> Table[ClusterJob]:
    """Every job of an answer to ``squeue -h -O job_columns(mark)``, in Slurm's order.

    A job whose generic resources are not understood is kept with :attr:`ClusterJob.gpus_unknown`; any other record
    that is not understood is left out. Both are reported to ``notice``. Raises SlurmOutputError if the answer is cut
    off, or no record is understood.
    """
    end = f"|{mark}\n"
    last = text.rfind(end)
    rest = text[last + len(end) :] if last >= 0 else text
    if rest.strip():
        raise SlurmOutputError("squeue's answer is cut off.", raw=rest)
    columns = read_columns(_records(text, end), _JobReader(mark, notice), "job", job_id_of, notice)
    return Table(ClusterJob, columns) if columns else Table.of(ClusterJob, ())


def _records(text: str, end: str) -> Iterator[str]:
    """The records, one after the other: splitting the whole answer at once holds the interpreter for long."""
    begin = 0
    while (at := text.find(end, begin)) >= 0:
        yield text[begin:at]
        begin = at + len(end)


class _Size(NamedTuple):
    """What a job has asked for, or got."""

    node_count: int
    cpus: int
    memory_mib: int
    gpus: tuple[Gres, ...]
    odd: str
    """The field with generic resources that are not understood; empty if all are."""


class _JobReader:
    """Reads jobs column by column: fifty thousand of them have few different values."""

    def __init__(self, mark: str, notice: Notice) -> None:
        self._mark = mark
        self._notice = notice
        self._phase = Memo(phase_of)
        self._word = Memo(present)
        self._words = Memo(words)
        self._nodes = Memo(partial(nodes, "NodeList"))
        self._limit = Memo(partial(read, _time_limit, "TimeLimit"))
        self._size = Memo(_size)
        self._name = Memo(str)  # one string for all jobs of that name

    def __call__(self, records: Sequence[str]) -> Iterable[Iterable[Any]]:
        """The columns of :class:`ClusterJob` for these records; raises SlurmOutputError if one is at fault."""
        columns = self._columns(records)
        job_id, state, reason, user, partition, priority, node_list, *size, submit, start, end, limit = islice(
            columns, 15
        )
        *size_columns, reservation, account, name, comment = columns
        if not all_numbers(job_id, digits=10):
            raise _malformed(next(record for record, text in zip(records, job_id, strict=True) if not is_job_id(text)))
        phases = list(map(self._phase.__getitem__, state))
        limits = list(map(self._limit.__getitem__, limit))
        sizes = list(map(self._size.__getitem__, zip(*size, *size_columns, strict=True)))
        node_count, cpus, memory, gpus, odd = zip(*sizes, strict=True)
        has_end = [phase is not Phase.QUEUED and limit is not None for phase, limit in zip(phases, limits, strict=True)]
        fields = (
            job_id,
            phases,
            map(sys.intern, state),
            map(self._word.__getitem__, reason),
            map(self._word.__getitem__, user),
            map(self._word.__getitem__, account),
            map(self._words.__getitem__, partition),
            self._priorities(priority),
            map(self._nodes.__getitem__, node_list),
            node_count,
            cpus,
            memory,
            gpus,
            map(bool, odd),
            epochs(submit, "SubmitTime"),
            epochs(start, "StartTime"),
            self._ends(end, has_end),
            limits,
            map(self._word.__getitem__, reservation),
            map(self._name.__getitem__, name),
            ["" if text == "(null)" else text for text in comment],
        )
        for number, field in zip(job_id, odd, strict=True):
            if field:
                self._notice(Unread("job", number, field, kept=True))
        return fields

    @staticmethod
    def _priorities(texts: Sequence[str]) -> list[int]:
        return list(map(int, texts)) if all_numbers(texts) else [_count("PriorityLong", text) for text in texts]

    @staticmethod
    def _ends(texts: Sequence[str], with_end: Sequence[bool]) -> list[float | None]:
        """When the jobs end; what Slurm prints for a job without an end is not read."""
        if all_numbers(texts):
            return [float(text) if has_end else None for text, has_end in zip(texts, with_end, strict=True)]
        return [epoch(text, "EndTime") if has_end else None for text, has_end in zip(texts, with_end, strict=True)]

    def _columns(self, records: Sequence[str]) -> Iterator[Sequence[str]]:
        """The texts of these records by field; raises SlurmOutputError if one does not have them all."""
        usual = [record for record in records if record.count("|") == _WIDTH - 1]
        columns = self._usual(usual)
        if columns is None:
            return zip(*map(self._texts, records), strict=True)
        if len(usual) < len(records):
            for at, record in enumerate(records):
                if record.count("|") != _WIDTH - 1:
                    for column, text in zip(columns, self._texts(record), strict=True):
                        column.insert(at, text)
        return iter(columns)

    def _usual(self, records: Sequence[str]) -> list[list[str]] | None:
        """The same for records in which no owner has written a bar: each text has its place between all bars.

        The marks, which no owner knows, tell whether that is so; if it is not, None.
        """
        if not records:
            return None
        end = f"|{self._mark}|"
        texts = (end.join(records) + end).split("|")
        marks = range(len(PLAIN), _WIDTH + 1, 2)
        stride = _WIDTH + 1
        if any(texts[at::stride].count(self._mark) != len(records) for at in marks):
            return None
        return [texts[at:-1:stride] for at in (*range(len(PLAIN)), *(at + 1 for at in marks[:-1]))]

    def _texts(self, record: str) -> list[str]:
        head, *owners = record.split(f"|{self._mark}|")
        values = head.split("|")
        if len(values) != len(PLAIN) or len(owners) != len(OWN_WORDS):
            raise _malformed(record)
        return values + owners


def _malformed(record: str) -> SlurmOutputError:
    return SlurmOutputError("squeue printed a line that does not match the requested columns.", raw=record)


def _size(texts: tuple[str, ...]) -> _Size:
    """``texts`` are NumNodes, NumCPUs, NumTasks and the generic resources, from ``tres-alloc`` to ``tres-per-task``."""
    values = dict(zip(_SIZE, texts, strict=True))
    node_count = _count("NumNodes", values["NumNodes"]) or 1
    odd = ""
    try:
        gpus = _gpus(values, node_count)
    except SlurmOutputError as error:
        gpus, odd = (), error.field
    return _Size(node_count, _count("NumCPUs", values["NumCPUs"]), _memory(values["tres-alloc"]), gpus, odd)


def _count(key: str, text: str) -> int:
    """``4``; round numbers may be printed as ``1K``, and the nodes of a pending job as a range."""
    if text.isascii() and text.isdigit():
        return int(text)
    value = present(text)
    match = _COUNT.fullmatch(value)
    if value and match is None:
        raise SlurmOutputError(f"squeue gave {value[:80]!r} for {key}.", raw=f"{key}={value}", field=key)
    return int(match["number"]) * 1024 ** " KMG".index(match["unit"] or " ") if match else 0


def _time_limit(text: str) -> int | None:
    value = present(text)
    return None if value in ("", "NOT_SET", "INVALID", "Partition_Limit") else parse_walltime(value)


def _memory(tres: str) -> int:
    match = re.search(r"(?:^|,)mem=([^,]+)", tres)
    return read(parse_memory, "tres-alloc", match[1]) if match else 0


def _gpus(values: dict[str, str], node_count: int) -> tuple[Gres, ...]:
    """GPUs per node: as allocated where Slurm reports it, otherwise as requested per node, job, socket or task."""
    requests = (
        ("tres-alloc", 1, node_count),
        ("tres-per-node", 1, 1),
        ("tres-per-job", 1, node_count),
        ("tres-per-socket", 1, 1),
        ("tres-per-task", _count("NumTasks", values["NumTasks"]) or 1, node_count),
    )
    return next((devices for gres in requests if (devices := _devices(values, *gres))), ())


def _devices(values: dict[str, str], key: str, times: int, node_count: int) -> tuple[Gres, ...]:
    devices = [device for device in gres(key, values[key]) if device.name in GPU_GRES]
    typed = {gres.name for gres in devices if gres.type}  # a TRES list contains both gpu and gpu:a100
    return tuple(
        Gres(gres.name, gres.type, -(-gres.count * times // node_count))
        for gres in devices
        if gres.type or gres.name not in typed
    )


# ``sbatch --test-only``: when and where Slurm would start a job that is not submitted.
#
# The answer comes on stderr, with ``--parsable`` too. 26.05 puts a letter between the time and ``using``.

_WOULD_START = re.compile(
    r"^sbatch: Job \d+ to start at (?P<time>\S+)(?: [a-z])? using (?P<cpus>\d+) processors on nodes (?P<nodes>\S+)"
    r" in partition (?P<partition>\S+)$",
    re.ASCII | re.MULTILINE,
)


@dataclass(frozen=True)
class WillRun:
    """When and where Slurm would start a job if nothing changed."""

    starts_at: float
    """Seconds since the epoch; centuries ahead if Slurm finds no time, as in a closed partition."""
    nodes: tuple[str, ...]
    cpus: int
    partition: str


def parse_trial(stderr: str) -> WillRun:
    """The start predicted by ``sbatch --test-only``; raises SlurmOutputError if it predicts none."""
    match = _WOULD_START.search(stderr)
    starts_at = epoch(match["time"]) if match is not None else None
    if match is None or starts_at is None:
        raise SlurmOutputError("sbatch --test-only predicted no start.", raw=stderr)
    return WillRun(starts_at, read(expand_nodelist, "nodes", match["nodes"]), int(match["cpus"]), match["partition"])
