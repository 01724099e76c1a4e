"""Network cards from a tree of sysfs as a kernel writes it."""

from __future__ import annotations

from pathlib import Path

from jupyterhub_gpuspawner.node.hardware import with_nics
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
    found = with_nics(machine(tmp_path), str(tmp_path))

    assert found.nics == tuple(CARDS)
    assert found.nic_numa == (0, 0, 0, 0, 1, None)
    assert [links[0] for links in found.nic_links] == ["PIX", "PXB", "PHB", "NODE", "SYS", "?"]
    assert [links[1] for links in found.nic_links] == ["SYS", "SYS", "SYS", "SYS", "NODE", "?"]
    assert found.source == "nvml+sysfs+network"


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
