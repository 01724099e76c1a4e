"""When a running server counts as idle, and what is done then: as a profile or the site says it, and resolved. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Literal

from pydantic import field_validator, model_validator

from jupyterhub_gpuspawner.profiles.schema import BadValue, Duration, Frozen, whole

WARNINGS_AT_MOST = 5
_TOGETHER = ("gpu", "gpu_memory_held", "warn")


class IdleAction(str, Enum):
    """What is done about an idle server."""

    REPORT = "report"
    """Nothing; `gpuspawner idle` lists it."""
    TELL = "tell"
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

    A field that is left out has the site's value (``c.GPUSlurmSpawner.idle``), but ``gpu``, ``gpu_memory_held`` and
    ``warn`` belong together: a profile that sets ``gpu`` takes none of the site's.
    """

    gpu: Duration | None = None
    """A server with GPUs is idle when none of them has been used for this long; ``null``: never. Kept in seconds, as
    all durations."""
    gpu_memory_held: Duration | None = None
    """The same for a server that holds a quarter of a GPU's memory or more; default: twice ``gpu``."""
    kernel: Duration | None = None
    """A server is idle only when JupyterHub has seen no activity of it for this long either. Without it, activity does
    not matter for a server with GPUs, and a server without GPUs is never idle."""
    warn: tuple[Duration, ...] | None = None
    """When its user is warned, at most five times, counted like ``gpu`` (or ``kernel``, without ``gpu``). Default:
    after half and after five sixths of it. Where the server may be idle for longer, as with ``gpu_memory_held`` or
    after *Keep*, the warnings come as much later."""
    action: Literal["report", "tell", "stop"] | None = None
    """What is done: nothing but a record for ``gpuspawner idle``; its user is told; or told, and the server stopped."""
    keep: Keep | None = None
    """How its user may keep an idle server."""

    @field_validator("gpu", "gpu_memory_held", "kernel")
    @classmethod
    def _some_time(cls, value: int | None) -> int | None:
        return value if value is None else _positive(value)

    @model_validator(mode="after")
    def _in_order(self) -> Idle:
        limit = self.gpu if self.gpu is not None else self.kernel
        if self.gpu_memory_held is not None and (self.gpu is None or self.gpu_memory_held < self.gpu):
            raise BadValue("gpu_memory_held must be at least as long as gpu, and needs gpu")
        if self.warn and limit is None:
            raise BadValue("warn needs gpu or kernel beside it, to which it belongs")
        if self.warn and limit is not None and not 0 < min(self.warn) <= max(self.warn) < limit:
            raise BadValue("warn must be before the server counts as idle: earlier than gpu, or kernel without gpu")
        if self.warn and len(self.warn) > WARNINGS_AT_MOST:
            raise BadValue(f"warn has more than {WARNINGS_AT_MOST} times")
        return self


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
    said = over(profile, over(site, SITE)) if profile is not None else over(site, SITE)
    limit = said.gpu if said.gpu is not None else said.kernel
    warn = said.warn if said.warn is not None else (limit // 2, limit * 5 // 6) if limit is not None else ()
    leads = {limit - at for at in warn if at < limit} if limit is not None else set()
    if said.kernel is not None:  # somebody who was active just now is not warned
        leads = {min(lead, said.kernel // 2) for lead in leads}
    keep = said.keep if said.keep is not None else Keep(times=0)
    return IdleRule(
        gpu=said.gpu,
        held=said.gpu_memory_held if said.gpu_memory_held is not None else said.gpu and 2 * said.gpu,
        kernel=said.kernel,
        leads=tuple(sorted(leads, reverse=True)),
        action=IdleAction(said.action or "report"),
        keep_by=keep.by,
        keep_times=keep.times,
    )


def over(said: Idle, defaults: Idle) -> Idle:
    """``defaults`` with the fields that ``said`` sets, even to ``null``; those of :attr:`Idle.gpu` belong together."""
    values = {name: getattr(defaults, name) for name in Idle.model_fields}
    if "gpu" in said.model_fields_set:
        values |= dict.fromkeys(_TOGETHER)
    return Idle.model_construct(**values | {name: getattr(said, name) for name in said.model_fields_set})
