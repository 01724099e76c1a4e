"""The format of the hub's regular ``squeue`` query, and the parser of its answer. Pure.

A job's comment and name are chosen by its owner: they may contain newlines, ``|`` and whole lines that look like
another job's. So each of the two is followed by a random mark, new for each query, which no owner can foresee.
``-O Field:suffix`` prints fields whole; ``-O Field`` cuts them at 20 characters (squeue(1), ``--Format``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.jobs.status import JobStatus, Phase, end_of, phase_of
from jupyterhub_gpuspawner.slurm.parse.records import each_read, epoch, ignored, present

if TYPE_CHECKING:
    from collections.abc import Callable

    from jupyterhub_gpuspawner.slurm.parse.records import Notice

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


def columns(mark: str) -> str:
    """The value for ``squeue -O``; ``mark`` is a random word of letters and digits, unknown to job owners."""
    return ",".join(f"{name}:|" for name in COLUMNS) + f"{mark}|,UserID:|,Name:|{mark}"


def parse_squeue(text: str, mark: str, notice: Notice = ignored) -> dict[str, JobStatus]:
    """Every job of an answer to ``squeue -h -O columns(mark)``, by job id, in Slurm's order.

    A task of a job array is listed under its own job id. A malformed record is left out and reported to ``notice``.
    Raises SlurmOutputError if the answer is cut off, or no record is well-formed.
    """
    *records, rest = text.split(f"|{mark}\n")
    if rest.strip():
        raise SlurmOutputError("squeue's answer is cut off.", raw=rest)
    return {status.job_id: status for status in each_read(records, _reader(mark), "job", job_id_of, notice)}


def _reader(mark: str) -> Callable[[str], JobStatus]:
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


def _status(record: str, uid: str, name: str) -> JobStatus:
    values = record.split("|", len(COLUMNS) - 1)
    if len(values) != len(COLUMNS) or not job_id_of(record):
        raise SlurmOutputError("squeue printed a line that does not match the requested columns.", raw=record)
    job_id, state, reason, start, end, host, nodes, partition, user, code, comment = values
    phase = phase_of(state)
    return JobStatus(
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
