"""Jobs on machines that the driver describes: what CUDA is shown, what the card says, by the stand-in for NVML."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jupyterhub_gpuspawner.node import placing
from jupyterhub_gpuspawner.node.grant import ControllerAnswers
from jupyterhub_gpuspawner.node.placing import Launch
from jupyterhub_gpuspawner.wire.documents import LaunchPlan

if TYPE_CHECKING:
    from tests.node.conftest import AskNvml

TEXTS = Path(__file__).parents[1] / "data" / "nvml"
NV18 = "as granted; the slowest link of their ring is NV18 (about 450 GB/s)."
OLD_MIG = "MIG-GPU-aaaaaaaa-0000-4000-8000-000000000001/7/0"
JOBS = {
    "two of eight, by Slurm's indices alone": (
        "two-of-eight-in-a-cgroup",
        {"SLURM_JOB_GPUS": "5,7", "SLURM_GPUS_ON_NODE": "2"},
        "0,1",
        f"GPUs 0 and 1, {NV18} To Slurm these are GPUs 5,7.",
    ),
    "two of eight whose indices are numbers in both countings": (
        "two-of-eight-in-a-cgroup",
        {"SLURM_JOB_GPUS": "1,2", "SLURM_GPUS_ON_NODE": "2"},
        "0,1",
        f"GPUs 0 and 1, {NV18} To Slurm these are GPUs 1-2.",
    ),
    "a MIG device by the name of an older driver": (
        "mig-legacy-name",
        {"SLURM_JOB_GPUS": "0", "CUDA_VISIBLE_DEVICES": OLD_MIG},
        OLD_MIG,
        "slice 0 of GPU 0, as granted.",
    ),
    "four GPUs of a virtual machine": (
        "vm-hidden-nvswitches",
        {"SLURM_JOB_GPUS": "2,3,6,7", "CUDA_VISIBLE_DEVICES": "2,3,6,7"},
        "2,3,6,7",
        f"GPUs 2, 3, 6 and 7, {NV18}",
    ),
}


@pytest.mark.parametrize(("text", "environ", "visible", "why"), JOBS.values(), ids=JOBS.keys())
def test_a_job_on_a_machine(
    ask_nvml: AskNvml,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    environ: dict[str, str],
    visible: str,
    why: str,
) -> None:
    """Without a problem; its GPUs are known to the card by UUID."""
    monkeypatch.setattr(placing, "allowed_cpus", tuple)
    monkeypatch.setattr(placing, "bind_memory", lambda *_: ("none", ()))
    [topology] = ask_nvml((TEXTS / f"{text}.txt").read_text())
    launch = Launch(
        LaunchPlan(set_threads=False),
        {"SLURM_JOB_ID": "7", **environ},
        slurm=ControllerAnswers({}, job="", node=""),
        topology=topology,
    )

    card, _ = launch.place()

    assert (launch.environ["CUDA_VISIBLE_DEVICES"], card.why, card.problems) == (visible, why, ())
    assert all(gpu.uuid for gpu in card.gpus)
