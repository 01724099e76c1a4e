"""A launch whose plan says that GPUs must be claimed: whatever breaks, no server gets GPUs that it has not claimed."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.extensions.claims.carried import MODULE
from jupyterhub_gpuspawner.wire.documents import LaunchPlan, Step
from tests.node.test_main import IN_A_JOB, RUN_ARCHIVE, VISIBLE, k80, launch, real_k80, reported, server_document
from tests.standins.report_hub import ReportHub

__all__ = ["k80", "real_k80"]


def claim(folder: Path | str) -> Step:
    """Claims GPUs in this folder."""
    return Step(f"{MODULE}:Claimant", {"folder": str(folder)})


PLANS = {
    "a wrong value beside a claim": ('{"choose": CLAIM, "deadline": 0, "gpus": 1}', "2", "deadline: 0 is not valid"),
    "a newer hub's bounds": ('{"choose": CLAIM, "deadline": 3600, "gpus": 2}', "2,3", "deadline: 3600 is not valid"),
    "no number of GPUs": ('{"choose": CLAIM, "gpus": -1}', "2,3", "gpus: -1 is not valid in a launch plan"),
    "cut off": ('{"choose": CLAIM, "cpus": 2', "", "Expecting ',' delimiter"),
}


@pytest.mark.parametrize(("plan", "visible", "reason"), PLANS.values(), ids=PLANS.keys())
def test_what_can_be_read_of_a_claim_is_kept(
    archive: Path, hub: ReportHub, k80: str, tmp_path: Path, plan: str, visible: str, reason: str
) -> None:
    """Where it cannot, no GPU is used. The report names what could not be read, and the server starts in any case."""
    claims = tmp_path / "claims"
    claims.mkdir()
    text = plan.replace("CLAIM", json.dumps(asdict(claim(claims))))
    if text.endswith("}"):
        text = json.dumps(json.loads(text) | {"topology_file": k80})
    server = server_document(launch(archive, text, hub.environ | IN_A_JOB))
    problems = reported(hub).placement.problems

    assert server["environ"]["CUDA_VISIBLE_DEVICES"] == visible
    assert problems[0].startswith("The launch plan could not be read: ")
    assert reason in problems[0]
    assert len(list(claims.glob("gpuspawner-claim.k1-*"))) == len(visible.split(",")) * bool(visible)


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
        ("placing.Placing._gpus", ""),
        ("placing.Placing.place", ""),
        ("claim.claim", ""),
        ("claim.Claimant._grant", ""),
        ("claim.Claimant.__init__", ""),
        ("main._placing", ""),
        ("placing.Placing._export", "2"),
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
