"""Profiles that ask for more than their QOS allows one job."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.check import profiles
from jupyterhub_gpuspawner.check.questions import AccountingNames
from jupyterhub_gpuspawner.check.run import findings, line
from jupyterhub_gpuspawner.slurm.accounting import limits_of
from tests.check.sites import RecordedClient, context

SHORT = limits_of({"maxwall": "1:00:00", "maxtres": "cpu=8,gres/gpu=1,mem=32G,node=1"})
SLURM = AccountingNames(frozenset({"lab"}), {"short": SHORT, "free": {}})
REMEDY = "Ask for less, name another QOS, or raise MaxTRES or MaxWall of the QOS (sacctmgr). [qos-limit]"


@pytest.mark.parametrize(
    ("slurm", "more", "lines"),
    [
        ('"qos": "short", "time": "1:00:00", "gpus": 1, "cpus": 8', "", []),
        ('"qos": "free", "time": "8:00:00", "gpus": 4', "", []),
        ('"time": "8:00:00", "gpus": 4', "", []),
        ('"qos": "short"', "", []),
        (
            '"qos": "short", "time": "1:00:00", "memory": "33G"',
            "",
            ["slurm.memory: QOS short allows a job 32 GiB, not 33 GiB"],
        ),
        ('"qos": "Short", "time": "2:00:00"', "", ["slurm.time: QOS Short allows a job 1 h, not 2 h"]),
        (
            '"qos": "short", "time": "1:00:00", "nodes": 2, "cpus": 5',
            "",
            [
                "slurm.cpus: QOS short allows a job 8 CPUs, not 10 CPUs",
                "slurm.nodes: QOS short allows a job 1 node, not 2 nodes",
            ],
        ),
        (
            '"qos": "short", "time": "1:00:00", "gpus": 1',
            '"profile_options": {"gpus": {"range": {"min": 1, "max": 4, "sets": "slurm.gpus"}}}',
            ["profile_options.gpus.range.max: QOS short allows a job 1 GPU, not 4 GPUs"],
        ),
    ],
)
def test_what_a_qos_allows_one_job(tmp_path: Path, slurm: str, more: str, lines: list[str]) -> None:
    """Slurm accepts such a job, and never starts it."""
    profile = f'{{"display_name": "G", "slurm": {{"partition": "gpu", {slurm}}}, {more}}}'
    where = context(tmp_path, f"c.GPUProfilesSpawner.profiles = [{profile}]", client=RecordedClient(accounting=SLURM))
    messages = [line(finding) for finding in asyncio.run(findings(where, [profiles.check_accounts]))]

    assert messages == [f"WRONG profile g: {text}, so it never starts. {REMEDY}" for text in lines]
