"""A launch whose plan says that GPUs must be claimed: whatever breaks, no server gets GPUs that it has not claimed."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.extensions.claims.carried import MODULE
from jupyterhub_gpuspawner.wire.documents import LaunchPlan, Step
from tests.node.test_main import IN_A_JOB, RUN_ARCHIVE, VISIBLE, launch, real_k80, reported, server_document
from tests.standins.report_hub import ReportHub

__all__ = ["real_k80"]


def claim(folder: Path | str) -> Step:
    """Claims GPUs in this folder."""
    return Step(f"{MODULE}:Claimant", {"folder": str(folder)})


def test_a_plan_that_was_cut_off_after_its_claim_uses_no_gpu(archive: Path, hub: ReportHub, tmp_path: Path) -> None:
    """The report says why the plan could not be read, and the server starts in any case."""
    claims = tmp_path / "claims"
    claims.mkdir()
    text = f'{{"choose": {json.dumps(asdict(claim(claims)))}, "cpus": 2'
    server = server_document(launch(archive, text, hub.environ | IN_A_JOB))

    assert server["environ"]["CUDA_VISIBLE_DEVICES"] == ""
    assert reported(hub).placement.problems[0].startswith("The launch plan could not be read: Expecting ',' delimiter")
    assert list(claims.glob("gpuspawner-claim.k1-*")) == []


BREAK = """
import sys
sys.path.insert(0, sys.argv[1])
from jupyterhub_gpuspawner.node import grant, main, placing
from jupyterhub_gpuspawner.extensions.claims.node import claim
from jupyterhub_gpuspawner.placement import choice
def broken(*_, **__):
    raise RuntimeError("broken by the test")
owner, _, name = sys.argv[2].rpartition(".")
setattr(eval(owner), name, broken)
main.main(sys.argv[3:])
"""


@pytest.mark.parametrize(
    ("target", "visible"),
    [
        ("choice.choose", ""),
        ("grant.gpus", ""),
        ("placing.Launch._gpus", ""),
        ("placing.Launch._place", ""),
        ("claim.claim", ""),
        ("claim.Claimant._grant", ""),
        ("claim.Claimant.__init__", ""),
        ("main._placing", ""),
        ("placing.Launch._export", "2"),
        ("placing.PlacementDocument", "2"),
    ],
)
def test_whatever_step_breaks_no_server_gets_gpus_that_it_has_not_claimed(
    archive: Path, hub: ReportHub, real_k80: str, tmp_path: Path, target: str, visible: str
) -> None:
    """The server starts, and sees what was claimed before the step, or none."""
    plan = LaunchPlan(gpus=1, topology_file=real_k80, choose=claim(tmp_path))
    broken = BREAK
    if target == "main._placing":  # then nothing of the launcher is left but its first lines
        broken = broken.replace("main.main(sys.argv[3:])", RUN_ARCHIVE)
    code = (broken, str(archive), target)
    done = launch(archive, plan, hub.environ | IN_A_JOB, "/bin/sh", "-c", VISIBLE, code=code)

    assert (done.returncode, done.stdout) == (0, f"GPUs: [{visible}]\n"), done.stderr
    assert "broken by the test" in done.stderr
