"""More time for a running server, as its profile allows it."""

from __future__ import annotations

from typing import Annotated

from pydantic import field_validator

from jupyterhub_gpuspawner.profiles.schema import BadValue, Duration, Frozen, whole
from jupyterhub_gpuspawner.profiles.sections import ProfileField


class Extend(Frozen):
    """How often a user may extend a running server, which adds to its job's time limit."""

    by: Duration
    """The time that is added each time, in full minutes, at most ``24h``. Less is added where a bound of the cluster
    comes first. Kept in seconds."""
    times: Annotated[int, whole(1, 100)] = 1
    """How often, from start to end of a server."""

    @field_validator("by")
    @classmethod
    def _in_minutes(cls, value: int) -> int:
        if value % 60 or not 60 <= value <= 86400:
            raise BadValue("must be a number of full minutes, from 1min to 24h")
        return value


EXTEND = ProfileField[Extend | None](
    "extend",
    Extend | None,
    "Whether a user may extend the server while it runs; default: not. Slurm jobs only.",
    None,
    needs_job="servers of the other kinds have no time limit of Slurm's",
)
FIELDS = (EXTEND,)
