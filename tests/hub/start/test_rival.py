"""Which of two jobs runs a server, and what the hub does about the one beside, for each state and each event."""

from __future__ import annotations

import json

import pytest

from jupyterhub_gpuspawner.hub.start.rival import (
    SECONDS_BESIDE,
    Contest,
    Rival,
    Step,
    Turn,
    next_step,
    stored_contest,
)
from jupyterhub_gpuspawner.slurm.job import Job, JobIdentity, Phase

OWN, BESIDE, UNKNOWN = "7", "8", "9"
IDENTITY = JobIdentity("ada", 2001, "jupyterhub-gpuspawner/hub/ada/#mark-2")
ASKED = Rival(IDENTITY, {"profile": "light", "kind": "slurm"})
SUBMITTED = Rival(IDENTITY, ASKED.profile, BESIDE)
LOST = Rival(IDENTITY, ASKED.profile, BESIDE, lost=True)

YOURS, ANOTHERS, NOT_YET = Turn.YOURS, Turn.ANOTHERS, Turn.NOT_YET
CONTESTS: dict[str, tuple[Contest, str, tuple[Turn, Turn, Turn]]] = {
    "own job without an id": (Contest(), "", (NOT_YET, NOT_YET, NOT_YET)),
    "own job alone": (Contest(), OWN, (YOURS, NOT_YET, NOT_YET)),
    "job beside without an id": (Contest(ASKED), OWN, (YOURS, NOT_YET, NOT_YET)),
    "two jobs": (Contest(SUBMITTED), OWN, (YOURS, YOURS, NOT_YET)),
    "job beside is withdrawn": (Contest(LOST), OWN, (YOURS, ANOTHERS, NOT_YET)),
    "decided alone": (Contest(decided=True), OWN, (YOURS, ANOTHERS, ANOTHERS)),
    "decided of two": (Contest(LOST, decided=True), OWN, (YOURS, ANOTHERS, ANOTHERS)),
    "decided without the other's id": (Contest(ASKED, decided=True), OWN, (YOURS, ANOTHERS, ANOTHERS)),
}
"""The contest, the id of the attempt's own job, and what the own job, the one beside, and any other are told."""


@pytest.mark.parametrize("name", CONTESTS)
def test_at_most_one_job_is_told_that_it_runs_the_server_once_that_is_decided(name: str) -> None:
    """Before, whoever asks first decides it; a job that nobody knows waits, and is never told that it does."""
    contest, own, answers = CONTESTS[name]

    assert tuple(contest.turn(job_id, own) for job_id in (OWN, BESIDE, UNKNOWN)) == answers


@pytest.mark.parametrize("contest", [Contest(), Contest(ASKED), Contest(SUBMITTED), Contest(LOST)])
def test_an_own_job_that_runs_the_server_leaves_nothing_to_the_one_beside(contest: Contest) -> None:
    """Not even to one whose id comes later."""
    decided = contest.won_by_own()

    assert (decided.decided, decided.turn(OWN, OWN), decided.turn(BESIDE, OWN)) == (True, YOURS, ANOTHERS)
    assert decided.rival is None or decided.rival.lost


PENDING, RUNNING, ENDED = (Job(BESIDE, phase) for phase in (Phase.QUEUED, Phase.RUNNING, Phase.ENDED))
LATE = SECONDS_BESIDE
STEPS: list[tuple[Contest, Job | None, bool, bool, float, Step]] = [
    (Contest(), None, True, False, 0, Step.LOOK),
    (Contest(), None, True, True, 0, Step.NOTHING),
    (Contest(), None, False, False, 0, Step.NOTHING),
    (Contest(decided=True), None, True, False, 0, Step.NOTHING),
    (Contest(ASKED), None, True, False, 0, Step.END),
    (Contest(ASKED), None, True, True, 0, Step.END),
    (Contest(SUBMITTED), None, True, False, LATE, Step.NOTHING),
    (Contest(SUBMITTED), PENDING, True, False, LATE - 1, Step.NOTHING),
    (Contest(SUBMITTED), PENDING, True, False, LATE, Step.END),
    (Contest(SUBMITTED), PENDING, True, True, LATE, Step.NOTHING),
    (Contest(SUBMITTED), RUNNING, True, False, LATE, Step.NOTHING),
    (Contest(SUBMITTED), ENDED, True, False, 0, Step.FORGET),
    (Contest(SUBMITTED, decided=True), RUNNING, False, False, 0, Step.END),
    (Contest(LOST), RUNNING, True, False, 0, Step.END),
    (Contest(LOST), None, True, True, 0, Step.END),
]
"""The contest, the job beside by Slurm's last answer, whether the own job waits, Slurm's silence, seconds, the step."""


@pytest.mark.parametrize(("contest", "job", "waits", "silent", "seconds", "step"), STEPS)
def test_the_next_step_follows_from_the_two_jobs_alone(
    contest: Contest, job: Job | None, waits: bool, silent: bool, seconds: float, step: Step
) -> None:
    """Nothing is submitted beside unless the own job waits and Slurm answers, and never a third job."""
    assert next_step(contest, job, waits=waits, silent=silent, seconds=seconds) is step


@pytest.mark.parametrize("contest", [contest for contest, _, _ in CONTESTS.values()])
def test_a_contest_is_read_back_as_it_was_stored(contest: Contest) -> None:
    """A hub that is restarted goes on with it."""
    assert stored_contest(json.loads(json.dumps(contest.to_json()))) == contest


@pytest.mark.parametrize(
    ("document", "contest"),
    [
        (None, None),
        ("decided", None),
        ({}, Contest()),
        ({"decided": "yes", "rival": 8}, Contest()),
        ({"decided": True, "rival": {"job_id": "8"}}, Contest(decided=True)),
    ],
)
def test_what_cannot_be_read_of_a_contest_is_dropped(document: object, contest: Contest | None) -> None:
    """A job beside without an identity could be anybody's."""
    assert stored_contest(document) == contest
