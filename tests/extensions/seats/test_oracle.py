"""What the form says of random clusters, compared with Slurm's own scheduler.

About fifty with each change, and a thousand each night; ``GPUSPAWNER_CASES`` is how many instead of these.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence

import pytest

from jupyterhub_gpuspawner.batch.script import options
from jupyterhub_gpuspawner.extensions.availability.model.availability import availability
from jupyterhub_gpuspawner.extensions.seats.site import Request
from jupyterhub_gpuspawner.extensions.seats.twin import Answer, what_runs
from jupyterhub_gpuspawner.slurm.commands import Installation
from jupyterhub_gpuspawner.slurm.estimate import Chance
from jupyterhub_gpuspawner.slurm.snapshot import ClusterJob, ClusterSnapshot
from tests.extensions.seats.random_clusters import SITES, Case, cases, keep_nodes, site_of, snapshot_of, start, wait
from tests.extensions.seats.site_answers import NOW

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(1800)]

CHOSEN: dict[str, Sequence[int]] = {
    "cores and memory": (*range(8), 101),
    "CPUs and memory": range(9),
    "sockets": (*range(8), 92),
    "cores": (*range(6), 9, 28, 68),
    "memory for each CPU": (*range(6), 35, 42, 106),
    "memory of a node": (*range(4), 9, 35, 37, 80, 141),
}
"""Numbers of cases by site: some first ones, and of Slurm 22.05 those in which the form would be wrong without one of
its rules: that others are ahead on the same nodes, PLANNED, limits of slurm.conf, reservations, ExclusiveUser,
OverSubscribe and MaxCPUsPerNode.
"""
COUNT = int(os.environ.get("GPUSPAWNER_CASES", "0"))
CLUSTERS_PER_TWIN = 50
"""Clusters of one twin."""
FOR_NODES = ("Resources", "Priority")
"""Reasons of jobs for which Slurm keeps nodes."""
SEED = int(os.environ.get("GPUSPAWNER_SEED", "1"))


def chance_of(answer: Answer) -> Chance:
    """The twin's answer in the form's words."""
    if answer.runs:
        return Chance.NOW
    limit = answer.reason.startswith("Partition") or answer.reason == "MaxMemPerLimit"
    return Chance.NEVER if answer.refusal or limit else Chance.LATER


async def verdicts(of_site: str, numbers: Sequence[int]) -> list[tuple[Chance, Chance, Case]]:
    """What the form says of each of these cases, and what Slurm's scheduler does."""
    all_cases = cases(SEED, max(numbers) + 1, of_site)
    return [
        verdict
        for at in range(0, len(numbers), CLUSTERS_PER_TWIN)
        for verdict in await verdicts_of(
            of_site, [all_cases[number] for number in numbers[at : at + CLUSTERS_PER_TWIN]]
        )
    ]


async def verdicts_of(of_site: str, batch: Sequence[Case]) -> list[tuple[Chance, Chance, Case]]:
    """The same of some cases, about which one twin is asked."""
    requests = [
        Request(case.name, tuple(options(resources, case.policy)))
        for case in batch
        for resources in (*case.queue, case.resources)
    ]
    answers = await what_runs(site_of(batch, of_site), requests, at=NOW, slurm=Installation())
    notes = [note for note in answers.notes if not note.startswith("Counted by the scheduler of Slurm")]
    assert notes == []
    by_case = [[answer for answer in answers.answers if answer.name == case.name] for case in batch]
    jobs = [job for case, (*before, _) in zip(batch, by_case, strict=True) for job in queue_of(case, before)]
    snapshot = snapshot_of(batch, of_site, jobs)
    return [(said(case, snapshot), chance_of(own), case) for case, (*_, own) in zip(batch, by_case, strict=True)]


def said(case: Case, snapshot: ClusterSnapshot) -> Chance:
    """What the form says."""
    return availability(case.resources, snapshot, now=NOW, binds_cores=case.policy == "restricted").chance


def queue_of(case: Case, answers: Sequence[Answer]) -> Iterator[ClusterJob]:
    """The jobs of a case's queue as Slurm then reports them: some run, others wait; sbatch refuses the rest."""
    for at, (resources, answer) in enumerate(zip(case.queue, answers, strict=True)):
        if answer.runs:
            yield start(case, resources, answer.allocations)
        elif case.unseen and at == 0 and answer.reason in FOR_NODES:
            keep_nodes(case, resources)
        elif not answer.refusal:
            yield wait(case, at, resources, answer.reason)


def agree(form: Chance, slurm: Chance, case: Case) -> bool:
    """Whether the form says what Slurm does, or docs/explanation/seats.md says that it knows less."""
    return form is slurm or (form, slurm) in set(documented_differences(case))


def documented_differences(case: Case) -> Iterator[tuple[Chance, Chance]]:
    """What the form may say, and what Slurm then does: the table of docs/explanation/seats.md.

    Nothing is said to start now that Slurm does not start.
    """
    now, later, never = Chance.NOW, Chance.LATER, Chance.NEVER
    if case.queue:
        yield later, now
    if case.is_unknown_by_design:
        yield from ((Chance.UNKNOWN, chance) for chance in (now, later, never))
        yield later, never
    if any(machine.out for machine in case.machines):
        yield later, never
    if case.has_impossible_shards or case.waits_for_reservation:
        yield never, later
    if case.has_flexible_reservation:
        yield from ((later, now), (never, now), (never, later))
    if case.limit.startswith("OverSubscribe=FORCE") and case.resources.exclusive:
        yield later, now


@pytest.mark.parametrize("count", [COUNT, pytest.param(1000, marks=pytest.mark.nightly)])
async def test_the_form_promises_what_slurm_does(needs_slurm: None, count: int) -> None:
    """Starts now, later or never: where the form says one of them, so does Slurm's scheduler."""
    numbers = dict.fromkeys(SITES, range(-(-count // len(SITES)))) if count else CHOSEN
    groups = await asyncio.gather(*(verdicts(*of_site) for of_site in numbers.items()))
    compared = [verdict for group in groups for verdict in group]
    wrong = [
        f"form {form.value}, Slurm {slurm.value}: {case}"
        for form, slurm, case in compared
        if not agree(form, slurm, case)
    ]
    assert wrong == []
    assert {form for form, _, _ in compared} >= {Chance.NOW, Chance.LATER, Chance.NEVER}
