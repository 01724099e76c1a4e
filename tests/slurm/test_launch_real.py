"""The launcher in a real job: its report to the hub matches what Slurm allocated to the job."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.batch.launcher import launcher_archive
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from jupyterhub_gpuspawner.hub.report.server_report import parse_report
from jupyterhub_gpuspawner.units import parse_cpulist
from jupyterhub_gpuspawner.wire.documents import LaunchPlan, NodeReport
from tests.standins.report_hub import ReportHub
from tests.waiting import wait_until

pytestmark = pytest.mark.slurm
SHOW = "import json, os, sys; json.dump(dict(os.environ), open(sys.argv[1], 'w'))"


@pytest.mark.parametrize(
    ("options", "plan"),
    [
        pytest.param(("--gres=gpu:k80:1", "--cpus-per-task=3"), LaunchPlan(gpus=1, cpus=3), marks=pytest.mark.nightly),
        (("--gres=gpu:k80:2", "--cpus-per-task=4"), LaunchPlan(gpus=2, cpus=4)),
        pytest.param(("--gpus=k80:2", "--cpus-per-task=4"), LaunchPlan(gpus=2, cpus=4), marks=pytest.mark.nightly),
        (("--gres=gpu:p100:4", "--cpus-per-task=8"), LaunchPlan(gpus=4, cpus=8)),
        (("--gres=gpu:k80:1", "--cpus-per-task=2", "--export=NONE"), LaunchPlan()),
        (("--nodelist=g1", "--cpus-per-task=2"), LaunchPlan(gpus=0, cpus=2)),
    ],
)
def test_report_environment_and_slurm_agree(
    slurm_cluster: PrivateSlurm, public_folder: Path, options: tuple[str, ...], plan: LaunchPlan
) -> None:
    """GPU indices and CPU numbers are the same in the report, in the environment and in Slurm."""
    folder = public_folder / f"launch-{time.monotonic_ns()}"
    folder.mkdir()
    archive, environ_file, script = folder / "launch.pyz", folder / "environment.json", folder / "job.sh"
    archive.write_bytes(launcher_archive())
    launch_plan = LaunchPlan(**{**vars(plan), "topology_file": slurm_cluster.topology_pattern})
    with ReportHub() as hub:
        exports = "".join(f"export {name}='{value}'\n" for name, value in hub.environ.items())
        command = (
            f"{sys.executable} {archive} --plan '{launch_plan.dumps()}' -- {sys.executable} -c \"$SHOW\" {environ_file}"
        )
        script.write_text(f'#!/bin/sh\n{exports}SHOW="{SHOW}"\n{command}\nsleep 60\n')
        job = slurm_cluster.run(
            "sbatch", "--parsable", "--partition=gpu", f"--output={folder}/log", *options, str(script)
        )
        try:
            report = _report(hub, folder)
            detail = slurm_cluster.run("scontrol", "show", "job", "-d", job)
            environ = _environment(environ_file)
        finally:
            slurm_cluster.run("scancel", "--full", "--signal=KILL", job)
            _until_gone(slurm_cluster, job)

    placement = report.placement
    match = re.search(r"Nodes=(\S+) CPU_IDs=(\S+) Mem=\S+ GRES=(\S*)", detail)
    assert match is not None
    indices = re.search(r"\(IDX:([^)]*)\)", match[3])
    assert (placement.job_id, placement.node, placement.simulated) == (job, match[1], True)
    assert (
        sorted(gpu.index for gpu in placement.gpus) == list(parse_cpulist(indices[1]))
        if indices
        else not placement.gpus
    )
    assert environ["CUDA_VISIBLE_DEVICES"] == ",".join(str(gpu.index) for gpu in placement.gpus)
    assert parse_cpulist(placement.cpus) == parse_cpulist(match[2])
    assert environ["GPUSPAWNER_CPUS"] == placement.cpus
    assert re.fullmatch(r"http://127\.0\.0\.1:\d{4,5}/user/ada/", environ["JUPYTERHUB_SERVICE_URL"])
    assert placement.problems == ()


def _until_gone(slurm: PrivateSlurm, job: str) -> None:
    """Wait until the job has left its node, which the next test may need."""
    wait_until(lambda: not slurm.run("squeue", "-h", "-j", f"{job},999999"), seconds=60)


def _report(hub: ReportHub, folder: Path) -> NodeReport:
    wait_until(lambda: hub.requests, seconds=60)
    log = folder / "log"
    assert hub.requests, log.read_text() if log.exists() else "the job has not started"
    return parse_report(hub.requests[0].body)


def _environment(path: Path) -> dict[str, str]:
    """The server's environment, once it has been written."""
    ends_at = time.monotonic() + 30
    while time.monotonic() < ends_at:
        try:
            return dict(json.loads(path.read_text()))
        except (OSError, ValueError):
            time.sleep(0.05)
    raise AssertionError("the server has not started")
