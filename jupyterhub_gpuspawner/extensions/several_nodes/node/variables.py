"""The environment variables of a rank, as torch.distributed, NCCL and Gloo read them. Values of the user always win.

Sources: torch.distributed, "Environment variable initialization" and torchrun; NCCL, "Environment Variables".
"""

from __future__ import annotations

import os
import random
import socket
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.extensions.several_nodes.node import network, rdma
from jupyterhub_gpuspawner.node.hardware import text_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jupyterhub_gpuspawner.placement.topology import NodeTopology


# What a rank must know of its node's network: the interface towards an address, InfiniBand, and a free port.

_SIOCGIFADDR = 0x8915
_ARPHRD_INFINIBAND = "32"
_NET = "/sys/class/net"
PORTS = (20000, 32767)
"""Ports from which the master's is taken: below those that Linux gives to clients (ip_local_port_range, from 32768)."""


def interface_to(address: str) -> str | None:
    """The interface by which this node reaches ``address`` (IPv4), or that has it; None if it is not known.

    No packet is sent: connecting a UDP socket asks the kernel for the route.
    """
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            own = probe.getsockname()[0]
            return next((name for name in sorted(os.listdir(_NET)) if _address_of(probe, name) == own), None)
    except (OSError, ValueError):
        return None


def _address_of(probe: socket.socket, interface: str) -> str | None:
    import fcntl

    try:
        answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, interface.encode()[:15].ljust(40, b"\0"))
    except OSError:
        return None
    return socket.inet_ntoa(answer[20:24])


def has_infiniband() -> bool:
    """Whether this node has an InfiniBand interface, with an address or without."""
    try:
        return any(text_of(_NET, name, "type") == _ARPHRD_INFINIBAND for name in os.listdir(_NET))
    except OSError:
        return False


def free_port(*, here: bool) -> int:
    """A port for the master: free on this node, if that is the master's; else one at random.

    Another process may take it before the master does; then the run fails, and its user starts it again. Raises OSError
    if none is free.
    """
    ports = range(PORTS[0], PORTS[1] + 1)
    for port in random.sample(ports, len(ports)):
        if not here:
            return port
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    raise OSError(f"no port from {PORTS[0]} to {PORTS[1]} is free on this node")


def resolved(name: str) -> str:
    """The address of a node; the name itself if it cannot be resolved."""
    try:
        entries = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return name
    addresses = [str(entry[4][0]) for entry in sorted(entries, key=lambda entry: entry[0] != socket.AF_INET)]
    return next(iter(addresses), name)


_RENDEZVOUS = (
    "--standalone",
    "--nnodes",
    "--node-rank",
    "--rdzv-backend",
    "--rdzv-endpoint",
    "--rdzv-id",
    "--rdzv-conf",
    "--master-addr",
    "--master-port",
)
_PROCESSES = "--nproc-per-node"
_FLAGS = ("--standalone", "--no-python", "--module", "-m", "--run-path", "--virtual-local-rank", "--help", "-h")
"""Options without a value (torch.distributed.run.get_args_parser)."""
_PLATFORM_FILE = "/var/run/nvidia-topologyd/virtualTopology.xml"
"""The topology file of the platform, which NCCL reads by itself."""


def master(environ: Mapping[str, str], address: str, port: int) -> dict[str, str]:
    """The variables of the master.

    ``address`` is empty if srun runs on the master's node: then it is the address from which Slurm has started this
    task.
    """
    return {
        "MASTER_ADDR": environ.get("MASTER_ADDR") or address or environ.get("SLURM_LAUNCH_NODE_IPADDR", ""),
        "MASTER_PORT": environ.get("MASTER_PORT") or str(port),
    }


def interfaces(environ: Mapping[str, str], interface: str | None, *, infiniband: bool) -> dict[str, str]:
    """Interfaces for Gloo and NCCL: the one that reaches the master, if it is known.

    Without it Gloo takes the address of the node's name, which need not resolve. NCCL takes InfiniBand first, so where
    there is any, it is left to choose; and it never needs the loopback interface.
    """
    variables = {"GLOO_SOCKET_IFNAME": interface} if interface else {}
    if interface and interface != "lo" and not infiniband:
        variables["NCCL_SOCKET_IFNAME"] = f"={interface}"  # exactly this one
    return {name: value for name, value in variables.items() if not environ.get(name)}


def nearest_nics(
    environ: Mapping[str, str], topology: NodeTopology, own: Sequence[int], whole: Sequence[int], *, root: str = "/"
) -> dict[str, str]:
    """The NICs nearest to the rank's GPUs (``own``), and for NCCL those nearest to the GPUs of all ranks beside it.

    All ranks of a node must give NCCL the same list. It is given only if it leaves a NIC out, such as that of the
    storage, and nothing is in doubt (:func:`.rdma.nccl_list`): which of several NICs a GPU uses, NCCL decides better by
    itself.
    """
    devices = {} if topology.simulated else rdma.read_devices(root)
    usable = rdma.with_usable_nics(topology, devices)
    nics = {"GPUSPAWNER_NICS": ",".join(network.nearest_nics(usable, own))}
    if not environ.get("NCCL_IB_HCA"):
        nics["NCCL_IB_HCA"] = rdma.nccl_list(network.nearest_nics(usable, whole), topology.nics, devices)
    return {name: value for name, value in nics.items() if value}


