"""Decides whether a server is idle, from the summaries of its use and the rule of its profile. Pure.

A server's use is followed summary by summary: :func:`follow` keeps the time since which every summary has said that
nothing was used. A summary in which something was used, or in which the use of one of the GPUs is not known, ends that
time, and so does one that is missing. :func:`judge` compares that time with the rule. It counts to the end of the
last summary and not to the present, so that work of the last minutes, of which no summary tells yet, is not overlooked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from jupyterhub_gpuspawner.extensions.idle.fields import IdleAction, IdleRule
from jupyterhub_gpuspawner.extensions.idle.times import IdleTime
from jupyterhub_gpuspawner.extensions.usage.node.summary import SAMPLES
from jupyterhub_gpuspawner.extensions.usage.use import LATE, Use
from jupyterhub_gpuspawner.wire.documents import PlacementDocument

UNUSED_PERCENT = 2.0
"""Up to this utilisation a GPU counts as unused: asking for it can itself show as one or two per cent."""
UNUSED_CORES = 0.2
"""The same for the cores of a server without GPUs: an open JupyterLab that does nothing takes a few hundredths."""
MUCH = 0.25
"""The share of a GPU's memory from which on :attr:`IdleRule.held` applies."""


class Using(Enum):
    """What a summary says of a server's GPUs, or of the cores of one without GPUs."""

    USED = "used"
    UNUSED = "unused"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Span:
    """A time of which one summary tells, or several in a row. Times are in seconds since the epoch."""

    since: float
    seen: float
    """The end of its last summary."""
    using: Using = Using.UNUSED
    most: float = 0.0
    """The highest utilisation of a GPU in per cent; of a server without GPUs, the most cores."""
    held_mib: int = 0
    """GPU memory that was held at its end."""
    much: bool = False
    """That is much of a GPU's memory."""


class State(str, Enum):
    """How a server stands."""

    EXEMPT = "exempt"
    """Its rule does not apply to it, or not now: a course's session is under way."""
    UNKNOWN = "unknown"
    """What it uses is not known."""
    BUSY = "busy"
    """It used something in its last summary."""
    IDLE = "idle"
    """It has used nothing since then."""
    WARNED = "warned"
    """It has used nothing for so long that its user is told."""
    DUE = "due"
    """It is to be stopped, where the rule says so."""


@dataclass(frozen=True)
class Verdict:
    """How a server stands, and why."""

    state: State
    since: float | None = None
    """Since when it has used nothing that counts; None unless it is idle."""
    due_at: float | None = None
    """When it is due if nothing changes: with a summary, which alone tells it. None unless it is idle."""
    warnings: int = 0
    """How many of the rule's warnings are due."""


def span_of(use: Use, placement: PlacementDocument) -> Span:
    """What a summary says of a server with this placement.

    All of its GPUs must be known in all samples: one that is used is enough to be busy, one that is unknown to be
    unknown. A job on several nodes is measured on its first one, so it is unknown unless it is busy there.
    """
    summary = use.summary
    if not has_gpus(placement):
        most = summary.cores_max
        if most is not None and most > UNUSED_CORES:
            using = Using.USED
        elif most is None or placement.other_nodes:
            using = Using.UNKNOWN
        else:
            using = Using.UNUSED
        return Span(use.since, use.at, using, most or 0.0)
    most = max((gpu.utilization_max for gpu in summary.gpus if gpu.utilization_max is not None), default=0.0)
    measured = [gpu for gpu in summary.gpus if gpu.utilization_samples >= max(1, summary.samples)]
    elsewhere = any(node.gpus for node in placement.other_nodes)
    if most > UNUSED_PERCENT:
        using = Using.USED
    elif elsewhere or len(measured) < len(placement.gpus):
        using = Using.UNKNOWN
    else:
        using = Using.UNUSED
    held = [(gpu.memory_used_mib or 0, gpu.memory_mib or 0) for gpu in summary.gpus]
    much = any(total and used >= MUCH * total for used, total in held)
    return Span(use.since, use.at, using, most, sum(used for used, _ in held), much)


def has_gpus(placement: PlacementDocument) -> bool:
    """Whether a server has GPUs, on its node or on others."""
    return bool(placement.gpus) or any(node.gpus for node in placement.other_nodes)


def follow(unused: Span | None, spans: Iterable[Span]) -> Span | None:
    """The time without use after these summaries, oldest first; None where the last one is not without use.

    A time of which no summary tells is unknown, so the time without use begins anew after it.
    """
    for span in spans:
        if span.using is not Using.UNUSED:
            unused = None
        elif unused is None or span.since > unused.seen + LATE:
            unused = span
        else:
            unused = replace(span, since=unused.since, most=max(unused.most, span.most))
    return unused


