"""Profiles whose servers claim GPUs: what is submitted, and how they run on a Slurm without GPUs."""

from __future__ import annotations

import getpass
import re
import sys
from typing import TYPE_CHECKING

import pytest

from jupyterhub_gpuspawner.batch.launcher import launcher_archive
from jupyterhub_gpuspawner.demo.slurm_cluster import ClusterDescription, PrivateSlurm, SimulatedNode, SimulatedPartition
from jupyterhub_gpuspawner.extensions.claims.carried import CARRIED, FOLDER, MODULE
from jupyterhub_gpuspawner.wire.documents import LaunchPlan, Step, recover_plan
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fixtures.commands import Call

WITHOUT_GPUS = ClusterDescription(
    nodes=(SimulatedNode("k1", machine="k80-2socket", sockets=2, cores_per_socket=12, memory_mib=64000),),
    partitions=(SimulatedPartition("batch", ("k1",), default=True),),
)
"""A node with four GPUs that Slurm does not manage."""


def test_what_a_profile_with_a_claim_submits(gpuspawner: Call, tmp_path: Path) -> None:
    """No GPU is requested from Slurm; the plan says how many to claim and where; a container gets the driver."""
    config = tmp_path / "jupyterhub_config.py"
    config.write_text(
        "c.GPUProfilesSpawner.profiles = [{'display_name': 'Course', 'slug': 'course', 'slurm': {'cpus': 4},\n"
        "  'placement': {'claim': 2}, 'environment': {'container': {'image': '/c.sif'}}}]\n"
    )
    result = gpuspawner("show", "course", "--user", getpass.getuser(), "--config", config)
    assert result.exit_code == 0, result.stderr
    plan = re.search(r"^'(\{.*\})'$", result.stdout, re.MULTILINE)
    assert plan is not None
    found, fault = recover_plan(plan[1])
    assert (found.gpus, found.cpus, found.choose, fault) == (2, 4, Step(f"{MODULE}:Claimant", {"folder": FOLDER}), "")
    assert "gres" not in result.stdout
    assert re.search(r"apptainer exec .*--nv", result.stdout)


@pytest.fixture
def slurm(needs_slurm: None, public_folder: Path) -> Iterator[PrivateSlurm]:
    """A Slurm that does not manage GPUs."""
    with PrivateSlurm(WITHOUT_GPUS, public_folder / "without-gpus") as slurm:
        yield slurm


@pytest.mark.slurm
def test_jobs_on_one_node_get_different_gpus(slurm: PrivateSlurm, public_folder: Path) -> None:
    """Three jobs claim one or two GPUs each; when one ends, the next job can claim its GPUs."""
    folder = public_folder / "claimed"
    folder.mkdir()
    (folder / "claims").mkdir()
    (folder / "claims").chmod(0o1777)
    (folder / "launch.pyz").write_bytes(launcher_archive((CARRIED,)))

    def submit(gpus: int) -> str:
        plan = LaunchPlan(
            gpus=gpus,
            report=False,
            choose=Step(f"{MODULE}:Claimant", {"folder": str(folder / "claims")}),
            topology_file=slurm.topology_pattern,
        )
        (folder / f"plan{gpus}.json").write_text(plan.dumps())
        command = f"{sys.executable} {folder}/launch.pyz --plan {folder}/plan{gpus}.json --"
        wrap = f"exec {command} sh -c 'echo $CUDA_VISIBLE_DEVICES > {folder}/$SLURM_JOB_ID; exec sleep 600'"
        options = ["--parsable", "--cpus-per-task=2", f"--output={folder}/%j.log", f"--chdir={folder}"]
        job = slurm.run("sbatch", *options, f"--wrap={wrap}")
        wait_until((folder / job).exists, f"job {job} runs")
        return job

    def gpus_of(job: str) -> str:
        wait_until((folder / job).read_text, "it is written")
        return (folder / job).read_text().strip()

    one, two, three = submit(2), submit(1), submit(2)
    assert [gpus_of(one), gpus_of(two), gpus_of(three)] == ["0,1", "2", "3"]
    log = (folder / f"{three}.log").read_text()
    assert "gpuspawner: GPU 0-2 is claimed by other servers." in log
    assert "Slurm does not allocate" not in log
    slurm.run("scancel", "--full", "--signal=KILL", one)
    wait_until(lambda: not slurm.run("squeue", "-h", "--jobs", f"{one},999999"), "the first job is gone")
    four = submit(2)
    assert gpus_of(four) == "0,1"
    slurm.run("scancel", "--full", "--signal=KILL", two, three, four)
