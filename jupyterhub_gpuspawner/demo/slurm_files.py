"""The configuration files of a private Slurm, as text: slurm.conf(5), gres.conf(5), cgroup.conf(5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from jupyterhub_gpuspawner.demo.simulated import ClusterDescription, SimulatedGPUs, SimulatedNode


@dataclass(frozen=True)
class Layout:
    """Folders, ports and account of a private Slurm on this host."""

    folder: Path
    """The daemons' folder; its path must be short, since slurmd creates Unix sockets in it."""
    hostname: str
    user: str
    """The account that the daemons run as."""
    controller_port: int
    node_ports: Mapping[str, int]

    @property
    def munge_socket(self) -> Path:
        """The socket of the private munged."""
        return self.folder / "munge.socket"

    @property
    def logs(self) -> Path:
        """The folder of the daemons' logs."""
        return self.folder / "log"

    @property
    def devices(self) -> Path:
        """The folder with one subfolder of device files for each node."""
        return self.folder / "dev"


def slurm_conf(cluster: ClusterDescription, layout: Layout) -> str:
    """slurm.conf: all nodes on this host, distinguished by their ports.

    GPUs and cores are allocated as on a real site; what would affect the host (cgroups, accounting) is off.
    Intervals are short, but a job can still be queried for five minutes after its end.
    """
    folder = layout.folder
    lines = [
        f"ClusterName={cluster.name}",
        f"SlurmctldHost={layout.hostname}(127.0.0.1)",
        f"SlurmctldPort={layout.controller_port}",
        "AuthType=auth/munge",
        f"AuthInfo=socket={layout.munge_socket}",
        "CredType=cred/munge",
        f"SlurmUser={layout.user}",
        f"SlurmdUser={layout.user}",
        f"StateSaveLocation={folder}/state",
        f"SlurmdSpoolDir={folder}/spool/%n",
        f"SlurmctldPidFile={folder}/slurmctld.pid",
        f"SlurmdPidFile={folder}/slurmd-%n.pid",
        f"SlurmctldLogFile={layout.logs}/slurmctld.log",
        f"SlurmdLogFile={layout.logs}/slurmd-%n.log",
        "SlurmdParameters=config_overrides",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "JobAcctGatherType=jobacct_gather/none",
        "MpiDefault=none",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        "DefMemPerCPU=1000",
        "GresTypes=gpu",
        "SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=5",
        "PropagateResourceLimits=NONE",
        "ReturnToService=2",
        "SlurmdTimeout=30",
        "KillWait=5",
        "MinJobAge=300",
    ]
    lines += [_node(node, layout) for node in cluster.nodes]
    lines += [
        f"PartitionName={each.name} Nodes={','.join(each.nodes)} Default={'YES' if each.default else 'NO'} "
        f"DefaultTime=01:00:00 MaxTime={each.max_time} State=UP"
        for each in cluster.partitions
    ]
    return "\n".join(lines) + "\n"


def _node(node: SimulatedNode, layout: Layout) -> str:
    gres = ",".join(f"gpu:{kind}:{count}" for kind, count in _count_by_type(node).items())
    words = [
        f"NodeName={node.name} NodeAddr=127.0.0.1 NodeHostname={layout.hostname} Port={layout.node_ports[node.name]}",
        f"Sockets={node.sockets} CoresPerSocket={node.cores_per_socket} ThreadsPerCore={node.threads}",
        f"RealMemory={node.memory_mib}",
        f"Gres={gres}" if gres else "",
        f"Feature={','.join(node.features)}" if node.features else "",
        "State=UNKNOWN",
    ]
    return " ".join(filter(None, words))


def _count_by_type(node: SimulatedNode) -> dict[str, int]:
    counts: dict[str, int] = {}
    for group in node.gpus:
        counts[group.type] = counts.get(group.type, 0) + len(group.devices)
    return counts


def gres_conf(cluster: ClusterDescription, layout: Layout) -> str:
    """gres.conf: a line for each GPU, in the order in which Slurm counts them."""
    lines = ["AutoDetect=off"]
    for node in cluster.nodes:
        devices = layout.devices / node.name
        own = [line.replace("/dev/", f"{devices}/") for line in node.gres_lines]
        implied = [line for group in node.gpus for line in _gres_lines(group, devices)]
        lines += [f"NodeName={node.name} {line}" for line in own or implied]
    return "\n".join(lines) + "\n"


def _gres_lines(group: SimulatedGPUs, devices: Path) -> Iterator[str]:
    cores = f" Cores={group.cores}" if group.cores else ""
    for files in group.devices:
        key = "File" if len(files) == 1 else "MultipleFiles"
        yield f"Name=gpu Type={group.type} {key}={','.join(str(devices / name) for name in files)}{cores}"


def cgroup_conf(version: tuple[int, int]) -> str:
    """cgroup.conf: no cgroups. Without this line a newer slurmd creates some; 22.05 does not know the value."""
    return "" if version < (23, 2) else "CgroupPlugin=disabled\n"
