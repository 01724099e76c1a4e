"""Which of an attempt's jobs runs its server, where another one may be submitted beside the one that waits.

Each of them asks the hub before it runs the server. The first one that asks wins, which is stored before it is told so;
the other one ends, and is cancelled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from jupyterhub_gpuspawner.slurm.job import Job, JobIdentity, Phase, identity_from_json

CONTEST = "contest"
"""The name of a :class:`Contest` in the spawner's state."""
SECONDS_BESIDE = 60.0
"""Seconds that a job which was to start at once may be pending beside the other one; Slurm's backfill runs in them."""


class Turn(Enum):
    """The answer to a job that asks whether it runs the server."""

    YOURS = "yours"
    ANOTHERS = "another's"
    NOT_YET = "not yet"


@dataclass(frozen=True)
class Rival:
    """The job beside the attempt's own."""

    identity: JobIdentity
    profile: Mapping[str, Any]
    """What the spawner's state has of the profile that it was submitted for."""
    job_id: str = ""
    """Empty until sbatch has answered."""
    lost: bool = False
    """It does not run the server, and is cancelled."""


@dataclass(frozen=True)
class Contest:
    """The job beside an attempt's own, and whether it is decided that the latter runs the server."""

    rival: Rival | None = None
    decided: bool = False

    def turn(self, job_id: str, own: str) -> Turn:
        """What the job with this id is told; ``own`` is the id of the attempt's own, empty until that is known."""
        if job_id == own:
            return Turn.YOURS
        is_rival = self.rival is not None and self.rival.job_id == job_id
        if self.decided or (is_rival and self.rival is not None and self.rival.lost):
            return Turn.ANOTHERS
        return Turn.YOURS if is_rival else Turn.NOT_YET

    @property
    def profile_beside(self) -> str:
        """The name of the profile of the job beside, while that may run the server; else empty."""
        rival = self.rival if not self.decided else None
        return "" if rival is None or rival.lost or not rival.job_id else str(rival.profile.get("display_name", ""))

    def won_by_own(self) -> Contest:
        """The attempt's own job runs the server."""
        return Contest(replace(self.rival, lost=True) if self.rival is not None else None, decided=True)

    def to_json(self) -> dict[str, Any]:
        """For the spawner's state."""
        rival, document = self.rival, {"decided": self.decided}
        if rival is None:
            return document
        fields = {"job_id": rival.job_id, "lost": rival.lost, "profile": dict(rival.profile)}
        return document | {"rival": {**fields, "identity": rival.identity.to_json()}}


def stored_contest(document: object) -> Contest | None:
    """Read what :meth:`Contest.to_json` wrote; None for anything else."""
    if not isinstance(document, dict):
        return None
    fields, decided = document.get("rival"), document.get("decided") is True
    identity = identity_from_json(fields.get("identity")) if isinstance(fields, dict) else None
    if not isinstance(fields, dict) or identity is None:
        return Contest(decided=decided)
    profile = fields.get("profile")
    rival = Rival(
        identity,
        profile if isinstance(profile, dict) else {},
        str(fields.get("job_id") or ""),
        lost=fields.get("lost") is True,
    )
    return Contest(rival, decided)


class Step(Enum):
    """What the hub does next about the job beside."""

    NOTHING = "nothing"
    LOOK = "look"
    """Look whether something that the user accepts is free, and submit it."""
    END = "end"
    """Cancel the job beside, until Slurm says that it is gone."""
    FORGET = "forget"
    """It has ended by itself."""


def next_step(contest: Contest, job: Job | None, *, waits: bool, silent: bool, seconds: float) -> Step:
    """The next step; ``job`` is the one beside as Slurm last reported it, which was submitted ``seconds`` ago.

    ``waits``: the attempt's own job is in line. While Slurm is ``silent``, nothing is begun, and nothing is concluded
    from what it said last. A job of which sbatch gave no id, or that a restart of the hub has kept from being stored,
    is not looked for to be used, but ended.
    """
    rival = contest.rival
    if rival is None:
        return Step.LOOK if waits and not silent and not contest.decided else Step.NOTHING
    if contest.decided or rival.lost or not rival.job_id:
        return Step.END
    if job is not None and job.phase is Phase.ENDED:
        return Step.FORGET
    is_late = job is not None and job.phase is Phase.QUEUED and seconds >= SECONDS_BESIDE
    return Step.END if is_late and not silent else Step.NOTHING
