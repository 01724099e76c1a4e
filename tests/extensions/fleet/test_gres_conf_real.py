"""The lines of gres.conf that the package prints, read by a real slurmd and slurmctld."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import jupyterhub_gpuspawner
from jupyterhub_gpuspawner.batch.script import options
from jupyterhub_gpuspawner.demo.slurm_cluster import (
    ClusterDescription,
    PrivateSlurm,
    SimulatedNode,
    SimulatedPartition,
    whole_gpus,
)
from jupyterhub_gpuspawner.extensions.fleet.gres_conf import gres_conf
from jupyterhub_gpuspawner.placement.topology import load
from tests.standins.resources import resolved

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
    assert [line.type for line in lines.lines] == ["p100"] * 8
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


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_server_gets_cores_of_one_socket_where_slurm_knows_no_topology(public_folder: Path, nodes: int) -> None:
    """Its gres.conf names device files alone. With a number of tasks, the cores would be of both sockets."""
    names = tuple(f"d{number + 1}" for number in range(nodes))
    lines = ("Name=gpu File=/dev/nvidia[0-7]",)
    gpus = (whole_gpus("", range(8)),)
    simulated = tuple(SimulatedNode(name, "", 2, 20, 512000, gpus=gpus, gres_lines=lines) for name in names)
    cluster = ClusterDescription(simulated, (SimulatedPartition("gpu", names, default=True),))
    request = options(resolved(nodes=nodes, gpus=2, cpus=8, memory=100), "best-effort")
    with PrivateSlurm(cluster, public_folder / f"one-socket-{nodes}") as slurm:
        job = slurm.run("sbatch", "--parsable", *request, "--output=/dev/null", "--wrap=sleep 600")
        cores = None
        while cores is None:
            cores = re.search(r" Nodes=(\S+) CPU_IDs=(\S+)", slurm.run("scontrol", "show", "job", "-d", job))

    assert cores.groups() == ({1: "d1", 2: "d[1-2]"}[nodes], "0-7")