def torchrun(command: Sequence[str], environ: Mapping[str, str], *, processes: int) -> tuple[list[str], dict[str, str]]:
    """The command of torchrun with its rendezvous and number of processes, as far as the user did not give them.

    ``environ`` has the variables of the rank and of the master. The options are written with ``_``, which PyTorch 1
    requires. The rendezvous is the static one: with ``c10d`` the ranks of the nodes would follow from the order in
    which they arrive. The port is a variable, which torchrun reads as its option: every user of the node sees a command
    line, and could take the port before torchrun opens it.
    """
    start, options = _torchrun_options(command)
    more: list[str] = []
    port: dict[str, str] = {}
    if options.keys().isdisjoint(_RENDEZVOUS):
        more += [f"--nnodes={environ['WORLD_SIZE']}", f"--node_rank={environ['RANK']}"]
        more.append(f"--master_addr={environ['MASTER_ADDR']}")
        port = {"PET_MASTER_PORT": environ["MASTER_PORT"]}
    if _PROCESSES not in options:
        more.append(f"--nproc_per_node={processes}")
    return [*command[:start], *more, *command[start:]], port


def processes(command: Sequence[str], *, gpus: int, cpus: int) -> int:
    """How many processes torchrun starts on a node that has so many GPUs and CPUs for it."""
    text = _torchrun_options(command)[1].get(_PROCESSES, "gpu")
    if text.isascii() and text.isdigit():
        return max(1, int(text))
    return max(1, cpus if text == "cpu" else gpus)


def _torchrun_options(command: Sequence[str]) -> tuple[int, dict[str, str]]:
    """Where torchrun's options begin, and each of them with its value.

    They end at the script, or at ``--``; a script's own options do not count. torchrun accepts its options with ``-``
    and with ``_``.
    """
    start = 3 if command[0].rpartition("/")[2].startswith("python") else 1  # python -m torch.distributed.run
    options: dict[str, str] = {}
    unfinished = ""  # an option whose value is the next word
    for word in command[start:]:
        if word == "--" or not (unfinished or word.startswith("-")):
            break
        if word.startswith("-"):
            name, equals, value = word.partition("=")
            name = "--" + name[2:].replace("_", "-") if name.startswith("--") else name
            options[name] = value
            unfinished = name if not equals and name not in _FLAGS else ""
        else:
            options[unfinished] = word
            unfinished = ""
    return start, options


def nccl_file(environ: Mapping[str, str], topology: NodeTopology, *, root: str = "/") -> str:
    """A topology file for NCCL, if NCCL cannot see how the GPUs are connected; else empty.

    That is so if the node is described by the site's topology file (and not simulated), and the kernel shows no path
    from a GPU to the processor: the device is missing below ``/sys/bus/pci``, or hangs on the root bus without any
    bridge, as in virtual machines. A file of the user (``NCCL_TOPO_FILE``) or of the platform is left to NCCL.
    """
    if environ.get("NCCL_TOPO_FILE") or os.path.exists(os.path.join(root, _PLATFORM_FILE.lstrip("/"))):
        return ""
    if not topology.is_from_file or topology.simulated or all(_has_bridge(gpu.pci, root) for gpu in topology.gpus):
        return ""
    return network.topology_file(topology, _nic_addresses(topology.nics, root), _processor(root))


def _has_bridge(pci: str, root: str) -> bool:
    """Whether sysfs shows the device below a bridge: ``/sys/devices/pci0000:00/BRIDGE/DEVICE``."""
    path = os.path.realpath(os.path.join(root, "sys/bus/pci/devices", pci)) if pci else ""
    return os.path.exists(path) and not os.path.basename(os.path.dirname(path)).startswith("pci")


def _nic_addresses(nics: Sequence[str], root: str) -> dict[str, str]:
    """PCI addresses of the RDMA devices that this node has."""
    addresses = {}
    for nic in nics:
        path = os.path.realpath(os.path.join(root, "sys/class/infiniband", nic, "device"))
        if os.path.exists(path):
            addresses[nic] = os.path.basename(path)
    return addresses


def _processor(root: str) -> dict[str, str]:
    """What NCCL wants to know of the processor, which ``/proc/cpuinfo`` says for x86."""
    processor = {"arch": os.uname().machine}
    words = {"vendor_id": "vendor", "cpu family": "familyid", "model": "modelid"}
    for line in text_of(root, "proc/cpuinfo").partition("\n\n")[0].splitlines():
        name, _, value = line.partition(":")
        if name.strip() in words:
            processor[words[name.strip()]] = value.strip()
    return processor
