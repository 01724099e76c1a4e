"""The variables of a rank, as torch.distributed, NCCL and Gloo read them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.extensions.several_nodes.node.rank import Rank
from jupyterhub_gpuspawner.extensions.several_nodes.node.variables import (
    interfaces,
    master,
    nccl_file,
    nearest_nics,
    processes,
    torchrun,
)
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology, NumaNode, load

SECOND_NODE = {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "20001"}
STATIC = "--nnodes=4 --node_rank=1 --master_addr=10.0.0.1"
DGX = load(str(Path(__file__).parents[2] / "data" / "machines" / "dgx-a100.json"))


@pytest.mark.parametrize(
    ("environ", "address", "expected"),
    [
        ({"SLURM_LAUNCH_NODE_IPADDR": "10.0.0.1"}, "", "10.0.0.1 20001"),
        ({"SLURM_LAUNCH_NODE_IPADDR": "10.9.9.9"}, "10.0.0.2", "10.0.0.2 20001"),
        ({"MASTER_ADDR": "g1.ib", "MASTER_PORT": "29500"}, "10.0.0.2", "g1.ib 29500"),
    ],
)
def test_the_master(environ: dict[str, str], address: str, expected: str) -> None:
    """The user's if he named one, else the first node."""
    assert " ".join(master(environ, address, 20001).values()) == expected


def test_a_rank_s_numbers() -> None:
    """As torch.distributed reads them."""
    assert Rank(number=5, local=1, node=1, tasks=(4, 4, 4, 4)).variables() == {
        "RANK": "5",
        "WORLD_SIZE": "16",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "4",
        "NODE_RANK": "1",
        "GROUP_RANK": "1",
    }


@pytest.mark.parametrize(
    ("environ", "interface", "infiniband", "variables"),
    [
        ({}, "eth0", False, {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "=eth0"}),
        ({}, "eth0", True, {"GLOO_SOCKET_IFNAME": "eth0"}),
        ({}, "lo", False, {"GLOO_SOCKET_IFNAME": "lo"}),
        ({}, None, False, {}),
        ({"GLOO_SOCKET_IFNAME": "ib0", "NCCL_SOCKET_IFNAME": "ib"}, "eth0", False, {}),
    ],
)
def test_interfaces(
    environ: dict[str, str], interface: str | None, infiniband: bool, variables: dict[str, str]
) -> None:
    """NCCL chooses by itself where there is InfiniBand; the user's values win."""
    assert interfaces(environ, interface, infiniband=infiniband) == variables


@pytest.mark.parametrize(
    ("command", "started"),
    [
        ("torchrun train.py --nnodes=9", f"torchrun {STATIC} --nproc_per_node=8 train.py --nnodes=9"),
        ("torchrun --nproc-per-node=2 a.py", f"torchrun {STATIC} --nproc-per-node=2 a.py"),
        ("torchrun --nproc_per_node 2 a.py", f"torchrun {STATIC} --nproc_per_node 2 a.py"),
        (
            "torchrun --rdzv_backend=c10d --nnodes 4 a.py",
            "torchrun --nproc_per_node=8 --rdzv_backend=c10d --nnodes 4 a.py",
        ),
        ("torchrun --standalone --nproc-per-node=1 a.py", "torchrun --standalone --nproc-per-node=1 a.py"),
        ("torchrun --run-path a.py --nnodes=9", f"torchrun {STATIC} --nproc_per_node=8 --run-path a.py --nnodes=9"),
        (
            "torchrun --virtual_local_rank a.py --nnodes=9",
            f"torchrun {STATIC} --nproc_per_node=8 --virtual_local_rank a.py --nnodes=9",
        ),
        ("torchrun -m pkg.train --nnodes=9", f"torchrun {STATIC} --nproc_per_node=8 -m pkg.train --nnodes=9"),
        ("torchrun -t 3 --nproc-per-node=2 a.py", f"torchrun {STATIC} -t 3 --nproc-per-node=2 a.py"),
        (
            "python -m torch.distributed.run a.py",
            f"python -m torch.distributed.run {STATIC} --nproc_per_node=8 a.py",
        ),
    ],
)
def test_torchrun_gets_what_its_user_did_not_give(command: str, started: str) -> None:
    """The rendezvous as a whole, and the number of processes; options of the script are its own.

    The port stands in no command line, where a neighbour would see it before torchrun opens it.
    """
    port = {"PET_MASTER_PORT": "20001"} if STATIC in started else {}
    assert torchrun(command.split(), SECOND_NODE, processes=8) == (started.split(), port)


