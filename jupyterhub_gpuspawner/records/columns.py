"""The columns of an export: name, type and meaning, and their values. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from jupyterhub_gpuspawner.records.disclosure import Traits
    from jupyterhub_gpuspawner.records.record import SessionRecord

Value = str | int | float | bool | None


@dataclass(frozen=True)
class Published:
    """A session as it is exported."""

    record: SessionRecord
    traits: Traits
    user: str
    """The pseudonym."""


@dataclass(frozen=True)
class Column:
    """One column."""

    name: str
    kind: str
    """Its type by the Table Schema: ``string``, ``integer``, ``number`` or ``boolean``."""
    meaning: str
    value: Callable[[Published], Value]


def _text(name: str, meaning: str) -> Column:
    return Column(name, "string", meaning, lambda each: getattr(each.traits, name) or None)


def _number(name: str, meaning: str, *, beside: str = "") -> Column:
    """A column of whole numbers, published only where ``beside`` is, of which it would tell."""

    def value(each: Published) -> Value:
        found: float | None = getattr(each.record, name)
        return None if found is None or (beside and beside not in each.traits.published) else round(found)

    return Column(name, "integer", meaning, value)


def _measured(name: str, meaning: str, *, beside: str = "") -> Column:
    """As :func:`_number`, with two significant digits: to the second, Slurm's accounting tells whose session it was."""
    exact = _number(name, meaning, beside=beside)

    def value(each: Published) -> Value:
        found = exact.value(each)
        return int(float(f"{found:.1e}")) if isinstance(found, int) else found

    return Column(name, "integer", f"{meaning[:-1]}, with two significant digits.", value)


def _beside(trait: str, value: Callable[[SessionRecord], Value]) -> Callable[[Published], Value]:
    """The value where this trait is published, of which it would tell."""
    return lambda each: value(each.record) if trait in each.traits.published else None


COLUMNS: tuple[Column, ...] = (
    Column(
        "user",
        "string",
        "Pseudonym of the user in this course: the same in every export with the same key.",
        lambda e: e.user,
    ),
    _text("begun", "When the server was asked for, UTC: to the minute, hour, day or month."),
    _text("profile", "The profile's short name."),
    _text("course", "The course's short name, where the profile is one."),
    _text("partition", "Slurm's partition in which the job ran."),
    _text("node", "Slurm's name of the server's node."),
    _text("gpu_model", "The model of the GPUs as the driver calls it."),
    Column(
        "gpus",
        "integer",
        "Number of GPUs or MIG devices that were granted.",
        lambda e: int(e.traits.gpus) if e.traits.gpus else None,
    ),
    _text("cause", "Why the session ended."),
    Column(
        "fault",
        "string",
        "Class of the error of a start that failed.",
        _beside("cause", lambda record: (record.cause.fault or None) if record.cause is not None else None),
    ),
    _measured("wait_seconds", "Seconds from the request until the server answered."),
    _measured("queue_seconds", "Seconds of it in Slurm's queue."),
    _measured("start_seconds", "Seconds from the job's start to the launcher's report."),
    _measured("ready_seconds", "Seconds from the report until the server answered."),
    _measured("run_seconds", "Seconds for which the server ran."),
    Column(
        "reasons",
        "string",
        "Slurm's reasons why the job was pending, separated by semicolons.",
        _beside("profile", lambda record: ";".join(record.reasons) or None),
    ),
    _number("asked_gpus", "GPUs requested for each node.", beside="profile"),
    _number("asked_cpus", "CPUs requested for each node.", beside="profile"),
    _number("asked_memory_mib", "Memory requested for each node, in MiB.", beside="profile"),
    _number("asked_seconds", "Time limit requested, in seconds.", beside="profile"),
    _number("cpus", "CPUs granted on the server's node.", beside="profile"),
    _number("memory_mib", "Memory granted on the server's node, in MiB.", beside="profile"),
    Column(
        "aligned",
        "boolean",
        "Whether GPUs, CPUs and memory were on the same NUMA nodes.",
        _beside("gpu_model", lambda record: record.aligned),
    ),
    Column(
        "weakest_link",
        "string",
        "The slowest link among the GPUs, as nvidia-smi topo -m calls it.",
        _beside("gpu_model", lambda record: record.weakest_link),
    ),
    _measured("gpu_seconds_held", "Number of GPUs times the seconds for which the job had them.", beside="gpus"),
    _measured("gpu_seconds_measured", "GPU-seconds of which the utilisation is known.", beside="gpus"),
    _measured("gpu_seconds_busy", "Utilisation times seconds, summed over the GPUs.", beside="gpus"),
    _measured("gpu_memory_max_mib", "Largest memory used of one GPU, in MiB.", beside="gpu_model"),
    _measured("memory_max_mib", "Largest memory used by the job on the server's node, in MiB."),
    _measured("joules", "Energy of the GPUs, in joules.", beside="gpu_model"),
    Column("simulated", "boolean", "Whether the GPUs were simulated.", lambda e: e.record.simulated),
)
