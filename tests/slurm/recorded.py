"""Answers of real clusters: ``tests/data/slurm-outputs/<version>/<area>/<name>.out`` and ``.err``, see INDEX.tsv."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parents[1] / "data" / "slurm-outputs"
VERSIONS = ("22.05", "24.11", "26.05")
MARK = "0123456789abcdef"
"""The mark in the recorded answers to the hub's own squeue (area ``hub``)."""


class Recorded(NamedTuple):
    """One recorded answer."""

    version: str
    area: str
    name: str
    code: int
    stdout: str
    stderr: str


def _text(version: str, area: str, name: str, kind: str) -> str:
    path = FOLDER / version / area / f"{name}.{kind}"
    return path.read_text(errors="replace") if path.exists() else ""  # an empty answer has no file


def _index() -> dict[tuple[str, str, str], int]:
    with (FOLDER / "INDEX.tsv").open(newline="") as file:
        return {
            (row["version"], row["area"], row["name"]): int(row["rc"]) for row in csv.DictReader(file, delimiter="\t")
        }


INDEX = _index()


def recorded(version: str, area: str, name: str) -> Recorded:
    """The answer with this name; raises KeyError if none was recorded."""
    code = INDEX[version, area, name]
    return Recorded(version, area, name, code, _text(version, area, name, "out"), _text(version, area, name, "err"))


def all_recorded(area: str, *, version: str = "") -> list[Recorded]:
    """Every answer in an area."""
    return [recorded(*key) for key in INDEX if key[1] == area and version in ("", key[0])]


def with_array_tasks(text: str) -> str:
    """A recorded answer about the cluster's jobs, none of which is a job array, as the hub asks for it now."""
    end = f"|{MARK}\n"
    records = (record.partition("|") for record in text.split(end)[:-1])
    return "".join(f"{job_id}|N/A|{rest}{end}" for job_id, _, rest in records)


def with_owner(text: str, uid: str = "1000", name: str = "a job") -> str:
    """A recorded answer, which ends with exit code and comment, as the hub asks for it now."""
    end = f"|{MARK}\n"
    records = (record.split("|", 10) for record in text.split(end)[:-1])
    return "".join(f"{'|'.join([*slurms, uid])}|{MARK}|{comment}|{MARK}|{name}{end}" for *slurms, comment in records)


def would_start(at: float, node: str, partition: str, cpus: int = 1) -> str:
    """What ``sbatch --test-only`` prints of a job that would start then, in seconds since the epoch."""
    return f"sbatch: Job 7 to start at {at:.0f} using {cpus} processors on nodes {node} in partition {partition}\n"
