"""`gpuspawner check` of a hub that leaves extensions out, and has settings of theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyterhub_gpuspawner.check import run
from jupyterhub_gpuspawner.check.finding import Check
from jupyterhub_gpuspawner.check.settings import check_left_out, check_names
from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.site.configuration import load_site

CONFIG = """
c.JupyterHub.spawner_class = "gpu-profiles"
c.GPUProfilesSpawner.profiles = [{"display_name": "GPU", "slurm": {"partition": "gpu", "gpus": 1}}]
c.GPUSlurmSpawner.slurm_bin_dir = "/no/such/folder"
c.GPUSlurmSpawner.usage_interval = 20
c.GPUSlurmSpawner.idle = {"gpu": "2h"}
c.GPUSessions.keep_sessions = 30
"""


def _config(folder: Path, text: str) -> Path:
    path = folder / "jupyterhub_config.py"
    path.write_text(CONFIG + text)
    return path


async def _lines(folder: Path, text: str, *checks: Check) -> list[str]:
    context = await run.context_of(load_site(_config(folder, text)))
    return [run.line(finding) for finding in await run.findings(context, checks or [check_left_out])]


async def test_a_setting_of_an_extension_that_is_left_out_has_no_effect(tmp_path: Path) -> None:
    """Those of servers, and those of the hub; not one that another extension has."""
    assert await _lines(tmp_path, "") == []
    assert await _lines(tmp_path, 'c.GPUProfilesSpawner.extensions = ["usage"]') == [
        "warn  c.GPUSessions.keep_sessions: it is of the extension records, which this hub leaves out, so it has no "
        "effect. Remove it, or add records to c.GPUProfilesSpawner.extensions. [setting-left-out]",
        "warn  c.GPUSlurmSpawner.idle: it is of the extension idle, which this hub leaves out, so it has no effect. "
        "Remove it, or add idle to c.GPUProfilesSpawner.extensions. [setting-left-out]",
    ]


async def test_an_extension_that_is_not_named_is_there_where_another_one_needs_it(tmp_path: Path) -> None:
    """An extension may come to need another with a new version, and the hub starts all the same."""
    lines = await _lines(tmp_path, 'c.GPUProfilesSpawner.extensions = ["idle"]')
    assert [line for line in lines if "extension-added" in line] == [
        "warn  c.GPUProfilesSpawner.extensions: usage is not named, and the hub has it, since another extension needs "
        "it. Add usage. [extension-added]",
    ]


async def test_a_wrong_value_of_an_extension_that_is_left_out_keeps_no_hub_from_starting(tmp_path: Path) -> None:
    """Neither one of servers nor one of the hub; where the hub has the extension, it does."""
    wrong = 'c.GPUSlurmSpawner.extend_prefix = "sudo"\nc.GPUSessions.keep_sessions = []\n'
    lines = await _lines(tmp_path, f'{wrong}c.GPUProfilesSpawner.extensions = ["usage"]', check_left_out, check_names)
    assert [line.partition(":")[0] for line in lines] == [
        "warn  c.GPUSessions.keep_sessions",
        "warn  c.GPUSlurmSpawner.idle",
        "warn  c.GPUSlurmSpawner.extend_prefix",
    ]
    for line, setting in zip(wrong.splitlines(), ("extend_prefix", "keep_sessions"), strict=True):
        with pytest.raises(ConfigError, match=setting):
            await _lines(tmp_path, line)