def judge(server: IdleServer) -> Verdict:
    """How a server stands by its rule.

    With GPUs it is due when they have not been used for :attr:`IdleRule.gpu` and, where the rule has
    :attr:`IdleRule.kernel`, JupyterHub has seen no activity for that long; without GPUs, when its cores have not been
    used and there was no activity for :attr:`IdleRule.kernel`. Where its user is told, it is not due before the last
    warning has been there as long as the rule says.
    """
    unused, rule = server.unused, server.rule
    limit = rule.limit(gpus=server.gpus, held=unused is not None and unused.much)
    if limit is None or server.in_session:
        return Verdict(State.EXEMPT)
    if server.using is Using.UNKNOWN or (rule.kernel is not None and server.last_activity is None):
        return Verdict(State.UNKNOWN)
    if unused is None:
        return Verdict(State.BUSY)
    since, due_at = _due(server, unused, limit)
    # by the rule alone: a notice that came late puts off the stop, and not itself
    warnings = sum(unused.seen >= due_at - lead for lead in rule.leads)
    if rule.action is not IdleAction.REPORT and rule.leads:
        told_at = server.told_at if server.told_at is not None else unused.seen
        if unused.seen >= due_at - rule.leads[0]:
            due_at = max(due_at, told_at + rule.leads[-1])
    state = State.DUE if unused.seen >= due_at else State.WARNED if warnings else State.IDLE
    if state is not State.DUE and server.every:
        due_at = unused.seen + math.ceil((due_at - unused.seen) / server.every) * server.every
    return Verdict(state, since, due_at, warnings)


def _due(server: IdleServer, unused: Span, limit: float) -> tuple[float, float]:
    """Since when a server has used nothing that counts, and when it is due by its rule and by what it was kept for."""
    rule = server.rule
    active = server.last_activity if rule.kernel is not None and server.last_activity is not None else 0.0
    since = max(unused.since, server.session_ended)
    if not server.gpus:
        since = max(since, active)
    return since, max(since + limit, active + (rule.kernel or 0)) + server.kept


DEFAULT = IdleRule()
NOT_YET = Verdict(State.UNKNOWN)


@dataclass(frozen=True)
class IdleServer:
    """How one server stands."""

    job_id: str
    gpus: bool
    """It has GPUs."""
    rule: IdleRule = DEFAULT
    using: Using = Using.UNKNOWN
    """By its last summary; UNKNOWN where that is too old, or there is none."""
    unused: Span | None = None
    """The time since which every summary says that nothing was used."""
    last_activity: float | None = None
    """When JupyterHub last saw activity of the server; None: not known."""
    in_session: bool = False
    """It is a course's, and a session of the course is under way."""
    session_ended: float = 0.0
    """When the course's last session ended."""
    every: float = 0.0
    """Seconds between two summaries; 0: not known."""
    read_to: float = 0.0
    """When the hub got the last summary that has been read."""
    keeps_before: int = 0
    """How often its user has kept it in earlier idle times."""
    keeps: int = 0
    """How often in this one."""
    kept: float = 0.0
    """For how many seconds it was kept in this one, by whomever."""
    told_at: float | None = None
    """When its user was first told, since it was last used or kept."""
    row: IdleTime | None = None
    """What the database has of this idle time."""
    verdict: Verdict = NOT_YET

    @property
    def is_announced(self) -> bool:
        """Its user is told now."""
        return self.rule.action is not IdleAction.REPORT and self.verdict.state in (State.WARNED, State.DUE)

    @property
    def keeps_left(self) -> int:
        """How often its user can still keep it."""
        return max(0, self.rule.keep_times - self.keeps_before - self.keeps)

    def evaluated(
        self,
        usage: Sequence[Use],
        placement: PlacementDocument,
        rule: IdleRule,
        *,
        now: float,
        last_activity: float | None = None,
        in_session: bool = False,
        session_ended: float = 0.0,
    ) -> IdleServer:
        """How it stands after these summaries, of which those that have been read are left out. Pure."""
        server = replace(
            self,
            rule=rule,
            using=Using.UNKNOWN,
            unused=follow(self.unused, [span_of(use, placement) for use in usage if use.at > self.read_to]),
            last_activity=last_activity,
            in_session=in_session,
            session_ended=session_ended,
            every=0.0,
        )
        if usage:
            last = usage[-1]
            using = span_of(last, placement).using if last.is_current(now) else Using.UNKNOWN
            server = replace(server, using=using, every=SAMPLES * last.summary.interval, read_to=last.at)
        unused = server.unused
        if self.unused is not None and (unused is None or unused.since != self.unused.since):
            before = self.keeps_before + self.keeps
            server = replace(server, keeps_before=before, keeps=0, kept=0.0, told_at=None, row=None)
        return server.with_verdict(now)

    def with_verdict(self, now: float) -> IdleServer:
        """With the verdict of now; told for the first time if that is due."""
        server = replace(self, verdict=judge(self))
        if not server.is_announced:
            return replace(server, told_at=None)
        if server.told_at is not None:
            return server
        announced = replace(server, told_at=now)
        return replace(announced, verdict=judge(announced))

    def prolonged(self, now: float, *, staff: bool = False) -> IdleServer:
        """Left alone for as long as its rule says; that ``staff`` does not count as one of its user's times.

        From when it would be due, or from now if that is past. Where nothing is stopped, its user is told no more for
        that time.
        """
        rule, unused = self.rule, self.unused
        limit = rule.limit(gpus=self.gpus, held=unused is not None and unused.much)
        by = float(rule.keep_by)
        if unused is not None and limit is not None:
            _, due_at = _due(self, unused, limit)
            until = now + max(rule.leads, default=0.0) if rule.action is IdleAction.NOTIFY else now
            by += max(0.0, until - due_at)
        keeps = self.keeps if staff else self.keeps + 1
        return replace(self, keeps=keeps, kept=self.kept + by, told_at=None).with_verdict(now)
