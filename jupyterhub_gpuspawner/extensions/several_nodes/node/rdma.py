"""A node's RDMA devices and their ports, from ``/sys/class/infiniband``, and which of them NCCL is told to use.

An exact list that names a port which is down, or one of another network, keeps NCCL from using any; without a list it
takes the active ports by itself (``src/transport/net_ib.cc``). So a list is made of active InfiniBand ports alone, and
only where nothing about them is in doubt. Source: the kernel's ``Documentation/ABI/stable/sysfs-class-infiniband``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.node.hardware import text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from jupyterhub_gpuspawner.placement.topology import NodeTopology

_FOLDER = "sys/class/infiniband"


@dataclass(frozen=True)
class Port:
    """A port of a device, which is counted from 1."""

    number: int
    active: bool | None
    """None: the kernel does not say."""
    infiniband: bool
    """Its link layer; otherwise it is Ethernet (RoCE, iWARP), or the driver's own, as EFA's is."""
    gbit: float | None
    """Gbit/s; None where the kernel does not say."""


@dataclass(frozen=True)
class Device:
    """An RDMA device, such as ``mlx5_0``."""

    ports: tuple[Port, ...] = ()
    driver: str = ""
    virtual: bool = False
    """A virtual function (SR-IOV) beside its physical one, whose port it uses."""

    @property
    def fabric(self) -> tuple[Port, ...]:
        """Its active InfiniBand ports."""
        return tuple(port for port in self.ports if port.active and port.infiniband)

    @property
    def may_work(self) -> bool:
        """Whether one of its ports is active, or may be."""
        return not self.ports or any(port.active is not False for port in self.ports)


def read_devices(root: str = "/") -> dict[str, Device]:
    """The devices that the kernel lists, by name; none where there is no such folder."""
    folder = os.path.join(root, _FOLDER)
    return {name: _device(os.path.join(folder, name)) for name in _entries(folder)}


def _entries(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _device(path: str) -> Device:
    numbers = sorted(int(name) for name in _entries(os.path.join(path, "ports")) if name.isdigit())
    return Device(
        tuple(_port(os.path.join(path, "ports", str(number)), number) for number in numbers),
        os.path.basename(os.path.realpath(os.path.join(path, "device", "driver"))),
        os.path.exists(os.path.join(path, "device", "physfn")),
    )


def _port(path: str, number: int) -> Port:
    state = text_of(path, "state").partition(":")[0]  # "4: ACTIVE"
    try:
        gbit: float | None = float(text_of(path, "rate").split()[0])  # "400 Gb/sec (4X NDR)"
    except (IndexError, ValueError):
        gbit = None
    layer = text_of(path, "link_layer")
    return Port(number, state == "4" if state.isdigit() and layer else None, layer == "InfiniBand", gbit)


def with_usable_nics(topology: NodeTopology, devices: Mapping[str, Device]) -> NodeTopology:
    """The topology without cards whose ports are down, and without Ethernet cards beside InfiniBand.

    Cards that are none of the devices stay.
    """
    fabric = {name for name, device in devices.items() if device.fabric}
    usable = fabric or {name for name, device in devices.items() if device.may_work}
    kept = [n for n, nic in enumerate(topology.nics) if nic in usable or nic not in devices]
    return replace(
        topology,
        nics=tuple(topology.nics[n] for n in kept),
        nic_links=tuple(topology.nic_links[n] for n in kept) if topology.nic_links else (),
        nic_numa=tuple(topology.nic_numa[n] for n in kept) if topology.nic_numa else (),
    )


def nccl_list(near: Sequence[str], known: Iterable[str], devices: Mapping[str, Device]) -> str:
    """The value of ``NCCL_IB_HCA`` for the devices that are ``near``; empty: NCCL is left to choose.

    It is left to choose where the list would leave nothing out, and where there is a doubt: a port of which the kernel
    does not say whether it is active, no InfiniBand at all (which of several Ethernet networks leads to the other nodes
    is not known here), an InfiniBand device that is not among the ``known`` cards of the topology, virtual functions,
    devices of different makers, and a list that would leave out a port faster than one of its own.
    """
    fabric = {name: device for name, device in devices.items() if device.fabric}
    if not near or not set(near) <= fabric.keys() <= set(known):
        return ""
    if any(port.active is None for device in devices.values() for port in device.ports or (_UNKNOWN,)):
        return ""
    if any(device.virtual for device in fabric.values()) or len({device.driver for device in fabric.values()}) > 1:
        return ""
    rates = {name: [port.gbit or 0 for port in device.fabric] for name, device in fabric.items()}
    if min(min(rates[name]) for name in near) < max(map(max, rates.values())):
        return ""
    listed = [(name, port.number) for name in near for port in fabric[name].fabric]
    active = [(name, port.number) for name, device in devices.items() for port in device.ports if port.active]
    if len(listed) == len(active):
        return ""
    return "=" + ",".join(name if len(fabric[name].ports) == 1 else f"{name}:{port}" for name, port in listed)


_UNKNOWN = Port(1, None, infiniband=False, gbit=None)
