"""Every mistake is found, with its place and what would be right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jupyterhub_gpuspawner.check.finding import Severity
from jupyterhub_gpuspawner.check.run import line
from jupyterhub_gpuspawner.hub.choose.offer import ClusterNow, profile_statuses
from jupyterhub_gpuspawner.slurm.job import job_owner
from jupyterhub_gpuspawner.slurm.messages import rejected
from tests.check.mistakes import LISTED, MISTAKES, Mistake
from tests.check.sites import RecordedClient, context, findings_in
from tests.slurm.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path

    from jupyterhub_gpuspawner.check.finding import Context


def site(folder: Path, mistake: Mistake) -> Context:
    """The hub with a mistake."""
    lines = f"c.GPUProfilesSpawner.profiles = [{mistake.profiles}]\n{mistake.settings}\n"
    for name, text in mistake.files.items():
        kind, _, file = name.partition("/")
        (folder / kind).mkdir(exist_ok=True)
        (folder / kind / file).write_text(text)
        lines += f"c.GPUProfilesSpawner.{kind}_dir = {str(folder / kind)!r}\n"
    client = RecordedClient(accounting=mistake.accounting, trial=mistake.trial)
    return context(folder, lines, snapshot=mistake.snapshot, client=client, options=mistake.options)


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


def assert_found(folder: Path, mistake: Mistake) -> None:
    """One finding that is not in order; the form's sentence, where it has one, is the user's side of it."""
    where = site(folder, mistake)
    alarms = [line(finding) for finding in findings_in(where) if finding.severity is not Severity.OK]

    assert (alarms, read_by_user(where, mistake)) == (
        [mistake.finding.replace("LISTED", LISTED)],
        mistake.sentence.replace("LISTED", LISTED),
    )


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_found_before_a_user_reads_of_it(tmp_path: Path, mistake: Mistake) -> None:
    """Those of extensions are found by their own checks."""
    assert_found(tmp_path, mistake)
