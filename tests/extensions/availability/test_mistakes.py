"""What a user reads of a mistake that the check finds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jupyterhub_gpuspawner.extensions.availability.forecast import ClusterNow
from jupyterhub_gpuspawner.slurm.job import job_owner
from jupyterhub_gpuspawner.slurm.messages import rejected
from tests.check import mistakes as of_core
from tests.check.mistakes import LISTED, Mistake
from tests.check.test_mistakes import assert_found
from tests.extensions.availability.mistakes import MISTAKES
from tests.extensions.availability.statuses import profile_statuses
from tests.slurm.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path

    from jupyterhub_gpuspawner.check.finding import Context


def read_by_user(where: Context, mistake: Mistake) -> str:
    """What a user reads beside the profile, or when a start is refused."""
    if mistake.refusal:
        return rejected(recorded("22.05", "sbatch", mistake.refusal).stderr).for_user
    (status, *_) = profile_statuses(
        where.profiles,
        username=mistake.user,
        groups=(),
        clusters={
            "": ClusterNow(where.snapshot, job_owner(where.spawner.exec_prefix, mistake.user), {"daemon": False})
        },
        now=where.now,
        defaults=where.defaults,
        choice={"profile": where.profiles[0].slug, **mistake.chosen} if where.profiles else {},
    )
    if status.refusal is not None:
        return status.refusal.text
    return status.availability.sentence if status.availability is not None else ""


ALL = {**of_core.MISTAKES, **MISTAKES}


@pytest.mark.usefixtures("utc")
@pytest.mark.parametrize("mistake", ALL.values(), ids=ALL.keys())
def test_a_mistake_is_found_before_a_user_reads_of_it(tmp_path: Path, mistake: Mistake) -> None:
    """The form's sentence, where it has one, is the user's side of it."""
    where = assert_found(tmp_path, mistake)

    assert read_by_user(where, mistake) == mistake.sentence.replace("LISTED", LISTED)
