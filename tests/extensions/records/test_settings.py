"""Settings of the records with which a hub does not start."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.errors import ConfigError
from tests.check.test_hub_mistakes import BASE, alarms, site
from tests.cli.runner import run
from tests.cli.test_check import CONFIGURATION

__all__ = ["site"]  # the fixture


@pytest.mark.parametrize("lines", ["c.GPUSessions.enabled = 'perhaps'", "c.GPUSessions.keep_sessions = 'ninety'"])
async def test_a_setting_with_which_the_hub_exits_is_told_at_its_line(site: Path, lines: str) -> None:
    """As the hub itself does when it starts."""
    with pytest.raises(ConfigError) as error:
        await alarms(site, BASE + lines)

    assert error.value.where == lines.partition(" ")[0]


def test_a_setting_is_told_with_the_faults_of_all_profiles(tmp_path: Path) -> None:
    """All that is wrong is said at once."""
    lines = (
        "c.GPUProfilesSpawner.profiles = [{'display_name': 'G', 'slurm': {'GPUs': 1}}, {'slurm': {'gres': 'gpu'}}]\n"
        "c.GPUSessions.keep_sessions = 'long'\n"
    )
    document = json.loads(run(tmp_path, f"{CONFIGURATION}{lines}", "check", "--json").stdout)

    assert [(finding["code"], finding["where"]) for finding in document["findings"]] == [
        ("configuration", "c.GPUProfilesSpawner.profiles[0].slurm.GPUs"),
        ("configuration", "c.GPUSessions.keep_sessions"),
        ("configuration", "c.GPUProfilesSpawner.profiles[1].display_name"),
    ]


async def test_a_misspelt_setting_is_found(site: Path) -> None:
    """With the one that was meant."""
    assert await alarms(site, f"{BASE}c.GPUSessions.keep_sesions = 7") == [
        "WRONG c.GPUSessions.keep_sesions: GPUSessions has no setting keep_sesions, so this line has no effect. "
        "Write c.GPUSessions.keep_sessions. [setting-unknown]"
    ]
