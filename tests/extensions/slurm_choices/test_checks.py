"""What `gpuspawner check` says of options that list names of Slurm's."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from jupyterhub_gpuspawner.check.finding import Context, Finding
from jupyterhub_gpuspawner.check.questions import AccountingNames
from jupyterhub_gpuspawner.extensions.slurm_choices import checks
from tests.check.sites import RecordedClient, context

NAMES = AccountingNames(frozenset({"climate", "physics"}), {"normal": {}})
FINDINGS: dict[str, tuple[dict[str, Any], AccountingNames | None, list[tuple[str, str, str]]]] = {
    "all accounts": ({"slurm": "accounts"}, NAMES, [("ok", "choices", "it lists the accounts climate, physics")]),
    "some accounts": (
        {"slurm": "accounts", "except": "phy.*"},
        NAMES,
        [("ok", "choices", "it lists the accounts climate")],
    ),
    "an expression that leaves nothing": (
        {"slurm": "accounts", "match": "phy"},
        NAMES,
        [
            (
                "error",
                "choices-none",
                "none of the 2 accounts of the cluster is left: climate, physics.",
            )
        ],
    ),
    "names that are not there": (
        {"slurm": "partitions", "match": "gpu", "default": "gup", "labels": {"gpu": "GPUs"}, "otherwise": ["gup"]},
        NAMES,
        [
            ("ok", "choices", "it lists the partitions gpu"),
            ("warning", "choices-missing", "the cluster has no partitions gup."),
        ],
    ),
    "a cluster without slurmdbd": (
        {"slurm": "qos"},
        None,
        [
            (
                "warning",
                "choices-no-accounting",
                "the cluster has no slurmdbd, so there are no QOS to list, and the form does not show this.",
            )
        ],
    ),
}


def findings_of(site: Context) -> list[Finding]:
    """All of the check's."""

    async def collected() -> list[Finding]:
        return [finding async for finding in checks.check_choices(site)]

    return asyncio.run(collected())


@pytest.mark.parametrize(("source", "accounting", "expected"), FINDINGS.values(), ids=FINDINGS.keys())
def test_findings(tmp_path: Path, source: dict[str, Any], accounting: Any, expected: Any) -> None:
    """One or two for each option, at its place."""
    profile = {"display_name": "One", "slug": "one", "profile_options": {"own": {"choices_from": source}}}
    site = context(
        tmp_path, f"c.GPUProfilesSpawner.profiles = [{profile!r}]", client=RecordedClient(accounting=accounting)
    )
    findings = findings_of(site)

    assert [(finding.severity.value, finding.code, finding.text) for finding in findings] == expected
    assert {finding.where for finding in findings} == {"profile one: profile_options.own.choices_from"}
