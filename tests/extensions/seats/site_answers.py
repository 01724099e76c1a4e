"""Answers as a site's Slurm gives them, written from a few words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from jupyterhub_gpuspawner.demo.slurm_cluster import SlurmFailed, slurm_version
from jupyterhub_gpuspawner.extensions.seats.devices import gres_conf
from jupyterhub_gpuspawner.extensions.seats.held import HeldJob
from jupyterhub_gpuspawner.extensions.seats.site import Site
from jupyterhub_gpuspawner.extensions.seats.twin import site_from
from jupyterhub_gpuspawner.slurm.job import Phase
from jupyterhub_gpuspawner.slurm.snapshot import ClusterJob
from jupyterhub_gpuspawner.units import NodeAllocation, parse_cpulist, parse_gres

NOW = 1_795_000_000.0
"""The moment of the answers, in seconds since the epoch."""
try:
    VERSION = slurm_version()  # a twin of another version than the site's says so
except SlurmFailed:  # there is no Slurm
    VERSION = "22.05.8"
CONFIG = {
    "GresTypes": "gpu,shard",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_CORE_MEMORY",
    "SLURM_VERSION": VERSION,
    "PrivateData": "none",
}


def config(**parameters: str) -> str:
    """``scontrol show config`` with these parameters."""
    return "".join(f"{key:<24}= {value}\n" for key, value in {**CONFIG, **parameters}.items())


def node(
    name: str,
    gres: str = "(null)",
    *,
    sockets: int = 2,
    cores: int = 12,
    threads: int = 1,
    memory: int = 64000,
    state: str = "IDLE",
    features: str = "(null)",
    used: tuple[int, int, str] = (0, 0, ""),
    more: str = "",
) -> str:
    """A line of ``scontrol show node -d -o``; ``cores`` are those of a socket, ``used`` CPUs, MiB and gres."""
    cpus = sockets * cores * threads
    return (
        f"NodeName={name} Arch=x86_64 CoresPerSocket={cores} CPUAlloc={used[0]} CPUEfctv={cpus} CPUTot={cpus} "
        f"AvailableFeatures={features} ActiveFeatures={features} Gres={gres} GresDrain=N/A GresUsed={used[2]} "
        f"NodeAddr={name} NodeHostName={name} Version={VERSION} RealMemory={memory} AllocMem={used[1]} "
        f"FreeMem={memory} Sockets={sockets} Boards=1 State={state} ThreadsPerCore={threads} TmpDisk=0 Weight=1 "
        f"Owner=N/A MCS_label=N/A Partitions=gpu {more}\n"
    )


def partition(name: str, nodes: str, more: str = "", *, default: bool = True, time: str = "1-00:00:00") -> str:
    """A line of ``scontrol show partition -o``; ``more`` replaces nothing and comes first."""
    return (
        f"PartitionName={name} {more} AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL "
        f"Default={'YES' if default else 'NO'} QoS=N/A DefaultTime=01:00:00 MaxTime={time} Nodes={nodes} State=UP "
        "OverSubscribe=NO PriorityTier=1\n"
    )


def job(
    number: int,
    node: str,
    cpus: str,
    gres: str = "",
    *,
    memory: int = 1000,
    partition: str = "gpu",
    ends_in: float = 3600.0,
    state: str = "RUNNING",
    sharing: str = "OK",
    licenses: str = "",
) -> tuple[HeldJob]:
    """A job that holds this on one node, until ``ends_in`` seconds after NOW."""
    cpu_ids = tuple(parse_cpulist(cpus))
    gres_there = parse_gres(gres)
    of_cluster = ClusterJob(
        str(number),
        Phase.RUNNING,
        state,
        partitions=(partition,),
        nodes=(node,),
        cpus=len(cpu_ids),
        memory_mib=memory,
        gpus=gres_there,
        starts_at=NOW - 60,
        ends_at=NOW + ends_in,
    )
    on_node = NodeAllocation(node, cpu_ids, memory, gres_there)
    return (HeldJob(of_cluster, sharing == "NO", parse_gres(licenses), (on_node,)),)


def reservation(
    name: str, nodes: str, *, begins_in: float, ends_in: float, flags: str = "SPEC_NODES", more: str = ""
) -> str:
    """A line of ``scontrol show reservation -o``; times in seconds after NOW."""
    return (
        f"ReservationName={name} StartTime={NOW + begins_in:.0f} EndTime={NOW + ends_in:.0f} Nodes={nodes} "
        f"{more} PartitionName=(null) Flags={flags} Users=ada Accounts=(null) State=ACTIVE\n"
    )


def site(nodes: Iterable[str], partitions: Iterable[str], **more: Any) -> Site:
    """A site with these lines; ``more`` are its other answers, with ``gres_conf`` as text."""
    texts = {
        "config": config(),
        **{name: more.pop(name) for name in ("config", "reservations", "licenses") if name in more},
    }
    read = site_from(nodes="".join(nodes), partitions="".join(partitions), **texts)
    devices = gres_conf(more.pop("gres_conf", ""), [node.name for node in read.nodes])
    return replace(read, gres=devices, **more)
