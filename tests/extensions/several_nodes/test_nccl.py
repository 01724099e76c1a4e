"""What NCCL is told of a node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyterhub_gpuspawner.extensions.several_nodes.node.network import nearest_nics, topology_file
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology, NumaNode

NODE = NodeTopology(
    gpus=tuple(Gpu(n, pci=f"000{n + 1}:00:00.0", numa_node=n // 2, pcie_generation=4) for n in range(4)),
    links=tuple(tuple("X" if a == b else "NV12" for b in range(4)) for a in range(4)),
    numa_nodes=(NumaNode(0, cpus=tuple(range(40))), NumaNode(1, cpus=(40, 41))),
    nics=("mlx5_0", "mlx5_1", "mlx5_2"),
    nic_links=(("PIX", "PIX", "SYS", "SYS"), ("SYS", "SYS", "PXB", "NODE"), ("SYS",) * 4),
)


@pytest.mark.parametrize(
    ("gpus", "nics"), [((0,), ("mlx5_0",)), ((1, 2), ("mlx5_0", "mlx5_1")), ((3,), ("mlx5_1",)), ((), ())]
)
def test_the_nearest_nics(gpus: tuple[int, ...], nics: tuple[str, ...]) -> None:
    """Those with the shortest path to one of the GPUs."""
    assert nearest_nics(NODE, gpus) == nics


def test_unknown_paths_to_nics() -> None:
    """Nothing is said if a path is not known."""
    unknown = replace(NODE, nic_links=(("PIX", "?", "SYS", "SYS"), *NODE.nic_links[1:]))
    assert (nearest_nics(unknown, [0]), nearest_nics(unknown, [1])) == (("mlx5_0",), ())
    assert nearest_nics(replace(NODE, nics=(), nic_links=()), [0]) == ()


def test_the_topology_file() -> None:
    """Processors with their GPUs and NICs: those below one bridge together, NVLink left to NCCL."""
    pci = {"mlx5_0": "0101:00:00.0", "mlx5_1": "0102:00:00.0"}
    processor = {"arch": "x86_64", "vendor": "AuthenticAMD", "familyid": "23", "modelid": "49"}
    text = topology_file(NODE, pci, processor)
    speed = 'link_speed="16 GT/s" link_width="16"'
    cpu = 'arch="x86_64" vendor="AuthenticAMD" familyid="23" modelid="49"'
    assert text.splitlines() == [
        '<system version="1">',
        f'  <cpu numaid="0" affinity="000000ff,ffffffff" {cpu}>',
        f'    <pci busid="ffff:ff:01.0" class="0x060400" {speed}>',
        f'      <pci busid="0001:00:00.0" class="0x030200" {speed}/>',
        f'      <pci busid="0002:00:00.0" class="0x030200" {speed}/>',
        f'      <pci busid="0101:00:00.0" class="0x020700" {speed}/>',
        "    </pci>",
        "  </cpu>",
        f'  <cpu numaid="1" affinity="00000300,00000000" {cpu}>',
        f'    <pci busid="ffff:ff:02.0" class="0x060400" {speed}>',
        f'      <pci busid="0003:00:00.0" class="0x030200" {speed}/>',
        f'      <pci busid="0102:00:00.0" class="0x020700" {speed}/>',
        "    </pci>",
        f'    <pci busid="0004:00:00.0" class="0x030200" {speed}/>',
        "  </cpu>",
        "</system>",
    ]


@pytest.mark.parametrize("missing", [{"pci": ""}, {"numa_node": None}, {"pcie_generation": None}, {"mig": "1g.10gb"}])
def test_no_file_if_too_little_is_known(missing: dict[str, object]) -> None:
    """A wrong file is worse than none."""
    assert topology_file(replace(NODE, gpus=(replace(NODE.gpus[0], **missing), *NODE.gpus[1:])), {}, {}) == ""  # type: ignore[arg-type]
