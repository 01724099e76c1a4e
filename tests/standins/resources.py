"""What a job requests, as :func:`resolve` leaves it: every value is plain, and times are in seconds."""

from __future__ import annotations

from typing import Any

from jupyterhub_gpuspawner.profiles.resources import ReservationRule, Resources


def resolved(
    partition: str | None = None, *, reservation: str | None = None, time_unit: str = "", **fields: Any
) -> Resources:
    """The resources of a job with these fields."""
    rule = ReservationRule.model_construct(pattern=reservation) if reservation else None
    plain = {
        "nodes": 1,
        "exclusive": False,
        "partition": partition,
        "reservation": rule,
        **fields,
        "_time_unit": time_unit,
    }
    return Resources.model_construct(**plain)
