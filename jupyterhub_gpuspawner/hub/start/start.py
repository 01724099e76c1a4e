"""One start of a server as a Slurm job: its id, the stages that it has reached, and when it is given up."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jupyterhub_gpuspawner.hub.site.metrics import StartTimes
from jupyterhub_gpuspawner.hub.start.deadline import Deadline, clocks, parse_deadline

if TYPE_CHECKING:
    from collections.abc import Mapping

AFTER_RESTART = 30.0
"""Seconds that a start gets at least after a restart of the hub."""
_MARGIN = 1.0
"""Seconds, at most a tenth of the start's time, by which a start is given up before JupyterHub's own time-out, which
does not say why."""


@dataclass
class Start:
    """One start; without arguments, that of a server that is not being started."""

    start_id: str = ""
    """The hub's mark and a random number: what the comment and the name of the start's job end in."""
    deadline: Deadline | None = None
    """When it is given up; None where batchspawner has stored the server, which then counts as started."""
    least_left: float = 0.0
    """Seconds until then at least."""
    reached: dict[str, float] = field(default_factory=dict)
    """When each stage was reached, in seconds since the epoch; see :class:`StartFacts`."""
    certificates: Mapping[str, str] = field(default_factory=dict)
    """Environment variables with the contents of the certificates' files; empty without ``internal_ssl``."""
    times: StartTimes | None = None
    """For the metrics; None before the submission, and after a restart of the hub."""

    @classmethod
    def begin(cls, mark: str, timeout: float) -> Start:
        """A new start of the hub with this mark; it is given up after ``timeout`` seconds."""
        return cls(
            start_id=f"{mark}-{secrets.token_hex(8)}",
            deadline=Deadline.after(timeout, clocks()),
            reached={"submitted": time.time()},
        )

    @classmethod
    def stored(cls, state: Mapping[str, Any]) -> Start:
        """The start in a spawner's state, after a restart of the hub."""
        reached = state.get("reached")
        return cls(
            deadline=parse_deadline(state),
            least_left=AFTER_RESTART,
            reached={
                str(stage): at
                for stage, at in (reached.items() if isinstance(reached, dict) else ())
                if isinstance(at, (int, float))
            },
        )

    def to_state(self) -> dict[str, Any]:
        """The start's part of the spawner's state."""
        state = self.deadline.to_state() if self.deadline is not None else {}
        return state | ({"reached": dict(self.reached)} if self.reached else {})

    def queued(self, profile: str) -> None:
        """sbatch has made a job of ``profile``."""
        self.reached["queued"] = time.time()
        self.times = StartTimes(profile)

    def reported(self) -> None:
        """The launcher has reported."""
        self.reached.setdefault("starting", time.time())
        if self.times is not None:
            self.times.reported()

    def job_started(self, at: float | None) -> None:
        """Slurm started the job then, in seconds since the epoch; None where it does not say."""
        if self.times is not None:
            self.times.started(at)

    def ready(self) -> None:
        """The server answers."""
        if self.times is not None:
            self.times.ready()

    def left(self, timeout: float) -> float:
        """Seconds until the start is given up; ``timeout`` is what a whole start gets."""
        left = self.deadline.left(clocks(), at_most=timeout) if self.deadline is not None else 0.0
        return max(left - min(_MARGIN, timeout / 10), self.least_left)
