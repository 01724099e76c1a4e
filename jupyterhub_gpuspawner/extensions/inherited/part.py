"""What the card shows of a server that runs and of which no launcher has reported: batchspawner started it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jupyterhub_gpuspawner.hub.extension import Place, ServerPart
from jupyterhub_gpuspawner.hub.spawners.server import Server, ServerState

STARTED_BEFORE = "It was started before this hub was changed. From its next start on, its GPUs and more are shown here."


@dataclass(frozen=True)
class Shown:
    """Where a server runs, by Slurm's word."""

    where: str
    """``{time}`` stands for :attr:`until`."""
    until: str | None
    """The end of its job, ISO 8601, UTC; None where Slurm names none."""
    why: str = STARTED_BEFORE


def parts_of(_spawner: Any, server: Server) -> Iterator[ServerPart]:
    """The part of such a server; others have none."""
    job = server.job
    if server.state is not ServerState.RUNNING or server.placement is not None or job is None or not job.batch_host:
        return
    until = job.ends_at_iso
    shown = Shown(f"It runs on {job.batch_host}{'' if until is None else ' until {time}'}.", until)
    yield ServerPart("inherited", Place.NOTICE, "inherited_card.html", shown, version=repr(shown))
