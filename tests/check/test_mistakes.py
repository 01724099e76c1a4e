"""Every mistake is found, with its place and what would be right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jupyterhub_gpuspawner.check.finding import Severity
from jupyterhub_gpuspawner.check.run import line
from tests.check.mistakes import LISTED, MISTAKES, Mistake
from tests.check.sites import RecordedClient, context, findings_in

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


def assert_found(folder: Path, mistake: Mistake) -> Context:
    """One finding that is not in order; returns where it was looked for."""
    where = site(folder, mistake)
    alarms = [line(finding) for finding in findings_in(where) if finding.severity is not Severity.OK]

    assert alarms == [mistake.finding.replace("LISTED", LISTED)]
    return where


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_found(tmp_path: Path, mistake: Mistake) -> None:
    """Those of extensions are found by their own checks."""
    assert_found(tmp_path, mistake)
