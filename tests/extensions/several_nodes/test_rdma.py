"""Which network cards NCCL is told to use, by the state, link layer and rate of their ports."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.extensions.several_nodes.node.variables import nearest_nics
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology

IB, ETH, EFA = "InfiniBand", "Ethernet", "Unknown"
UP, DOWN, INIT = "4: ACTIVE", "1: DOWN", "2: INIT"


@dataclass(frozen=True)
class Card:
    """A card of the table: how near it is to the GPU, and its ports as (state, link layer, Gbit/s)."""

    name: str
    link: str
    ports: tuple[tuple[str, str, int], ...]
    driver: str = "mlx5_core"
    virtual: bool = False


def one(name: str, link: str, state: str = UP, layer: str = IB, gbit: int = 400, driver: str = "mlx5_core") -> Card:
    """A card with one port."""
    return Card(name, link, ((state, layer, gbit),), driver)


def dual(name: str, link: str, *ports: tuple[str, str, int]) -> Card:
    """A card with several ports on one device."""
    return Card(name, link, ports, "mlx4_core")


def write(root: Path, cards: tuple[Card, ...]) -> None:
    """The cards as the kernel lists them below ``/sys/class/infiniband``."""
    for card in cards:
        device = root / "sys/devices" / card.name
        (device).mkdir(parents=True)
        (root / "sys/drivers" / card.driver).mkdir(parents=True, exist_ok=True)
        (device / "driver").symlink_to(root / "sys/drivers" / card.driver)
        if card.virtual:
            (device / "physfn").mkdir()
        folder = root / "sys/class/infiniband" / card.name
        folder.mkdir(parents=True)
        (folder / "device").symlink_to(device)
        for number, (state, layer, gbit) in enumerate(card.ports, 1):
            port = folder / "ports" / str(number)
            port.mkdir(parents=True)
            if state:
                (port / "state").write_text(f"{state}\n")
            (port / "link_layer").write_text(f"{layer}\n")
            (port / "rate").write_text(f"{gbit} Gb/sec (4X NDR)\n")


NODES: dict[str, tuple[tuple[Card, ...], str, str]] = {
    "the nearest is Ethernet, and down": (
        (one("mlx5_0", "NODE"), one("mlx5_2", "PIX", DOWN, ETH, 25)),
        "",
        "mlx5_0",
    ),
    "the nearest is Ethernet, and up: the list keeps NCCL from it": (
        (one("mlx5_0", "NODE"), one("mlx5_2", "PIX", UP, ETH, 100)),
        "=mlx5_0",
        "mlx5_0",
    ),
    "the nearest InfiniBand port is down": ((one("mlx5_0", "SYS"), one("mlx5_1", "PIX", DOWN)), "", "mlx5_0"),
    "a port that is not active yet": ((one("mlx5_0", "SYS"), one("mlx5_1", "PIX", INIT)), "", "mlx5_0"),
    "storage on another socket": ((one("mlx5_0", "PIX"), one("mlx5_1", "SYS")), "=mlx5_0", "mlx5_0"),
    "storage that is slower": ((one("mlx5_0", "PIX"), one("mlx5_1", "SYS", gbit=100)), "=mlx5_0", "mlx5_0"),
    "the near card is the slower one": ((one("mlx5_0", "PIX", gbit=100), one("mlx5_1", "SYS")), "", "mlx5_0"),
    "all are near": ((one("mlx5_0", "PIX"), one("mlx5_1", "PIX")), "", "mlx5_0,mlx5_1"),
    "RoCE only": ((one("mlx5_0", "PIX", UP, ETH), one("mlx5_1", "SYS", UP, ETH)), "", "mlx5_0"),
    "a bond of Ethernet ports beside InfiniBand": (
        (one("mlx5_0", "PXB"), one("mlx5_bond_0", "PIX", UP, ETH, 50)),
        "=mlx5_0",
        "mlx5_0",
    ),
    "Azure: InfiniBand, accelerated networking and MANA": (
        (
            one("mlx5_ib0", "PHB", gbit=400),
            one("mlx5_an0", "PHB", UP, ETH, 100),
            one("mana_0", "PHB", UP, ETH, 200, "mana"),
        ),
        "=mlx5_ib0",
        "mlx5_ib0",
    ),
    "MANA alone": ((one("mana_0", "PIX", UP, ETH, 200, "mana"),), "", "mana_0"),
    "EFA": (
        (one("rdmap16s27", "PIX", UP, EFA, 100, "efa"), one("rdmap32s27", "SYS", UP, EFA, 100, "efa")),
        "",
        "rdmap16s27",
    ),
    "Omni-Path, two rails": (
        (one("hfi1_0", "NODE", gbit=100, driver="hfi1"), one("hfi1_1", "SYS", gbit=100, driver="hfi1")),
        "=hfi1_0",
        "hfi1_0",
    ),
    "Omni-Path beside InfiniBand": (
        (one("hfi1_0", "NODE", gbit=100, driver="hfi1"), one("mlx5_0", "SYS", gbit=100)),
        "",
        "hfi1_0",
    ),
    "one card for InfiniBand and Ethernet": (
        (dual("mlx4_0", "PIX", (UP, IB, 56), (UP, ETH, 40)),),
        "=mlx4_0:1",
        "mlx4_0",
    ),
    "the second port alone has a cable": (
        (dual("mlx4_0", "PIX", (DOWN, IB, 10), (UP, IB, 56)), one("mlx5_1", "SYS", UP, ETH, 10)),
        "=mlx4_0:2",
        "mlx4_0",
    ),
    "virtual functions beside their port": (
        (
            one("mlx5_0", "PIX"),
            Card("mlx5_1", "PIX", ((UP, IB, 400),), virtual=True),
            one("mlx5_2", "SYS"),
        ),
        "",
        "mlx5_0,mlx5_1",
    ),
    "a state that cannot be read": ((one("mlx5_0", "PIX"), one("mlx5_1", "SYS", "")), "", "mlx5_0"),
    "a device without ports": ((one("mlx5_0", "PIX"), Card("cxi0", "SYS", ())), "", "mlx5_0"),
    "all are down": ((one("mlx5_0", "PIX", DOWN), one("mlx5_1", "SYS", DOWN)), "", ""),
}


def topology_of(cards: tuple[Card, ...]) -> NodeTopology:
    """A GPU and these cards."""
    return NodeTopology(
        gpus=(Gpu(0),),
        links=(("X",),),
        nics=tuple(card.name for card in cards),
        nic_links=tuple((card.link,) for card in cards),
        nic_numa=(0,) * len(cards),
        source="nvml+sysfs+network",
    )


@pytest.mark.parametrize("name", NODES)
def test_cards_for_nccl(name: str, tmp_path: Path) -> None:
    """A port that is down, or of Ethernet beside InfiniBand, is named nowhere; a doubt leaves NCCL to choose."""
    cards, listed, nearest = NODES[name]
    write(tmp_path, cards)

    found = nearest_nics({}, topology_of(cards), [0], [0], root=str(tmp_path))

    assert (found.get("NCCL_IB_HCA", ""), found.get("GPUSPAWNER_NICS", "")) == (listed, nearest)


@pytest.mark.parametrize("name", NODES)
def test_a_list_names_working_infiniband_alone(name: str, tmp_path: Path) -> None:
    """Whatever is in the table, no list names a port that is not an active one of InfiniBand."""
    cards, _, _ = NODES[name]
    for link in ("PIX", "NODE", "SYS"):  # whichever is the nearest
        for near in cards:
            moved = tuple(replace(card, link="PIX" if card == near else link) for card in cards)
            root = tmp_path / f"{link}-{near.name}"
            write(root, moved)
            text = nearest_nics({}, topology_of(moved), [0], [0], root=str(root)).get("NCCL_IB_HCA", "")
            ports = {card.name: card.ports for card in cards}
            for word in filter(None, text.removeprefix("=").split(",")):
                device, _, port = word.partition(":")
                state, layer, _ = ports[device][int(port or 1) - 1]
                assert (state, layer) == (UP, IB)


def test_a_card_that_the_topology_lacks(tmp_path: Path) -> None:
    """A site's topology file names one card of two: whether the other leads to the same nodes is not known."""
    cards = NODES["storage on another socket"][0]
    write(tmp_path, (*cards, one("mlx5_7", "SYS")))

    assert nearest_nics({}, topology_of(cards), [0], [0], root=str(tmp_path)) == {"GPUSPAWNER_NICS": "mlx5_0"}
