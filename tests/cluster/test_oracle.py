"""What the form says of random clusters, compared with Slurm's own scheduler.

``GPUSPAWNER_CASES=1000`` asks about so many.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Sequence

import pytest

from jupyterhub_gpuspawner.batch.script import options
from jupyterhub_gpuspawner.cluster.availability import Chance, availability
from jupyterhub_gpuspawner.slurm.commands import Installation
from jupyterhub_gpuspawner.slurm.twin.ask import Answer, what_runs
from jupyterhub_gpuspawner.slurm.twin.site import Request
from tests.standins.random_clusters import PARAMETERS, Case, cases, site_of, snapshot_of
from tests.standins.site_answers import NOW

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(1800)]

COUNT = int(os.environ.get("GPUSPAWNER_CASES", "52"))
AT_ONCE = 50
"""Clusters of one twin."""
SEED = int(os.environ.get("GPUSPAWNER_SEED", "1"))


def chance_of(answer: Answer) -> Chance:
    """The twin's answer in the form's words."""
    if answer.runs:
        return Chance.NOW
    limit = answer.reason.startswith("Partition") or answer.reason == "MaxMemPerLimit"
    return Chance.NEVER if answer.refusal or limit else Chance.LATER


async def verdicts(parameters: str, count: int) -> list[tuple[Chance, Chance, Case]]:
    """What the form says of each case, and what Slurm's scheduler does."""
    every = cases(SEED, count, parameters)
    return [each for at in range(0, count, AT_ONCE) for each in await _verdicts(parameters, every[at : at + AT_ONCE])]


async def _verdicts(parameters: str, asked: Sequence[Case]) -> list[tuple[Chance, Chance, Case]]:
    requests = [Request(case.name, tuple(options(case.resources, "best-effort"))) for case in asked]
    answers = await what_runs(site_of(asked, parameters), requests, at=NOW, slurm=Installation())
    notes = [note for note in answers.notes if not note.startswith("Counted by the scheduler of Slurm")]
    assert notes == []
    snapshot = snapshot_of(asked, parameters)
    return [
        (availability(case.resources, snapshot, now=NOW).chance, chance_of(answer), case)
        for case, answer in zip(asked, answers.answers, strict=True)
    ]


def agree(form: Chance, slurm: Chance, case: Case) -> bool:
    """Whether the form says what Slurm does, or less where docs/explanation/seats.md says that it knows less."""
    if case.waits_for_reservation and slurm is Chance.LATER:
        return form in (Chance.LATER, Chance.NEVER)
    if case.has_flexible_reservation and slurm is not Chance.NEVER:
        return True
    if case.limit.startswith("OverSubscribe=FORCE") and case.resources.exclusive and slurm is Chance.NOW:
        return form in (Chance.NOW, Chance.LATER)
    return form is slurm


async def test_the_form_promises_what_slurm_does(needs_slurm: None) -> None:
    """Starts now, later or never: where the form says one of them, so does Slurm's scheduler."""
    found = await asyncio.gather(*(verdicts(parameters, COUNT // len(PARAMETERS)) for parameters in PARAMETERS))
    compared = [each for group in found for each in group]
    wrong = [
        f"form {form.value}, Slurm {slurm.value}: {case}"
        for form, slurm, case in compared
        if not agree(form, slurm, case)
    ]
    assert wrong == []
    assert set(Counter(form for form, _, _ in compared)) == {Chance.NOW, Chance.LATER, Chance.NEVER}
