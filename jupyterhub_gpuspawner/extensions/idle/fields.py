"""When a running server counts as idle, and what is done then: as a profile or the site says it, and resolved."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Literal

from pydantic import field_validator

from jupyterhub_gpuspawner.profiles.schema import BadValue, Duration, Frozen, merged, whole
from jupyterhub_gpuspawner.profiles.sections import ProfileField

WARNED_AFTER = (1 / 2, 5 / 6)
"""Parts of the time after which a server counts as idle, at which its user is warned."""
HELD_FACTOR = 2
"""By this much the time is longer where much of a GPU's memory is held."""


class IdleAction(str, Enum):
    """What is done about an idle server."""

    REPORT = "report"
    """Nothing; `gpuspawner idle` lists it."""
    NOTIFY = "tell"
    """Its user is told, on the home page and in JupyterLab."""
    STOP = "stop"
    """Its user is told, and the server is stopped."""


def _positive(value: int) -> int:
    if value < 1:
        raise BadValue("must be at least 1s")
    return value


class Keep(Frozen):
    """How often a user may keep a server that is idle."""

    by: Duration = 1800
    """The time for which it is left alone each time. Kept in seconds."""
    times: Annotated[int, whole(0, 100)] = 2
    """How often, from start to end of a server."""

    @field_validator("by")
    @classmethod
    def _some_time(cls, value: int) -> int:
        return _positive(value)


class Idle(Frozen):
    """When a server that does not use its GPUs counts as idle, and what is done then. Slurm jobs only.

    A field that is left out has the site's value (``c.GPUSlurmSpawner.idle``). The user is warned after half and after
    five sixths of ``gpu``, or of ``kernel`` where the server has no GPU.
    """

    gpu: Duration | None = None
    """A server with GPUs is idle when none of them has been used for this long, and one that holds a quarter of a GPU's
    memory or more after twice that; ``null``: never. Kept in seconds, as all durations."""
    kernel: Duration | None = None
    """A server is idle only when JupyterHub has seen no activity of it for this long either. Without it, activity does
    not matter for a server with GPUs, and a server without GPUs is never idle."""
    action: Literal["report", "tell", "stop"] | None = None
    """What is done: nothing but a record for ``gpuspawner idle``; its user is told; or told, and the server stopped."""
    keep: Keep | None = None
    """How its user may keep an idle server."""

    @field_validator("gpu", "kernel")
    @classmethod
    def _some_time(cls, value: int | None) -> int | None:
        return value if value is None else _positive(value)


@dataclass(frozen=True)
class IdleRule:
    """The policy for the servers of one profile. Durations are in seconds."""

    gpu: int | None = 3600
    held: int | None = 7200
    """In the place of :attr:`gpu` where much of a GPU's memory is held."""
    kernel: int | None = None
    leads: tuple[int, ...] = (1800, 600)
    """How long before the server counts as idle its user is warned, the longest first; at most half of ``kernel``."""
    action: IdleAction = IdleAction.REPORT
    keep_by: int = 1800
    keep_times: int = 2

    def limit(self, *, gpus: bool, held: bool) -> int | None:
        """Seconds after which a server with or without GPUs counts as idle; None: never."""
        if not gpus:
            return self.kernel
        return self.held if held and self.gpu is not None else self.gpu


SITE = Idle(gpu="60min", action="report", keep=Keep())
"""The policy where the site sets nothing."""


def idle_rule(profile: Idle | None = None, site: Idle = SITE) -> IdleRule:
    """The policy for a profile that says ``profile``, at a site that says ``site``."""
    rule = merged(SITE, site)
    if profile is not None:
        rule = merged(rule, profile)
    limit = rule.gpu if rule.gpu is not None else rule.kernel
    leads = {limit - round(limit * part) for part in WARNED_AFTER} if limit is not None else set()
    if rule.kernel is not None:  # somebody who was active just now is not warned
        leads = {min(lead, rule.kernel // 2) for lead in leads}
    keep = rule.keep if rule.keep is not None else Keep(times=0)
    return IdleRule(
        gpu=rule.gpu,
        held=rule.gpu and HELD_FACTOR * rule.gpu,
        kernel=rule.kernel,
        leads=tuple(sorted(leads, reverse=True)),
        action=IdleAction(rule.action or "report"),
        keep_by=keep.by,
        keep_times=keep.times,
    )


IDLE = ProfileField[Idle | None](
    "idle",
    Idle | None,
    "When the server counts as idle, and what is done then; default: as the site says. Slurm jobs only.",
    None,
    needs_job="servers of the other kinds hold no resources of Slurm's",
)
FIELDS = (IDLE,)
