"""What other extensions make of AMD's GPUs: claims, lines of gres.conf, and use."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyterhub_gpuspawner.extensions.claims.carried import MODULE
from jupyterhub_gpuspawner.extensions.claims.node.claim import Claimant
from jupyterhub_gpuspawner.extensions.fleet.gres_conf import gres_conf
from jupyterhub_gpuspawner.extensions.usage.node.readings import GpuReading, is_amd, read_amd
from jupyterhub_gpuspawner.node.grant import ControllerAnswers
from jupyterhub_gpuspawner.slurm.gpu_model import device_model
from jupyterhub_gpuspawner.wire.documents import LaunchPlan, PlacedGpu, Step
from tests.extensions.amd.machines import MACHINES, built, write, write_machine
from tests.extensions.amd.test_launch import PLAN, launched, opened


def test_a_server_claims_its_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two servers of a node whose GPUs Slurm does not manage get different ones."""
    write_machine(tmp_path / "node", MACHINES["Frontier"])
    claims = tmp_path / "claims"
    claims.mkdir()
    plan = LaunchPlan(
        gpus=2, readers=PLAN.readers, deadline=30, choose=Step(f"{MODULE}:Claimant", {"folder": str(claims)})
    )
    slurm = ControllerAnswers({}, job="JobId=7\n", node="NodeName=g1\n   Gres=(null)\n")
    gpus = [pci for pci, _ in MACHINES["Frontier"].gpus]
    found = []
    for _ in range(2):
        environ = {"SLURM_JOB_ID": "7"}
        launched(tmp_path / "node", environ, monkeypatch, plan, Claimant, slurm)
        found.append(opened(environ, gpus))

    assert [len(one) for one in found] == [2, 2]
    assert not set(found[0]) & set(found[1])


def test_the_lines_of_gres_conf(tmp_path: Path) -> None:
    """The render node of each, a type with letters, and the number of its XGMI links to each other one."""
    conf = gres_conf(built(tmp_path, "Frontier"), numa_node_as_socket=True)

    assert conf.lines[0].text() == ("Name=gpu Type=mi250x File=/dev/dri/renderD128 Cores=48-63 Links=-1,4,1,0,0,0,2,0")
    assert [line.file for line in conf.lines] == [f"/dev/dri/renderD{128 + n}" for n in range(8)]


def test_the_use_of_a_gpu(tmp_path: Path) -> None:
    """Percent and memory from the driver's files; nothing of a partition, whose files count the whole GPU."""
    topology = built(tmp_path, "8 MI300X")
    gpu = PlacedGpu(0, pci=topology.gpus[0].pci)
    root = str(tmp_path)

    assert is_amd(gpu, root)
    assert read_amd(gpu, shared=False, root=root) == GpuReading(7.0, 196608, 283)
    assert read_amd(gpu, shared=True, root=root) == GpuReading(memory_mib=196608)
    write(tmp_path, f"sys/bus/pci/devices/{gpu.pci}/gpu_busy_percent", "250")
    write(tmp_path, f"sys/bus/pci/devices/{gpu.pci}/mem_info_vram_used", "lots")
    assert read_amd(gpu, shared=False, root=root) == GpuReading(None, 196608, None)
    write(tmp_path, f"sys/bus/pci/devices/{gpu.pci}/current_compute_partition", "CPX")
    part = PlacedGpu(3, pci=f"{gpu.pci[:-1]}3")
    assert is_amd(part, root)
    assert {read_amd(one, shared=False, root=root) for one in (gpu, part)} == {GpuReading()}
    assert not is_amd(PlacedGpu(0, pci="0000:21:00.0"), root)


@pytest.mark.parametrize(
    ("machine", "shown"),
    [("8 MI325X", "MI325X"), ("Frontier", "MI250X"), ("4 MI300A", "MI300A"), ("a Vega in a desktop", "GFX900")],
)
def test_the_name_on_pages_is_the_product_s(machine: str, shown: str, tmp_path: Path) -> None:
    """Without its maker, and never a PCI id."""
    assert str(device_model(built(tmp_path, machine).gpus[0].name)).partition(",")[0] == shown
