"""What a server has used in the last hour, as the process beside it reports it: in the hub's memory only.

It is advice. Whoever owns the server can end that process, or have it send something else; Slurm's accounting is the
record. So nothing is charged by it, it is never a reason to stop another server than the one that sent it, and what
is not known is not taken for idle.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

from jupyterhub_gpuspawner.hub.report.reader import ReportError
from jupyterhub_gpuspawner.wire.documents import SAMPLES

if TYPE_CHECKING:
    from collections.abc import Callable

    from jupyterhub_gpuspawner.wire.documents import PlacementDocument, UsageSummary

KEPT = 3600.0
"""Seconds for which a summary is kept."""
KEPT_AT_MOST = 120
"""Summaries of a server that are kept."""


LATE = 60.0
"""Seconds that a summary may be late."""


class MeasuredSpawner(Protocol):
    """A spawner whose server's use is kept."""

    @property
    def placement(self) -> PlacementDocument | None:
        """Where the server runs and what it got; None before that is known."""

    @property
    def known(self) -> Any:
        """The spawner that JupyterHub knows."""


@dataclass(frozen=True)
class Use:
    """A summary, and when the hub got it: by the hub's own clock, since a node's may be wrong."""

    at: float
    """Seconds since the epoch."""
    summary: UsageSummary

    @property
    def since(self) -> float:
        """When the time begins that the summary is about."""
        return self.at - self.summary.seconds

    def is_current(self, now: float) -> bool:
        """Whether no later summary should have come by ``now``."""
        return now - self.at <= SAMPLES * self.summary.interval + LATE


class ServerUsage:
    """The summaries of one spawner's server."""

    def __init__(
        self,
        spawner: MeasuredSpawner,
        *,
        job_id: Callable[[], str] | None = None,
        clock: Callable[[], float] = time.time,
        taken: Callable[[UsageSummary], None] = lambda _: None,
    ) -> None:
        """``job_id`` returns the id of the server's Slurm job; summaries of another one are refused and not shown.

        ``taken`` is called with each summary that is kept.
        """
        self._spawner, self._job_id, self._clock, self._taken = spawner, job_id, clock, taken
        self._kept: deque[tuple[str, Use]] = deque(maxlen=KEPT_AT_MOST)
        MEASURED.add(self)

    def forget(self) -> None:
        """Begin a new start."""
        self._kept.clear()

    def accept(self, summary: UsageSummary) -> None:
        """Keep a summary; of its GPUs those that the server has. Raises ReportError where no server has reported."""
        placement = self._spawner.placement
        job_id = self._current()
        if placement is None or job_id is None:
            raise ReportError("usage: this server has not reported its placement")
        if job_id and summary.job_id not in (None, job_id):
            raise ReportError(f"usage.job_id: must be {job_id}, the job of this server")
        own = {(gpu.index, gpu.uuid, gpu.mig) for gpu in placement.gpus}
        gpus = tuple(gpu for gpu in summary.gpus if (gpu.index, gpu.uuid, gpu.mig) in own)
        own_summary = replace(summary, gpus=gpus)
        self._kept.append((job_id, Use(self._clock(), own_summary)))
        self._taken(own_summary)

    def last_hour(self) -> tuple[Use, ...]:
        """The summaries of the last hour, oldest first."""
        since, job_id = self._clock() - KEPT, self._current()
        while self._kept and (self._kept[0][1].at < since or self._kept[0][0] != job_id):
            self._kept.popleft()
        return tuple(use for _, use in self._kept)

    def now(self) -> tuple[PlacementDocument, str, UsageSummary | None] | None:
        """Placement, profile and current summary, None where there is none; None where nothing runs."""
        placement = self._spawner.placement
        if placement is None or self._current() is None:
            return None
        last = self.last_hour()[-1:]
        summary = next((use.summary for use in last if use.is_current(self._clock())), None)
        return placement, str(getattr(self._spawner.known, "child_profile", "")), summary

    def _current(self) -> str | None:
        """The job's id; None where there is none, and empty for a server that is no job."""
        return "" if self._job_id is None else self._job_id() or None


MEASURED: WeakSet[ServerUsage] = WeakSet()
"""That of every spawner in memory."""
