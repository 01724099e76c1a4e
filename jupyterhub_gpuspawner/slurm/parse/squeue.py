"""The one question that the hub asks ``squeue`` all the time, and how its answer is read. Pure.

A job's comment and its name are its owner's: they may hold newlines, ``|`` and whole lines that look like another
job's. So each of the two is followed by a mark drawn anew for each question, which no owner can foresee.
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

_JOB_ID = re.compile(r"[0-9]{1,10}")
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
    """The value for ``squeue -O``; ``mark`` is a word of letters and digits that no job's owner can know."""
    return ",".join(f"{name}:|" for name in COLUMNS) + f"{mark}|,UserID:|,Name:|{mark}"


def parse_squeue(text: str, mark: str, notice: Notice = ignored) -> dict[str, JobStatus]:
    """Every job of an answer to ``squeue -h -O columns(mark)``, by job id, in Slurm's order.

    A task of a job array stands under its own job id. A record that does not fit is left out, and ``notice`` is told
    of it. Raises SlurmOutputError where the answer breaks off, or no record of it fits.
    """
    *records, rest = text.split(f"|{mark}\n")
    if rest.strip():
        raise SlurmOutputError("squeue's answer breaks off in the middle.", raw=rest)
    return {status.job_id: status for status in each_read(records, _reader(mark), "job", job_id_of, notice)}


def _reader(mark: str) -> Callable[[str], JobStatus]:
    return lambda record: _status(*_parts(record, mark))


def job_id_of(record: str) -> str:
    """The job id with which a record begins; empty where it begins otherwise."""
    first = record.partition("|")[0]
    return first if _JOB_ID.fullmatch(first) else ""


def _parts(record: str, mark: str) -> tuple[str, str, str]:
    """What stands up to the comment, the owner's number, and the job's name."""
    head, _, tail = record.partition(f"|{mark}|")
    uid, bar, name = tail.partition("|")
    if not (bar and uid.isascii() and uid.isdigit()):
        raise SlurmOutputError("squeue gave a line that does not fit the columns asked for.", raw=record)
    return head, uid, name


def _status(record: str, uid: str, name: str) -> JobStatus:
    values = record.split("|", len(COLUMNS) - 1)
    if len(values) != len(COLUMNS) or not job_id_of(record):
        raise SlurmOutputError("squeue gave a line that does not fit the columns asked for.", raw=record)
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
