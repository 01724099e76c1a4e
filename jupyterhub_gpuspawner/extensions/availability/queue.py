"""A server whose job is pending: its position in the queue, when it was said to start, and why that has changed."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from jupyterhub_gpuspawner.extensions.availability.api import expected_of
from jupyterhub_gpuspawner.extensions.availability.groups import allowed_groups
from jupyterhub_gpuspawner.extensions.availability.model.availability import availability
from jupyterhub_gpuspawner.extensions.availability.model.capacity import queue_position, queue_view
from jupyterhub_gpuspawner.extensions.availability.model.change import (
    ChangeCause,
    QueueView,
    cause_of_change,
    is_changed,
)
from jupyterhub_gpuspawner.hub.extension import WithServer
from jupyterhub_gpuspawner.profiles.resolve import JobRequest
from jupyterhub_gpuspawner.slurm.estimate import UNKNOWN, Availability, Chance, Estimate, QueuePosition
from jupyterhub_gpuspawner.slurm.job import Phase, job_owner
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot
from jupyterhub_gpuspawner.words import sentence

QUEUE_SECONDS = 60.0
"""Seconds for which the position in the queue is not asked for again."""
NEW_JOB_SECONDS = 15.0
"""The same for a job that was not in the queue."""
CLICK_PATIENCE = 0.5
"""Seconds that a click waits for a view of the cluster in which the clicks before it are."""
PLAN_SECONDS = 90.0
"""Age of the view of the queue from which the watcher's own answer says better when Slurm plans to start a job."""


class InQueue(WithServer):
    """What is known of one server's job while it is pending; a restarted hub begins anew."""

    def __init__(self, spawner: Any) -> None:
        super().__init__(spawner)
        self._read: tuple[ClusterSnapshot, str, QueuePosition | None] | None = None
        """The snapshot from which the position was read, of which job, and that position."""
        self._said: _Said | None = None

    def forget(self) -> None:
        """There is no job."""
        self._read = self._said = None

    async def refresh_waiting(self, patience: float) -> None:
        """While the job is pending, update the hub's view of the queue; takes ``patience`` seconds at most.

        One question serves all jobs. With the watcher's questions that stays below one RPC in a second, however many
        are pending.
        """
        status = self.spawner.watch.status
        if status is not None and status.phase is Phase.QUEUED:
            max_age = NEW_JOB_SECONDS if self.queue_position() is None else QUEUE_SECONDS
            await self.spawner.connection().view.recent(max_age, patience)

    async def availability(self, request: JobRequest) -> Availability | None:
        """As the form says, by the view that pages share and the last trial; None where that view is old."""
        snapshot = await self.spawner.connection().view.recent(NEW_JOB_SECONDS, CLICK_PATIENCE)
        if snapshot is None or time.time() - snapshot.taken_at > PLAN_SECONDS:
            return None
        return await expected_of(self.spawner, request, snapshot)

    async def why_never(self, request: JobRequest, *, since: float) -> str:
        """Why its job can never run, in the words of the form.

        A view from before ``since`` may contradict what Slurm has just said, for example about a partition that was
        created in between.
        """
        snapshot = await self.spawner.connection().view.recent(max_age=time.time() - since)
        if snapshot is None:
            return ""
        owner = job_owner(self.spawner.exec_prefix, request.username)
        groups = await allowed_groups(snapshot, owner)
        fit = availability(request.resources, snapshot, now=time.time(), user=owner, groups=groups)
        return sentence(fit.sentence) if fit.chance is Chance.NEVER else ""

    def queue_position(self) -> QueuePosition | None:
        """The job's position among the pending jobs of its partition; None unless it is one, and the view has it."""
        snapshot, watch = self.spawner.connection().view.latest, self.spawner.watch
        if snapshot is None or watch.status is None or watch.status.phase is not Phase.QUEUED:
            return None
        if self._read is None or self._read[0] is not snapshot or self._read[1] != watch.job_id:
            self._read = snapshot, watch.job_id, queue_position(snapshot, watch.job_id)
        position = self._read[2]
        if position is not None and time.time() - snapshot.taken_at > PLAN_SECONDS:
            return replace(position, starts_at=None)
        return position

    def expects(self, estimate: Estimate, partition: str, *, now: float) -> None:
        """Note what is said now, and why it is something else than before."""
        job_id = self.spawner.job_id
        if self._said is None or self._said.job_id != job_id:
            self._said = _Said(job_id)
        self._said.follow(estimate, self.spawner.connection().view.latest, partition, now=now)

    def change(self) -> str:
        """Why the job is expected to start at another time, by more than a fifth of the wait, than before."""
        return self._said.change if self._said is not None and self._said.job_id == self.spawner.job_id else ""


class _Said:
    """What was said of the start of one job."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        self.change = ""
        """Why it changed last, in a sentence."""
        self._estimate: Estimate = UNKNOWN
        self._view: QueueView | None = None
        """The queue when that was said, with whatever has held its nodes since."""
        self._seen: QueueView | None = None
        """The last view of it."""
        self._open: tuple[QueueView | None, bool, float] | None = None
        """A change without a known cause: the queue before it, whether it is later, and when it was said."""

    def follow(self, estimate: Estimate, snapshot: ClusterSnapshot | None, partition: str, *, now: float) -> None:
        if estimate.likely is None:
            return
        view = queue_view(snapshot, partition) if snapshot is not None else None
        if view is not None and view is not self._seen:
            self._view = self._view.until(view) if self._view is not None else view
            self._seen = view
        if self._estimate.likely is None:
            self._estimate = estimate
        elif is_changed(self._estimate, estimate, now=now):
            self._open = self._view, estimate.likely > self._estimate.likely, now
            self._estimate, self._view = estimate, view
        if self._open is not None:
            before, later, said_at = self._open
            change = cause_of_change(before, view, self.job_id, later=later)
            self.change = change.words
            if change.cause is not ChangeCause.NEW_ESTIMATE or (view is not None and view.taken_at > said_at):
                self._open = None
