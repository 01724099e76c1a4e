"""The lines that have a job's other nodes report, run with a stand-in for srun."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.batch.launcher import launcher_archive
from jupyterhub_gpuspawner.batch.shell import find_python, unpack
from jupyterhub_gpuspawner.extensions.several_nodes.carried import CARRIED
from jupyterhub_gpuspawner.extensions.several_nodes.script import LONGEST, PIECE, other_nodes
from jupyterhub_gpuspawner.hub.extensions import carried_by
from jupyterhub_gpuspawner.hub.report.server_report import parse_report
from jupyterhub_gpuspawner.wire.documents import LaunchPlan
from tests.standins.report_hub import ReportHub

MACHINE = Path(__file__).parents[3] / "jupyterhub_gpuspawner" / "demo" / "machines" / "k80-2socket.json"
SRUN = """#!/bin/sh
echo "$*" | sed 's/ -- .*//' > "$FOLDER/options"
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""
STEP = {"SLURM_JOB_ID": "17", "SLURMD_NODENAME": "g2", "SLURM_STEP_GPUS": "2,3", "SLURM_JOB_GPUS": "0,1"}


@pytest.fixture
def hub() -> Iterator[ReportHub]:
    with ReportHub() as hub:
        yield hub


def run(
    folder: Path, environ: Mapping[str, str], *, nodes: int = 3, python: str = ""
) -> subprocess.CompletedProcess[str]:
    """The lines of a batch script before its server, with a step of one task in the place of all."""
    (folder / "srun").write_text(SRUN)
    (folder / "srun").chmod(0o755)
    script = "\n".join(
        [
            unpack(launcher_archive((CARRIED,)), LaunchPlan(gpus=2, topology_file=str(MACHINE))),
            find_python("jupyterhub-singleuser", now=True),
            f"touch $GPUSPAWNER_FOLDER/port\nexport GPUSPAWNER_PYTHON={python or sys.executable}",
            other_nodes(),
            "wait $!",
        ]
    )
    base_environ = {"PATH": f"{folder}:{os.environ['PATH']}", "FOLDER": str(folder), "SLURM_JOB_NUM_NODES": str(nodes)}
    (folder / "script").write_text(script)
    return subprocess.run(
        ["bash", str(folder / "script")],
        env={**base_environ, **STEP, **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_a_node_reports_by_the_hubs_own_address(tmp_path: Path, hub: ReportHub) -> None:
    """One step on every node but the first; its GPUs are those of the step, not those of the batch script."""
    done = run(tmp_path, hub.environ)
    [sent] = hub.requests
    report = parse_report(sent.body)

    assert (done.returncode, done.stderr) == (0, "")
    assert (report.other_node, report.port, report.placement.node) == (True, 0, "g2")
    assert [(gpu.index, gpu.numa_node) for gpu in report.placement.gpus] == [(2, 1), (3, 1)]
    options = (tmp_path / "options").read_text().split()
    assert {"--overlap", "--relative=1", "--nodes=2", "--ntasks=2", "--kill-on-bad-exit=0"} <= set(options)


def test_a_job_on_one_node_starts_no_step(tmp_path: Path) -> None:
    """Whatever the profile requested, Slurm's answer counts."""
    run(tmp_path, {}, nodes=1)

    assert not (tmp_path / "options").exists()


@pytest.mark.parametrize("status", [99, 126, 127])
def test_a_python_that_cannot_run_the_launcher_is_passed_over(tmp_path: Path, hub: ReportHub, status: int) -> None:
    """Too old, or not for this machine: the next one in the list runs it."""
    python = tmp_path / "old"
    python.write_text(f"#!/bin/sh\nexit {status}\n")
    python.chmod(0o755)

    assert run(tmp_path, hub.environ, python=str(python)).returncode == 0
    assert len(hub.requests) == 1


def test_the_launcher_fits_two_environment_variables() -> None:
    """Linux refuses longer ones, and no node would report."""
    assert PIECE + 100 < LONGEST
    assert len(launcher_archive(carried_by(None))) * 4 / 3 * 1.02 - PIECE + 100 < LONGEST
