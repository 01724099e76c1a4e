"""Running the checks: what keeps one of them from being finished is one finding, and the others stay."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from jupyterhub_gpuspawner.check import requests, run
from jupyterhub_gpuspawner.check.finding import Context, Finding, Severity, Verdict
from jupyterhub_gpuspawner.check.requests import REFUSED
from jupyterhub_gpuspawner.check.run import REFERENCES, checks_of, findings
from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.extension import Extension, Extensions
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot, SlurmConfig
from jupyterhub_gpuspawner.slurm.text import UnparsedField
from tests.check.sites import HEAD, RecordedClient, context, findings_in
from tests.cli.runner import run as run_command
from tests.cli.test_check import ONE_ACCOUNT
from tests.snapshots import recorded_snapshot

FINDING = Finding(Severity.OK, "x", "x", "found before the error")
PROFILE = 'c.GPUProfilesSpawner.profiles = [{"display_name": "CPU", "slurm": {"partition": "batch"}}]\n'


class WithoutConfig(RecordedClient):
    """Slurm's settings cannot be read."""

    async def config(self) -> SlurmConfig:
        """An answer that is cut off."""
        raise SlurmOutputError("scontrol show config did not report PrivateData.")


def test_an_answer_that_cannot_be_read_is_one_finding(tmp_path: Path) -> None:
    """Several checks ask for it; what they find otherwise is told, too."""
    report = findings_in(context(tmp_path, PROFILE, client=WithoutConfig()))

    assert [(finding.severity, finding.code) for finding in report] == [
        (Severity.OK, "profile"),
        (Severity.OK, "slurm"),
        (Severity.ERROR, "slurm-answer"),
    ]


def test_what_cannot_be_read_of_a_cluster_is_named(tmp_path: Path) -> None:
    """The form says of what depends on it that it is not known."""
    unread = (
        UnparsedField("partition", "gpu", "MaxTime", partial=True),
        UnparsedField("configuration", "slurm.conf", ""),
    )
    report = findings_in(context(tmp_path, PROFILE, snapshot=replace(recorded_snapshot("22.05"), unread=unread)))

    assert [(finding.severity, finding.text) for finding in report if finding.code == "slurm-answer"] == [
        (
            Severity.WARNING,
            "the description of partition gpu MaxTime, configuration slurm.conf cannot be read, so nothing is said "
            "to start now that needs it.",
        )
    ]


def test_a_cluster_that_cannot_be_read_is_one_finding(tmp_path: Path) -> None:
    """It is not said to be silent, nor is the configuration said to be wrong."""
    for name, text in {"sinfo": "slurm 22.05.8", "scontrol": "what is this", "squeue": ""}.items():
        command = tmp_path / name
        command.write_text(f"#!/bin/sh\necho '{text}'\n")
        command.chmod(0o755)
    lines = f"{HEAD}{PROFILE}{ONE_ACCOUNT}c.GPUSlurmSpawner.slurm_bin_dir = '{tmp_path}'\n"
    checked = run_command(tmp_path, lines, "check", "--json")
    documents = json.loads(checked.stdout)["findings"]

    assert checked.exit_code == 1
    assert [(document["severity"], document["code"]) for document in documents] == [
        ("ok", "profile"),
        ("error", "slurm-answer"),
    ]


def test_a_defect_of_one_check_is_one_finding(tmp_path: Path) -> None:
    """It names the error and its place; what the check has found until then stays, and the other checks are made."""

    async def broken(_context: Context) -> AsyncIterator[Finding]:
        yield FINDING
        raise TypeError("what is this")

    where = context(tmp_path, PROFILE)
    before, failed, profile = asyncio.run(findings(where, (broken, requests.check_requests)))

    assert (failed.severity, failed.code) == (Severity.ERROR, "check-incomplete")
    assert failed.text.startswith(f"TypeError in {__name__} (line ")
    assert failed.text.endswith("): what is this")
    assert (before, profile.code) == (FINDING, "profile")


@pytest.mark.parametrize("name", REFERENCES)
def test_whatever_of_an_extension_cannot_be_loaded_is_one_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The other checks are made, and its other parts and those of other extensions are used."""
    broken_part: dict[str, Any] = {name: ".nothing:at_all"}
    broken = Extension("broken", "Broken.", package="json", **broken_part)
    monkeypatch.setattr(run, "chosen", lambda _names: Extensions((broken,)))
    where = context(tmp_path, PROFILE)
    checks = [check for check in checks_of(where.spawner) if check.__name__ in ("check_extensions", "check_requests")]
    profile, found = asyncio.run(findings(where, checks))

    assert (profile.code, found.code, found.where) == ("profile", "extension", "c.GPUProfilesSpawner.extensions")
    assert found.text == (
        "The extension broken is left out: .nothing:at_all cannot be loaded: "
        "ModuleNotFoundError: No module named 'json.nothing'"
    )


def test_a_judge_that_raises_hides_nothing_of_the_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is one finding, and the next judge is asked."""
    monkeypatch.setattr(Extension, "load", lambda self, _reference: faulty_judge if self.name == "broken" else refusing)
    broken, good = (Extension(name, "About.", package="json", judge=".judge:of") for name in ("broken", "good"))
    monkeypatch.setattr(run, "chosen", lambda _names: Extensions((broken, good)))
    where = context(tmp_path, PROFILE)
    checks = [check for check in checks_of(where.spawner) if check.__name__ in ("check_extensions", "check_requests")]
    refused, found = asyncio.run(findings(where, checks))

    assert (refused.code, refused.fix) == ("request-refused", "Name another one.")
    assert found.text == "The extension broken is left out: its judge failed: KeyError: 'nobody'"


def faulty_judge(_resources: Resources, _snapshot: ClusterSnapshot, _now: float) -> Verdict | None:
    """One with a defect."""
    raise KeyError("nobody")


def refusing(_resources: Resources, _snapshot: ClusterSnapshot, _now: float) -> Verdict | None:
    """One to whom nothing is right."""
    return Verdict("cpus", "nothing is right", REFUSED, "Name another one.")


def test_all_that_an_extension_may_refer_to_is_checked() -> None:
    """But what it is called, and who declares it."""
    texts = [field.name for field in fields(Extension) if field.type == "str"]

    assert [*REFERENCES] == [name for name in texts if name not in ("name", "about", "package")]
