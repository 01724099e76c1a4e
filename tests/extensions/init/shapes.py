"""Eight kinds of clusters, as the nodes and partitions of their slurm.conf, and what Slurm says of them.

Each is made anew from what public configurations of its kind have in common. A slurmctld alone reads them: its nodes do
not exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.demo.slurm_cluster import ClusterDescription
from tests.fixtures.slurm import ChangedSlurm

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Shape:
    """One kind of cluster."""

    name: str
    conf: str
    """The lines of slurm.conf beside those that any Slurm needs; nodes of a made network (RFC 5737)."""
    constrains_devices: bool = False
    """Jobs cannot use the GPUs of others (cgroup.conf)."""


DGX_A100 = Shape(
    "dgx-a100",
    """
NodeName=dgx[01-04] NodeAddr=198.51.100.[1-4] Sockets=2 CoresPerSocket=64 ThreadsPerCore=2 RealMemory=1031000 \\
    Gres=gpu:a100-sxm4-40gb:8 Feature=nvlink
PartitionName=batch Nodes=dgx[01-04] Default=YES MaxTime=2-00:00:00 DefaultTime=4:00:00 \\
    DefMemPerCPU=4000 State=UP
PartitionName=interactive Nodes=dgx01 MaxTime=8:00:00 State=UP
""",
    constrains_devices=True,
)
MIXED = Shape(
    "mixed-features",
    """
NodeName=gpu[1-2] NodeAddr=198.51.100.[1-2] Sockets=2 CoresPerSocket=16 RealMemory=385000 Gres=gpu:4 \\
    Feature=v100,volta,nvlink
NodeName=gpu[3-5] NodeAddr=198.51.100.[3-5] Sockets=2 CoresPerSocket=32 RealMemory=515000 Gres=gpu:2 \\
    Feature=a100_80gb,ampere
NodeName=n[1-8] NodeAddr=198.51.100.[11-18] Sockets=2 CoresPerSocket=24 RealMemory=190000 Feature=cpu
PartitionName=all Nodes=n[1-8],gpu[1-5] Default=YES MaxTime=7-00:00:00 State=UP
""",
)
MIG_H100 = Shape(
    "mig-h100",
    """
NodeName=h1 NodeAddr=198.51.100.1 Sockets=2 CoresPerSocket=48 RealMemory=2063000 \\
    Gres=gpu:nvidia_h100_80gb_hbm3:6,gpu:nvidia_h100_80gb_hbm3_1g.10gb:14
NodeName=h2 NodeAddr=198.51.100.2 Sockets=2 CoresPerSocket=48 RealMemory=2063000 \\
    Gres=gpu:nvidia_h100_80gb_hbm3_3g.40gb:16
NodeName=login1 NodeAddr=198.51.100.9 Sockets=1 CoresPerSocket=8 RealMemory=31000
PartitionName=gpu Nodes=h[1-2] Default=YES MaxTime=1-00:00:00 State=UP
PartitionName=admin Nodes=login1 RootOnly=YES State=UP
""",
)
SHARDS = Shape(
    "shards",
    """
NodeName=t[1-3] NodeAddr=198.51.100.[1-3] Sockets=1 CoresPerSocket=32 RealMemory=257000 Gres=gpu:t4:2,shard:t4:8
NodeName=c[1-4] NodeAddr=198.51.100.[11-14] Sockets=1 CoresPerSocket=16 RealMemory=64000
PartitionName=teaching Nodes=t[1-3] MaxTime=4:00:00 DefaultTime=2:00:00 MaxMemPerNode=24000 State=UP
PartitionName=batch Nodes=c[1-4] Default=YES MaxTime=UNLIMITED State=UP
""",
)
CPU_ONLY = Shape(
    "cpu-only",
    """
NodeName=n[001-064] NodeAddr=198.51.100.[1-64] Sockets=2 CoresPerSocket=18 RealMemory=95000
PartitionName=short Nodes=n[001-064] Default=YES MaxTime=00:30:00 State=UP
PartitionName=long Nodes=n[001-064] MaxTime=5-00:00:00 DefMemPerCPU=2600 MaxMemPerCPU=2600 State=UP
PartitionName=whole Nodes=n[001-064] MaxTime=2-00:00:00 OverSubscribe=EXCLUSIVE State=UP
""",
)
CLOUD = Shape(
    "cloud",
    """
