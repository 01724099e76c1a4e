"""Coarsens what could identify somebody in exported records. Pure.

Somebody who knows when a person started which server could find that person's row by those columns. So each
combination of them in the export is that of at least ``group`` different people. What is rarer is made coarser step by
step (:data:`STEPS`): first without the node, then with the hour, the day and the month in place of the minute, then
without course and cause, at last without all of it. Rows that are still rare are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jupyterhub_gpuspawner.records.record import SessionRecord

FORMATS = {"minute": "%Y-%m-%dT%H:%MZ", "hour": "%Y-%m-%dT%HZ", "day": "%Y-%m-%d", "month": "%Y-%m", "": ""}
"""How the time of a row is written, by its precision; without any it is left out."""


@dataclass(frozen=True)
class Traits:
    """The columns of a row by which somebody could recognise a session; empty ones are not published."""

    begun: str = ""
    """When the server was asked for, UTC, in a precision of :data:`FORMATS`."""
    profile: str = ""
    course: str = ""
    cause: str = ""
    partition: str = ""
    gpu_model: str = ""
    gpus: str = ""
    node: str = ""
    published: tuple[str, ...] = ()
    """The columns of these that are published. Others that follow from one of them are published with it."""


_HARDWARE = ("partition", "gpu_model", "gpus")
_CHOICE = ("profile", "course", "cause", *_HARDWARE)
STEPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("minute", (*_CHOICE, "node")),
    ("minute", _CHOICE),
    ("hour", _CHOICE),
    ("day", _CHOICE),
    ("month", _CHOICE),
    ("month", ("profile", *_HARDWARE)),
    ("month", _HARDWARE),
    ("month", ()),
    ("", ()),
)
"""Precision of the time and columns that are published, from all to nothing."""


def traits_of(record: SessionRecord, precision: str, columns: Sequence[str]) -> Traits:
    """The traits of a record with this precision and these columns."""
    begun = datetime.fromtimestamp(record.begun_at, timezone.utc)
    values = {
        "profile": record.profile,
        "course": record.course,
        "cause": record.cause.kind.value if record.cause is not None else "",
        "partition": record.partition or "",
        "gpu_model": record.gpu_model,
        "gpus": "" if record.gpus is None else str(record.gpus),
        "node": record.node,
    }
    shown = {name: values[name] for name in columns}
    return Traits(begun.strftime(FORMATS[precision]), published=tuple(columns), **shown)


def is_coarser(record: SessionRecord, traits: Traits) -> bool:
    """Whether these traits tell less of a record than is known of it."""
    finest, *_ = STEPS
    return replace(traits_of(record, *finest), published=()) != replace(traits, published=())


def coarsened(records: Sequence[SessionRecord], group: int) -> list[tuple[SessionRecord, Traits]]:
    """The records that may be published, in their order, each with its traits as they may be published.

    Of each combination of traits there are at least ``group`` different users.
    """
    found: dict[int, Traits] = {}
    left = dict(enumerate(records))
    for precision, columns in STEPS:
        groups: dict[Traits, list[int]] = {}
        for number, record in left.items():
            groups.setdefault(traits_of(record, precision, columns), []).append(number)
        for traits, numbers in groups.items():
            if len({records[number].username for number in numbers}) >= group:
                found.update(dict.fromkeys(numbers, traits))
        left = {number: record for number, record in left.items() if number not in found}
    return [(records[number], traits) for number, traits in sorted(found.items())]
