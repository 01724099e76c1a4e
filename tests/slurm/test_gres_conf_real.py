"""The lines of gres.conf that the package prints, read by a real slurmd and slurmctld."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import jupyterhub_gpuspawner
from jupyterhub_gpuspawner.demo.simulated import ClusterDescription, SimulatedNode, SimulatedPartition, whole_gpus
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from jupyterhub_gpuspawner.fleet.gres_conf import gres_conf
from jupyterhub_gpuspawner.placement.topology import load

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("needs_slurm")]

DGX1 = Path(jupyterhub_gpuspawner.__file__).parent / "demo" / "machines" / "dgx1.json"


def test_slurm_accepts_the_lines_and_grants_by_them(public_folder: Path) -> None:
    """The node registers with both sockets, and jobs get linked GPUs and cores of one socket."""
    lines = gres_conf(load(str(DGX1)))
    node = SimulatedNode(
        "d1",
        machine="",
        sockets=2,
        cores_per_socket=20,
        memory_mib=512000,
        gpus=(whole_gpus("p100", range(8)),),
        gres_lines=tuple(line.text() for line in lines.lines),
    )
    assert lines.gres == "gpu:p100:8"
    cluster = ClusterDescription((node,), (SimulatedPartition("gpu", ("d1",), default=True),))
    with PrivateSlurm(cluster, public_folder / "gres-conf") as slurm:
        shown = slurm.run("scontrol", "show", "node", "-d", "d1")
        granted = []
        for gpus in (1, 2):
            ask = ["--parsable", f"--gres=gpu:p100:{gpus}", "--cpus-per-task=4", "--mem=100", "--output=/dev/null"]
            job = slurm.run("sbatch", *ask, "--wrap=sleep 600")
            detail = None
            while detail is None:
                detail = re.search(r"CPU_IDs=(\S+) .*?(IDX:[^)]+)", slurm.run("scontrol", "show", "job", "-d", job))
            granted.append((detail[1], detail[2]))  # Slurm 22.05 begins a new socket for the second job

    assert "Gres=gpu:p100:8(S:0-1)" in shown
    assert re.search("State=(IDLE|MIXED)", shown)
    assert granted == [("0-3", "IDX:0"), ("20-23", "IDX:4-5")]