@pytest.mark.parametrize(
    ("command", "number"),
    [
        ("torchrun a.py --nproc_per_node=3", 8),
        ("torchrun --nproc-per-node=2 a.py", 2),
        ("python -m torch.distributed.run --nproc_per_node 2 a.py", 2),
        ("torchrun --nproc-per-node=cpu a.py", 64),
        ("torchrun --nproc-per-node gpu a.py", 8),
    ],
)
def test_how_many_processes_torchrun_starts(command: str, number: int) -> None:
    """As its user says, or one for each GPU."""
    assert processes(command.split(), gpus=8, cpus=64) == number


def test_nics_nearest_to_a_rank(tmp_path: Path) -> None:
    """Each rank learns its own; NCCL gets those of all ranks beside it, if that leaves one out."""
    node = replace(
        DGX,
        simulated=False,
        gpus=DGX.gpus[:2],
        links=(("X", "NV12"), ("NV12", "X")),
        nics=("mlx5_0", "mlx5_1", "mlx5_2"),
        nic_links=(("PXB", "SYS"), ("SYS", "PXB"), ("SYS", "SYS")),
        nic_numa=(0, 1, 1),
    )
    for name in node.nics:
        port = tmp_path / "sys/class/infiniband" / name / "ports/1"
        port.mkdir(parents=True)
        for file, text in {"state": "4: ACTIVE", "link_layer": "InfiniBand", "rate": "400 Gb/sec (4X NDR)"}.items():
            (port / file).write_text(f"{text}\n")

    both = {"GPUSPAWNER_NICS": "mlx5_1", "NCCL_IB_HCA": "=mlx5_0,mlx5_1"}
    assert nearest_nics({}, node, [1], [0, 1], root=str(tmp_path)) == both
    chosen = {"NCCL_IB_HCA": "mlx5"}
    assert nearest_nics(chosen, node, [1], [0, 1], root=str(tmp_path)) == {"GPUSPAWNER_NICS": "mlx5_1"}
    assert nearest_nics({}, replace(node, nics=(), nic_links=(), nic_numa=()), [1], [0, 1], root=str(tmp_path)) == {}


def test_nccl_s_file_only_where_nccl_cannot_see(tmp_path: Path) -> None:
    """Where sysfs shows each GPU below a bridge, or the user or the platform has a file, there is none."""
    gpu = Gpu(index=0, pci="0001:00:00.0", numa_node=0, pcie_generation=4)
    node = NodeTopology(gpus=(gpu,), links=(("X",),), numa_nodes=(NumaNode(0, cpus=(0, 1)),), source="file")
    root = str(tmp_path)
    assert 'busid="0001:00:00.0"' in nccl_file({}, node, root=root)
    assert nccl_file({"NCCL_TOPO_FILE": "/a.xml"}, node, root=root) == ""
    assert nccl_file({}, replace(node, simulated=True), root=root) == ""
    assert nccl_file({}, replace(node, source="file+network"), root=root) == nccl_file({}, node, root=root)
    assert nccl_file({}, replace(node, source="nvml+sysfs"), root=root) == ""
    devices = tmp_path / "sys" / "bus" / "pci" / "devices"
    devices.mkdir(parents=True)
    flat = tmp_path / "sys" / "devices" / "pci0001:00" / "0001:00:00.0"
    flat.mkdir(parents=True)
    (devices / "0001:00:00.0").symlink_to(flat)
    assert nccl_file({}, node, root=root)
    (devices / "0001:00:00.0").unlink()
    behind = flat.parent / "0001:00:01.0" / "0001:00:00.0"
    behind.mkdir(parents=True)
    (devices / "0001:00:00.0").symlink_to(behind)
    assert nccl_file({}, node, root=root) == ""
