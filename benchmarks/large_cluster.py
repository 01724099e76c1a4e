"""Slurm's answers about a cluster of 10,000 nodes with 50,000 jobs, as text, and commands that print them.

The lines have the fields and the width of those that Slurm 22.05 prints (``tests/data/slurm-outputs``). As on a real
cluster, many values repeat from node to node and from job to job, and many do not: names, times, loads, priorities.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

from jupyterhub_gpuspawner.slurm.squeue import CLUSTER

NODES, RUNNING, PENDING = 10_000, 35_000, 15_000
NOW = 1_800_000_000
MARK = "0123456789abcdef"
"""The mark between the fields of jobs; :func:`install` replaces it by the one that was asked for."""
_KINDS = (
    # partition, GPU type, GPUs, CPUs, MiB, features, nodes in a thousand
    ("cpu", "", 0, 128, 515_000, "genoa,ib,ssd", 500),
    ("big", "", 0, 192, 2_060_000, "genoa,ib,large", 50),
    ("a100", "a100", 4, 64, 515_000, "milan,ib,nvlink", 250),
    ("h100", "h100", 8, 96, 1_030_000, "sapphire,ib,nvlink", 150),
    ("slices", "1g.10gb", 28, 64, 515_000, "milan,mig", 50),
)
_NODE = (
    "NodeName={name} Arch=x86_64 CoresPerSocket={half}  CPUAlloc={used} CPUEfctv={cpus} CPUTot={cpus} "
    "CPULoad={load:.2f} AvailableFeatures={features},rack{rack} ActiveFeatures={features},rack{rack} Gres={gres} "
    "GresDrain=N/A GresUsed={gres_used} NodeAddr={name} NodeHostName={name} Port=6818 Version=22.05.8 OS=Linux "
    "5.14.0-427.13.1.el9_4.x86_64 #1 SMP PREEMPT_DYNAMIC Wed May 1 19:11:28 UTC 2024  RealMemory={memory} "
    "AllocMem={memory_used} FreeMem={free} Sockets=2 Boards=1 State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 "
    "Owner=N/A MCS_label=N/A Partitions={partition},all  BootTime={boot} SlurmdStartTime={start} LastBusyTime={busy} "
    "CfgTRES=cpu={cpus},mem={memory}M,billing={cpus}{tres} AllocTRES=cpu={used},mem={memory_used}M CapWatts=n/a "
    "CurrentWatts=0 AveWatts=0 ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s{reason}"
)
_REASONS = ("NHC: check_fs_mount: /scratch not mounted", "Not responding", "Memory errors, ticket 40213", "Firmware")


class LargeCluster(NamedTuple):
    """What each command prints."""

    nodes: str
    partitions: str
    reservations: str
    jobs: str


def large_cluster(nodes: int = NODES, running: int = RUNNING, pending: int = PENDING) -> LargeCluster:
    """The same text for the same numbers."""
    chance = random.Random(1)
    kinds = [kind for kind in _KINDS for _ in range(kind[-1] * nodes // 1000)]
    chance.shuffle(kinds)
    users = [f"user{number:04d}" for number in range(2000)]
    lines, jobs, members = [], [], dict[str, list[int]]()
    left, job_id = running, 7_000_000
    for number, (partition, gpu, gpus, cpus, memory, features, _) in enumerate(kinds):
        members.setdefault(partition, []).append(number)
        name, share = f"n{number:05d}", min(8, round(left / max(1, len(kinds) - number) * chance.uniform(0.5, 1.5)))
        state = chance.choices(("", "DOWN*", "IDLE+DRAIN", "DOWN"), (97, 1, 1, 1))[0]
        here = 0 if state else min(left, share)
        left -= here
        used, memory_used, gpus_used = 0, 0, 0
        for _ in range(here):
            job_id += chance.randint(1, 9)
            took = max(1, cpus // 8) if chance.random() < 0.7 else max(1, cpus // 16)
            devices = chance.randint(0, 2) if gpus_used + 2 <= gpus else 0
            used, memory_used, gpus_used = used + took, memory_used + memory // 10, gpus_used + devices
            began = NOW - chance.randint(60, 200_000)
            jobs.append(_job(job_id, chance, users, partition, name, took, memory // 10, gpu, devices, began))
        index = f"(IDX:0-{gpus_used - 1})" if gpus_used > 1 else f"(IDX:{'0' if gpus_used else 'N/A'})"
        lines.append(
            _NODE.format(
                name=name,
                half=cpus // 2,
                used=used,
                cpus=cpus,
                load=chance.uniform(0, cpus),
                features=features,
                rack=number // 64,
                gres=f"gpu:{gpu}:{gpus}(S:0-1)" if gpus else "(null)",
                gres_used=f"gpu:{gpu}:{gpus_used}{index}" if gpus else "gpu:0",
                memory=memory,
                memory_used=memory_used,
                free=chance.randint(10_000, memory),
                state=state or ("ALLOCATED" if used == cpus else "MIXED" if used else "IDLE"),
                partition=partition,
                boot=NOW - chance.randint(100_000, 9_000_000),
                start=NOW - chance.randint(90_000, 100_000),
                busy=NOW - chance.randint(0, 90_000),
                tres=f",gres/gpu={gpus},gres/gpu:{gpu}={gpus}" if gpus else "",
                reason=f" Reason={chance.choice(_REASONS)} [root@{NOW - chance.randint(0, 10**6)}]" if state else "",
            )
        )
    for _ in range(pending + left):
        job_id += chance.randint(1, 9)
        partition, gpu, gpus, cpus, memory, *_ = chance.choice(_KINDS)
        devices = chance.randint(0, min(gpus, 4))
        jobs.append(_job(job_id, chance, users, partition, "", cpus // 8, memory // 10, gpu, devices, 0))
    partitions = [
        f"PartitionName={name} AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL "
        f"Default={'YES' if name == 'cpu' else 'NO'} QoS=N/A DefaultTime=01:00:00 Hidden=NO MaxNodes=UNLIMITED "
        f"MaxTime=2-00:00:00 MinNodes=0 State=UP DefMemPerCPU=2000 MaxMemPerNode=UNLIMITED "
        f"Nodes={','.join(f'n{number:05d}' for number in numbers)}"
        for name, numbers in members.items()
    ]
    partitions.append(f"PartitionName=all State=UP MaxTime=1-00:00:00 Nodes=n[00000-{len(kinds) - 1:05d}]")
    reservations = f"ReservationName=course StartTime={NOW - 60} EndTime={NOW + 36000} Nodes=n[00003-00083] Flags=\n"
    return LargeCluster("\n".join(lines) + "\n", "\n".join(partitions) + "\n", reservations, "".join(jobs))


def _job(
    job_id: int,
    chance: random.Random,
    users: list[str],
    partition: str,
    node: str,
    cpus: int,
    memory: int,
    gpu: str,
    devices: int,
    began: int,
) -> str:
    hours = chance.choice((1, 2, 4, 8, 12, 24, 36, 48))
    user = chance.randrange(len(users))
    odd = "|" if chance.random() < 0.05 else "-"
    values = {
        "JobID": str(job_id),
        "ArrayTaskID": "N/A",
        "State": "RUNNING" if node else "PENDING",
        "Reason": "None" if node else chance.choice(("Priority", "Priority", "Resources", "Dependency", "JobHeldUser")),
        "UserName": users[user],
        "Partition": partition,
        "PriorityLong": str(chance.randint(10_000, 400_000)),
        "NodeList": node,
        "NumNodes": "1",
        "NumCPUs": str(cpus),
        "NumTasks": "1",
        "tres-alloc": f"cpu={cpus},mem={memory}M,node=1,billing={cpus}" if node else "(null)",
        "SubmitTime": str((began or NOW) - chance.randint(1, 100_000)),
        "StartTime": str(began) if node else chance.choice(("N/A", str(NOW + chance.randint(60, 90_000)))),
        "EndTime": str(began + hours * 3600) if node else "N/A",
        "TimeLimit": f"{hours // 24}-{hours % 24:02d}:00:00" if hours >= 24 else f"{hours}:00:00",
        "tres-per-job": "N/A",
        "tres-per-node": f"gres/gpu:{gpu}:{devices}" if devices else "N/A",
        "tres-per-socket": "N/A",
        "tres-per-task": "N/A",
        "Reservation": "(null)",
        "Account": f"group{user % 150:03d}",
        "Name": chance.choice(("bash", "wrap", "jupyterhub", f"train-{chance.randint(0, 9999)}", f"größe{odd}2")),
        "Comment": "(null)",
    }
    if node and devices:
        values["tres-alloc"] += f",gres/gpu={devices},gres/gpu:{gpu}={devices}"
    own = f"|{MARK}|".join(values[name] for name in CLUSTER.owners)
    return f"{'|'.join(values[name] for name in CLUSTER.slurms)}|{MARK}|{own}|{MARK}\n"


_SCONTROL = """\
#!/bin/sh
if [ "$1" = --local ]; then shift; fi
case "$2" in
node|partition|reservation) exec cat {folder}/$2 ;;
*) echo "PrivateData             = none" ;;
esac
"""
_SQUEUE = f"""\
#!/bin/sh
mark=$(printf %s "$*" | tail -c 16)
exec sed "s/{MARK}/$mark/g" {{folder}}/jobs
"""


def install(folder: Path, cluster: LargeCluster) -> Path:
    """Make scontrol and squeue in ``folder`` that print this cluster; returns the folder, for ``bin_dir``."""
    texts = zip(("node", "partition", "reservation", "jobs"), cluster, strict=True)
    for name, text in texts:
        (folder / name).write_text(text, "utf-8")
    for name, script in (("scontrol", _SCONTROL), ("squeue", _SQUEUE)):
        (folder / name).write_text(script.format(folder=folder), "utf-8")
        (folder / name).chmod(0o755)
    return folder