PrivateData=cloud
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=300
ResumeTimeout=600
NodeName=gpu-dy-g5-[1-10] Sockets=1 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=30000 Gres=gpu:a10g:1 State=CLOUD
NodeName=cpu-dy-c6-[1-20] Sockets=1 CoresPerSocket=8 RealMemory=30000 State=CLOUD
PartitionName=gpu Nodes=gpu-dy-g5-[1-10] MaxTime=UNLIMITED State=UP
PartitionName=cpu Nodes=cpu-dy-c6-[1-20] Default=YES MaxTime=UNLIMITED State=UP
""",
)
CENTRE = Shape(
    "national-centre",
    """
NodeName=a[1-40] NodeAddr=198.51.100.[1-40] Sockets=2 CoresPerSocket=24 RealMemory=500000 \\
    Gres=gpu:a100:4 Feature=a100_40gb
NodeName=h[1-10] NodeAddr=198.51.100.[51-60] Sockets=2 CoresPerSocket=48 RealMemory=750000 Gres=gpu:h100:4
NodeName=v[1-6] NodeAddr=198.51.100.[71-76] Sockets=2 CoresPerSocket=20 RealMemory=380000 Gres=gpu:v100:4
NodeName=c[1-100] NodeAddr=198.51.100.[101-200] Sockets=2 CoresPerSocket=64 RealMemory=250000
NodeName=x[1-2] NodeAddr=198.51.100.[211-212] Sockets=1 CoresPerSocket=8 RealMemory=31000
PartitionName=DEFAULT DefaultTime=01:00:00 DefMemPerCPU=1900 State=UP
PartitionName=standard Nodes=c[1-100] Default=YES MaxTime=1-00:00:00
PartitionName=standard_long Nodes=c[1-20] MaxTime=4-00:00:00
PartitionName=debug Nodes=c[99-100],a40 MaxTime=00:20:00
PartitionName=gpu Nodes=a[1-39] MaxTime=1-00:00:00 DefCpuPerGPU=10 DefMemPerGPU=110000
PartitionName=gpu_long Nodes=a[1-10] MaxTime=3-00:00:00
PartitionName=gpu_multi Nodes=a[1-39] MinNodes=2 MaxTime=1-00:00:00
PartitionName=gpu_h100 Nodes=h[1-10] MaxTime=2-00:00:00 AllowQos=normal,h100
PartitionName=ai_project Nodes=h[1-2] AllowAccounts=ai1,ai2 MaxTime=7-00:00:00
PartitionName=old_gpu Nodes=v[1-6] AllowQos=legacy MaxTime=1-00:00:00
PartitionName=preempt Nodes=a[1-39],h[1-10] MaxTime=1-00:00:00 PriorityTier=0
PartitionName=maint Nodes=ALL State=DOWN
PartitionName=reserved Nodes=h[9-10] ReqResv=YES
PartitionName=system Nodes=x[1-2] Hidden=YES
PartitionName=staff Nodes=x[1-2] AllowGroups=root
""",
)
WORKSTATION = Shape(
    "workstation",
    """
NodeName=tower NodeAddr=127.0.0.1 Sockets=1 CoresPerSocket=12 ThreadsPerCore=2 RealMemory=63000 Gres=gpu:1
PartitionName=debug Nodes=tower Default=YES MaxTime=INFINITE State=UP
""",
)
SHAPES = (DGX_A100, MIXED, MIG_H100, SHARDS, CPU_ONLY, CLOUD, CENTRE, WORKSTATION)


class ControllerAlone(ChangedSlurm):
    """A slurmctld of a shape, without any slurmd."""

    def __init__(self, shape: Shape, folder: Path) -> None:
        super().__init__(ClusterDescription((), (), name=shape.name), folder, self._with_shape)
        self._shape = shape

    def _with_shape(self, conf: str) -> str:
        conf = conf.replace("GresTypes=gpu\n", "GresTypes=gpu,shard\n")
        if self._shape.constrains_devices:
            conf = conf.replace("TaskPlugin=task/none", "TaskPlugin=task/affinity,task/cgroup")
        return f"{conf}{self._shape.conf}"

    def _write_files(self) -> None:
        super()._write_files()
        if self._shape.constrains_devices:
            with (self.layout.folder / "cgroup.conf").open("a") as file:
                file.write("ConstrainDevices=yes\n")

    def _nodes_with_power(self) -> list[str]:
        return []
