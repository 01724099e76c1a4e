"""The launcher's archive, started over a recorded tree: the server that it becomes, and what it reports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from jupyterhub_gpuspawner.batch.launcher import launcher_archive
from jupyterhub_gpuspawner.extensions.amd.carried import CARRIED
from jupyterhub_gpuspawner.hub.report.server_report import parse_report
from jupyterhub_gpuspawner.placement.topology import from_document
from jupyterhub_gpuspawner.wire.documents import LaunchPlan
from tests.extensions.amd.machines import MACHINES, write_machine
from tests.standins.report_hub import ReportHub

OVER_A_TREE = """
import functools, sys
sys.path.insert(0, sys.argv[1])
from jupyterhub_gpuspawner.node import main, placing
placing.observe = functools.partial(placing.observe, root=sys.argv[2])
placing.allowed_cpus = lambda: tuple(range(128))
placing.bind_cpus = lambda cpus: (tuple(cpus), ())
main.main(sys.argv[3:])
"""
VARIABLES = "env | grep -E '^(ROCR|HIP|CUDA|GPU|ZE)_' | sort"


def test_a_server_on_two_halves_of_an_mi250x(tmp_path: Path) -> None:
    """Slurm has set the same numbers four times; the server gets a list that HIP understands, the hub the card."""
    write_machine(tmp_path / "node", MACHINES["Frontier"])
    archive = tmp_path / "launch.pyz"
    archive.write_bytes(launcher_archive((CARRIED,)))
    plan = LaunchPlan(gpus=2, cpus=14, readers=(CARRIED.reader,), deadline=20)
    slurms = dict.fromkeys(
        ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK"), "4,5"
    )
    with ReportHub() as hub:
        done = subprocess.run(
            [
                *(sys.executable, "-I", "-c", OVER_A_TREE, str(archive), str(tmp_path / "node")),
                *("--plan", plan.dumps(), "--", "/bin/sh", "-c", VARIABLES),
            ],
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "4,5"}
            | {"SLURM_GPUS_ON_NODE": "2", "SLURMD_NODENAME": "g1"}
            | slurms
            | hub.environ,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        report = parse_report(hub.requests[0].body)

    assert done.stdout.split() == [
        "CUDA_VISIBLE_DEVICES=0,1",
        "GPU_DEVICE_ORDINAL=0,1",
        "ROCR_VISIBLE_DEVICES=4,5",
        "ZE_AFFINITY_MASK=4,5",
    ]
    placement = report.placement
    assert [(gpu.index, gpu.pci, gpu.name, gpu.memory_mib, gpu.numa_node) for gpu in placement.gpus] == [
        (4, "0000:d1:00.0", "AMD Instinct MI250X", 65536, 0),
        (5, "0000:d6:00.0", "AMD Instinct MI250X", 65536, 0),
    ]
    assert (placement.weakest_link, placement.cpus, placement.aligned) == ("XGMI4", "0-3,8-10,64-67,72-74", True)
    assert report.topology is not None
    assert len(from_document(report.topology).gpus) == 8
