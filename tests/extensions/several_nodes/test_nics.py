"""Network cards in the kernel's view of a node, from trees made here."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyterhub_gpuspawner.extensions.several_nodes.node.nics import NetworkCards, with_nics
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology

SWITCH = "pci0000:00/0000:00:01.0/0000:01:00.0"
"""A root port, and the upstream port of a switch."""
GPU = f"{SWITCH}/0000:02:00.0/0000:03:00.0"
CARDS = {
    "mlx5_0": (f"{SWITCH}/0000:02:01.0/0000:04:00.0", 0),
    "mlx5_1": (f"{SWITCH}/0000:02:01.0/0000:05:00.0/0000:06:00.0/0000:07:00.0", 0),
    "mlx5_2": ("pci0000:00/0000:00:02.0/0000:08:00.0", 0),
    "mlx5_3": ("pci0000:40/0000:40:01.0/0000:41:00.0", 0),
    "mlx5_4": ("pci0000:80/0000:80:01.0/0000:81:00.0", 1),
    "mlx5_5": ("pci0000:c0/0000:c0:01.0/0000:c1:00.0", -1),
}


def machine(root: Path) -> NodeTopology:
    """A GPU behind a switch, and cards at every distance from it."""
    devices = root / "sys" / "devices"
    (devices / GPU).mkdir(parents=True)
    (root / "sys/bus/pci/devices").mkdir(parents=True)
    (root / "sys/bus/pci/devices/0000:03:00.0").symlink_to(devices / GPU)
    for name, (path, numa_node) in CARDS.items():
        (devices / path).mkdir(parents=True, exist_ok=True)
        (devices / path / "numa_node").write_text(f"{numa_node}\n")
        (root / "sys/class/infiniband" / name).mkdir(parents=True)
        (root / "sys/class/infiniband" / name / "device").symlink_to(devices / path)
    return NodeTopology(gpus=(Gpu(0, pci="0000:03:00.0", numa_node=0), Gpu(1, numa_node=1)), source="nvml+sysfs")


def test_cards_and_their_links(tmp_path: Path) -> None:
    """Of a GPU without a known PCI address only the NUMA node tells."""
    topology = with_nics(machine(tmp_path), str(tmp_path))

    assert topology.nics == tuple(CARDS)
    assert topology.nic_numa == (0, 0, 0, 0, 1, None)
    assert [links[0] for links in topology.nic_links] == ["PIX", "PXB", "PHB", "NODE", "SYS", "?"]
    assert [links[1] for links in topology.nic_links] == ["SYS", "SYS", "SYS", "SYS", "NODE", "?"]
    assert topology.source == "nvml+sysfs+network"


def test_ports_of_one_card_count_once(tmp_path: Path) -> None:
    """Each port of an older card is a device of its own in the class."""
    topology = machine(tmp_path)
    second = tmp_path / "sys/class/infiniband/mlx5_9"
    second.mkdir()
    (second / "device").symlink_to(tmp_path / "sys/devices" / CARDS["mlx5_4"][0])

    assert with_nics(topology, str(tmp_path)).nics == tuple(CARDS)


def test_a_node_without_cards(tmp_path: Path) -> None:
    """That the kernel was asked remains in the source; cards that the driver has named stay."""
    named = NodeTopology(gpus=(Gpu(0),), nics=("mlx5_0",), nic_links=(("PIX",),), source="nvidia-smi")

    assert with_nics(NodeTopology(source="sysfs"), str(tmp_path)) == NodeTopology(source="sysfs+network")
    assert with_nics(named, str(tmp_path)).nics == ("mlx5_0",)


def test_a_card_whose_port_is_down_is_no_card(tmp_path: Path) -> None:
    """Nor is an Ethernet one beside InfiniBand: neither carries what a GPU sends to other nodes."""
    topology = machine(tmp_path)
    ports = {
        "mlx5_0": ("1: DOWN", "InfiniBand"),
        "mlx5_1": ("4: ACTIVE", "Ethernet"),
        "mlx5_2": ("4: ACTIVE", "InfiniBand"),
    }
    for name, (state, layer) in ports.items():
        port = tmp_path / "sys/class/infiniband" / name / "ports/1"
        port.mkdir(parents=True)
        (port / "state").write_text(f"{state}\n")
        (port / "link_layer").write_text(f"{layer}\n")

    assert with_nics(topology, str(tmp_path)).nics == ("mlx5_2",)


@pytest.mark.parametrize(
    ("nodes", "source"), [("1", "nvml+sysfs"), ("2", "nvml+sysfs+network"), ("", "nvml+sysfs+network")]
)
def test_a_job_on_one_node_needs_no_cards(nodes: str, source: str, tmp_path: Path) -> None:
    """They are read for a job on several, and for an admin."""
    reader = NetworkCards({"SLURM_JOB_NUM_NODES": nodes})

    assert reader.read(machine(tmp_path), str(tmp_path)).source == source
