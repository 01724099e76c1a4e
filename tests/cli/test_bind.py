"""gpuspawner bind on a real Slurm: each task of srun uses its own part of the node."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jupyterhub_gpuspawner.batch.launcher import launcher_archive
from jupyterhub_gpuspawner.cpulist import parse_cpulist
from jupyterhub_gpuspawner.node.main import VERBOSE
from tests.cli.conftest import MACHINES
from tests.waiting import wait_until

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
    from tests.cli.conftest import Call

PROGRAM = Path(sys.executable).with_name("gpuspawner")
ENV = "env > out.$SLURMD_NODENAME.$SLURM_LOCALID"
WANTED = ["CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "GPUSPAWNER_CPUS"]


class Tasks:
    """Run job steps on the private Slurm and return each task's environment."""

    def __init__(self, slurm: PrivateSlurm, folder: Path) -> None:
        self.slurm = slurm
        self.folder = folder
        self.log = ""

    def run(self, options: str, step: str, *binding: str) -> dict[str, str]:
        """``node.local -> GPUs; CPUs`` of the tasks of ``srun STEP BINDING -- env`` in a job with these options."""
        bind = " ".join(binding or (str(PROGRAM), "bind", "-v", "--topology-file", self.slurm.topology_pattern))
        script = f"set -e\nexport OMP_NUM_THREADS=24 GPUSPAWNER_THREADS=24\nsrun {step} {bind} -- sh -c '{ENV}'\n"
        path = self.folder / "job.sh"
        path.write_text(f"#!/bin/bash\n{script}")
        log = self.folder / "log"
        where = [f"--chdir={self.folder}", f"--output={log}"]
        job = self.slurm.run("sbatch", "--parsable", *where, *options.split(), str(path))
        wait_until(
            lambda: self.slurm.run("squeue", "-h", "--states=all", "-o", "%T", "--jobs", job) == "COMPLETED",
            lambda: log.read_text() if log.exists() else "it never began",
        )
        self.log = log.read_text()
        found = {}
        for out in sorted(self.folder.glob("out.*")):
            environ = dict(line.split("=", 1) for line in out.read_text().splitlines() if "=" in line)
            out.unlink()
            gpus, cpus = environ.get("CUDA_VISIBLE_DEVICES", "-"), environ["GPUSPAWNER_CPUS"]
            found[out.name.partition(".")[2]] = f"{gpus}; {cpus}; {environ['OMP_NUM_THREADS']} threads"
        return found


@pytest.fixture
def tasks(slurm_cluster: PrivateSlurm, public_folder: Path) -> Tasks:
    folder = public_folder / f"bind-{time.monotonic_ns()}"
    folder.mkdir()
    return Tasks(slurm_cluster, folder)


@pytest.mark.slurm
def test_each_task_has_its_own_gpu_and_the_cores_beside_it(tasks: Tasks) -> None:
    """Four tasks on two sockets with two GPUs each; each reports its binding."""
    found = tasks.run("-p gpu --gres=gpu:k80:4 --ntasks-per-node=4 --cpus-per-task=6", "--ntasks=4")
    assert found == {
        "g1.0": "0; 0-5; 6 threads",
        "g1.1": "1; 6-11; 6 threads",
        "g1.2": "2; 12-17; 6 threads",
        "g1.3": "3; 18-23; 6 threads",
    }
    assert "gpuspawner: g1 task 2: GPUs 2; CPUs 12-17; memory none" in tasks.log.splitlines()


@pytest.mark.slurm
def test_two_nodes_of_different_kinds(tasks: Tasks) -> None:
    """The tasks on a node divide the GPUs of that node, also with the launcher that jobs carry."""
    archive = tasks.folder / "launch.pyz"
    archive.write_bytes(launcher_archive())
    plan = f'"{{\\"report\\": false, \\"topology_file\\": \\"{tasks.slurm.topology_pattern}\\"}}"'
    options = "-p gpu -N 2 -w g1,d1 --gres=gpu:4 --ntasks-per-node=2 --cpus-per-task=8"
    assert tasks.run(options, "--ntasks=4", sys.executable, str(archive), "--plan", plan) == {
        "d1.0": "0,1; 0-7; 8 threads",
        "d1.1": "2,3; 8-15; 8 threads",
        "g1.0": "0,1; 0-7; 8 threads",
        "g1.1": "2,3; 12-19; 8 threads",
    }


@pytest.mark.slurm
def test_more_tasks_than_gpus_share_them(tasks: Tasks) -> None:
    """Tasks share GPUs round-robin, the first one reports it, and each still has its own cores."""
    found = tasks.run("-p gpu --gres=gpu:k80:2 --ntasks-per-node=3 --cpus-per-task=2", "--ntasks=3")
    assert found == {"g1.0": "0; 0-1; 2 threads", "g1.1": "1; 2-3; 2 threads", "g1.2": "0; 4-5; 2 threads"}
    assert tasks.log.count("3 tasks share 2 GPUs on this node.") == 1


@pytest.mark.slurm
def test_what_slurm_has_divided_is_kept(tasks: Tasks) -> None:
    """With --gpus-per-task each task has the GPU that Slurm assigned to it, and cores close to it."""
    found = tasks.run("-p gpu --gres=gpu:k80:4 --ntasks-per-node=4 --cpus-per-task=6", "--ntasks=4 --gpus-per-task=1")
    assert found == {
        "g1.0": "0; 0-5; 6 threads",
        "g1.1": "1; 6-11; 6 threads",
        "g1.2": "2; 12-17; 6 threads",
        "g1.3": "3; 18-23; 6 threads",
    }


def test_outside_of_slurm(tmp_path: Path) -> None:
    """Without Slurm, the best GPUs are chosen if a number is given; options of the command are passed through."""
    done = subprocess.run(
        [PROGRAM, "bind", "--gpus=2", "--topology-file", MACHINES / "k80-2socket.json", "printenv", "-0", *WANTED],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={"PATH": "/usr/bin:/bin", "CUDA_VISIBLE_DEVICES": "1,2,3"},
    )
    assert dict(zip(WANTED, done.stdout.split("\0"), strict=False)) == {
        "CUDA_VISIBLE_DEVICES": "2,3",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "GPUSPAWNER_CPUS": "0-23",
    }
    assert done.stderr == ""


def test_a_server_has_what_it_needs_to_bind_more(tmp_path: Path) -> None:
    """A process started by the launcher can use it again to bind, without a plan and without a report."""
    archive = tmp_path / "launch.pyz"
    archive.write_bytes(launcher_archive())
    again = '"$GPUSPAWNER_PYTHON" "$GPUSPAWNER_LAUNCHER" --bind -- printenv GPUSPAWNER_CPUS'
    done = subprocess.run(
        [sys.executable, archive, "--plan", '{"report": false}', "--", "sh", "-c", again],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={"PATH": "/usr/bin:/bin", VERBOSE: "1"},
    )
    assert parse_cpulist(done.stdout.strip()) == tuple(sorted(os.sched_getaffinity(0)))
    assert [line.split(";")[1] for line in done.stderr.splitlines()] == [f" CPUs {done.stdout.strip()}"] * 2


@pytest.mark.parametrize("arguments", [["--gpu", "2", "--", "true"], ["--gpus", "2"], ["--policy", "best", "true"]])
def test_arguments_that_make_no_sense(gpuspawner: Call, arguments: list[str]) -> None:
    """Nothing is run if an option is unknown or there is no command."""
    assert gpuspawner("bind", *arguments).exit_code == 2
