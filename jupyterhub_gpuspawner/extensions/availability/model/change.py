"""Why a job is expected to start at another time than before, from two views of its queue. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from jupyterhub_gpuspawner.slurm.estimate import MINUTE, Estimate
from jupyterhub_gpuspawner.words import people, some


@dataclass(frozen=True)
class QueueView:
    """What decides when the pending jobs of a partition start, at one moment."""

    taken_at: float
    order: tuple[str, ...] = ()
    """The ids of the pending jobs, in the order in which Slurm considers them."""
    people: Mapping[str, str] = field(default_factory=dict)
    """Whose they are, by id."""
    ends: Mapping[str, float | None] = field(default_factory=dict)
    """The jobs that hold the partition's nodes, with the ends of their time limits."""
    nodes: frozenset[str] = frozenset()
    """Its nodes that are in service."""

    def until(self, after: QueueView) -> QueueView:
        """The same with the jobs that hold its nodes in a later one, too."""
        return replace(self, ends={**after.ends, **self.ends})

    def ahead_of(self, job_id: str) -> tuple[str, ...]:
        """The jobs ahead of this one."""
        return self.order[: self.order.index(job_id)] if job_id in self.order else ()


class ChangeCause(str, Enum):
    """Why a job is expected to start at another time than before."""

    OVERTAKEN = "overtaken"
    NODE_LOST = "node lost"
    ENDED_LATE = "ended late"
    ENDED_EARLY = "ended early"
    LEFT_QUEUE = "left queue"
    NODE_BACK = "node back"
    NEW_ESTIMATE = "new estimate"
    """Nothing else is known than that Slurm says something else."""


@dataclass(frozen=True)
class Change:
    """A change of an estimate, and its cause."""

    later: bool
    cause: ChangeCause
    names: tuple[str, ...] = ()
    """Of nodes, or of people."""

    @property
    def words(self) -> str:
        """A sentence, such as ``Later than before: 2 people with a higher priority came``."""
        what = {
            ChangeCause.OVERTAKEN: f"{people(len(self.names))} with a higher priority came",
            ChangeCause.NODE_LOST: f"node{'s' * (len(self.names) > 1)} {some(self.names)} went out of service",
            ChangeCause.ENDED_LATE: "a job runs longer than it was expected to",
            ChangeCause.ENDED_EARLY: "a job ended before its time limit",
            ChangeCause.LEFT_QUEUE: f"{people(len(self.names))} ahead of you left the line",
            ChangeCause.NODE_BACK: f"node{'s' * (len(self.names) > 1)} {some(self.names)} came back into service",
            ChangeCause.NEW_ESTIMATE: "Slurm has a new estimate",
        }[self.cause]
        return f"{'Later' if self.later else 'Sooner'} than before: {what}."


def is_changed(before: Estimate, after: Estimate, *, now: float) -> bool:
    """Whether the start is expected more than a fifth of the wait, and more than a minute, sooner or later."""
    if before.likely is None or after.likely is None:
        return False
    return abs(after.likely - before.likely) > max(MINUTE, (before.likely - now) / 5)


def cause_of_change(before: QueueView | None, after: QueueView | None, job_id: str, *, later: bool) -> Change:
    """Why ``job_id`` is expected to start sooner or later, as far as the two views of its queue tell."""
    if before is None or after is None or before.taken_at >= after.taken_at:
        return Change(later, ChangeCause.NEW_ESTIMATE)
    causes = (_delays if later else _reliefs)(before, after, job_id)
    cause, names = next(((cause, names) for cause, names in causes if names), (ChangeCause.NEW_ESTIMATE, ()))
    return Change(later, cause, tuple(sorted(names)))


def _delays(before: QueueView, after: QueueView, job_id: str) -> Sequence[tuple[ChangeCause, Collection[str]]]:
    own = after.people.get(job_id, "")
    came = set(after.ahead_of(job_id)) - set(before.ahead_of(job_id))
    late = [
        job
        for job, end in before.ends.items()
        if end is not None and job in after.ends and ((until := after.ends[job]) is None or until > end + MINUTE)
    ]
    over = [job for job, end in before.ends.items() if end is not None and end < after.taken_at and job in after.ends]
    return (
        (ChangeCause.OVERTAKEN, {after.people[job] for job in came} - {own}),
        (ChangeCause.NODE_LOST, before.nodes - after.nodes),
        (ChangeCause.ENDED_LATE, {*late, *over}),
    )


def _reliefs(before: QueueView, after: QueueView, job_id: str) -> Sequence[tuple[ChangeCause, Collection[str]]]:
    own = before.people.get(job_id, "")
    early = [
        job
        for job, end in before.ends.items()
        if end is not None and end > after.taken_at + MINUTE and job not in after.ends
    ]
    left = set(before.ahead_of(job_id)) - set(after.order) - after.ends.keys() - before.ends.keys()
    return (
        (ChangeCause.NODE_BACK, after.nodes - before.nodes),
        (ChangeCause.ENDED_EARLY, early),
        (ChangeCause.LEFT_QUEUE, {before.people[job] for job in left} - {own}),
    )
