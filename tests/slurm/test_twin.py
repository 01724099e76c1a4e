"""The twin: which jobs a site's Slurm would start, from a slurmctld of nodes that do not exist."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.slurm.commands import Installation
from jupyterhub_gpuspawner.slurm.twin.ask import Answer, Answers, what_runs
from jupyterhub_gpuspawner.slurm.twin.site import Request, Site
from tests.standins.site_answers import NOW, job, node, partition, reservation, site

pytestmark = pytest.mark.slurm


@pytest.fixture
def slurm(needs_slurm: None) -> Installation:
    return Installation()


async def ask(slurm: Installation, of: Site, *options: str, at: float = NOW) -> Answers:
    """Ask for one job with each of these options."""
    return await what_runs(of, [Request(each, tuple(each.split("; "))) for each in options], at=at, slurm=slurm)


def words(answer: Answer) -> str:
    """Where and on what a job runs, or why not."""
    return (
        answer.refusal
        or answer.reason
        or ", ".join(
            f"{part.node} {part.gres[0].indices if part.gres else ''} {part.cpu_ids}" for part in answer.allocations
        )
    )


async def test_a_course_gets_what_its_reservation_has_left(slurm: Installation) -> None:
    """Jobs that still run then hold their GPUs; those that end before, and nodes out of service, hold nothing."""
    of = site(
        [node("g1", "gpu:k80:4(S:0-1)"), node("g2", "gpu:k80:4"), node("g3", "gpu:k80:4", state="IDLE+DRAIN")],
        [partition("gpu", "g[1-3]")],
        jobs=job(7, "g1", "0-3", "gpu:k80:2(IDX:0-1)", ends_in=7200)
        + job(8, "g1", "4", "gpu:k80:1(IDX:2)", ends_in=60),
        reservations=reservation("class", "g[1,3]", begins_in=3600, ends_in=10800),
    )
    one = "--reservation=class; --gres=gpu:k80:1; -c 2 --mem=1000; --time=60"
    answers = await ask(slurm, of, one, one, one, "--gres=gpu:5", "--gres=gpu:4; --mem=10; -c1", at=NOW + 3600)
    assert [words(answer) for answer in answers.answers] == [
        "g1 (2,) (4, 5)",
        "g1 (3,) (6, 7)",
        "Resources",
        "sbatch: error: Batch job submission failed: Requested node configuration is not available",
        "g2 (0, 1, 2, 3) (0,)",
    ]
    assert answers.notes == ()
