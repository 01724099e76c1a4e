"""The configuration files of a private Slurm, as text: slurm.conf(5), gres.conf(5), cgroup.conf(5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from jupyterhub_gpuspawner.demo.simulated import ClusterDescription, SimulatedGPUs, SimulatedNode


@dataclass(frozen=True)
class Place:
    """Where a private Slurm lives on this host."""

    folder: Path
    """Of the daemons; short, since slurmd makes Unix sockets in it."""
    hostname: str
    user: str
    """Whom the daemons run as."""
    controller_port: int
    node_ports: Mapping[str, int]

    @property
    def munge_socket(self) -> Path:
        """Of the private munged."""
        return self.folder / "munge.socket"

    @property
    def logs(self) -> Path:
        """A folder."""
        return self.folder / "log"

    @property
    def devices(self) -> Path:
        """A folder with one folder of device files for each node."""
        return self.folder / "dev"


def slurm_conf(cluster: ClusterDescription, place: Place) -> str:
    """slurm.conf: all nodes on this host, told apart by their ports.

    GPUs and cores are handed out as on a real site; what would touch the host (cgroups, accounting) is off. Waits are
    short, but an ended job can be asked after for five minutes.
    """
    folder = place.folder
    lines = [
        f"ClusterName={cluster.name}",
        f"SlurmctldHost={place.hostname}(127.0.0.1)",
        f"SlurmctldPort={place.controller_port}",
        "AuthType=auth/munge",
        f"AuthInfo=socket={place.munge_socket}",
        "CredType=cred/munge",
        f"SlurmUser={place.user}",
        f"SlurmdUser={place.user}",
        f"StateSaveLocation={folder}/state",
        f"SlurmdSpoolDir={folder}/spool/%n",
        f"SlurmctldPidFile={folder}/slurmctld.pid",
        f"SlurmdPidFile={folder}/slurmd-%n.pid",
        f"SlurmctldLogFile={place.logs}/slurmctld.log",
        f"SlurmdLogFile={place.logs}/slurmd-%n.log",
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
    lines += [_node(node, place) for node in cluster.nodes]
    lines += [
        f"PartitionName={each.name} Nodes={','.join(each.nodes)} Default={'YES' if each.default else 'NO'} "
        f"DefaultTime=01:00:00 MaxTime={each.max_time} State=UP"
        for each in cluster.partitions
    ]
    return "\n".join(lines) + "\n"


def _node(node: SimulatedNode, place: Place) -> str:
    gres = ",".join(f"gpu:{kind}:{count}" for kind, count in _count_by_type(node).items())
    words = [
        f"NodeName={node.name} NodeAddr=127.0.0.1 NodeHostname={place.hostname} Port={place.node_ports[node.name]}",
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


def gres_conf(cluster: ClusterDescription, place: Place) -> str:
    """gres.conf: a line for each GPU, in the order in which Slurm counts them."""
    lines = ["AutoDetect=off"]
    for node in cluster.nodes:
        for group in node.gpus:
            lines += [f"NodeName={node.name} {line}" for line in _gres_lines(group, place.devices / node.name)]
    return "\n".join(lines) + "\n"


def _gres_lines(group: SimulatedGPUs, devices: Path) -> Iterator[str]:
    cores = f" Cores={group.cores}" if group.cores else ""
    for files in group.devices:
        key = "File" if len(files) == 1 else "MultipleFiles"
        yield f"Name=gpu Type={group.type} {key}={','.join(str(devices / name) for name in files)}{cores}"


def cgroup_conf(version: tuple[int, int]) -> str:
    """cgroup.conf: no cgroups. Without the line a newer slurmd sets some up; 22.05 does not know the value."""
    return "" if version < (23, 2) else "CgroupPlugin=disabled\n"
