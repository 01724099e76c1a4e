"""Kinds of clusters, as the nodes and partitions of their slurm.conf, and what Slurm says of them.

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
ODD_TYPES = Shape(
    "odd-types",
    """
NodeName=a[1-2] NodeAddr=198.51.100.[1-2] Sockets=2 CoresPerSocket=32 RealMemory=515000 \\
    Gres=gpu:nvidia_a100-pcie-80gb:4
NodeName=b1 NodeAddr=198.51.100.3 Sockets=2 CoresPerSocket=32 RealMemory=515000 Gres=gpu:A100_SXM4.40GB:4
NodeName=d1 NodeAddr=198.51.100.5 Sockets=2 CoresPerSocket=16 RealMemory=255000 \\
    Gres=gpu:nvidia_rtx_a6000:8,gpu:tesla_v100-sxm2-32gb:2
NodeName=f1 NodeAddr=198.51.100.7 Sockets=1 CoresPerSocket=72 RealMemory=480000 Gres=gpu:gh200:1
PartitionName=gpu-main.1 Nodes=ALL Default=YES MaxTime=2-0 State=UP
""",
)
MIG_BESIDE = Shape(
    "mig-beside",
    """
NodeName=m1 NodeAddr=198.51.100.1 Sockets=2 CoresPerSocket=32 ThreadsPerCore=2 RealMemory=1031000 \\
    Gres=gpu:a100:4,gpu:1g.5gb:14,gpu:3g.20gb:4
NodeName=m2 NodeAddr=198.51.100.2 Sockets=2 CoresPerSocket=32 ThreadsPerCore=2 RealMemory=1031000 \\
    Gres=gpu:h100_1g.12gb:7,gpu:h100:7
PartitionName=gpu Nodes=m[1-2] Default=YES MaxTime=2-0 State=UP
""",
)
AMD = Shape(
    "amd-nps4",
    """
NodeName=n[1-4] NodeAddr=198.51.100.[1-4] Boards=1 SocketsPerBoard=8 CoresPerSocket=16 ThreadsPerCore=2 \\
    RealMemory=1031000 Gres=gpu:mi250x:8 Feature=mi250x,gfx90a
NodeName=p[1-4] NodeAddr=198.51.100.[11-14] Sockets=4 CoresPerSocket=24 RealMemory=512000 Gres=gpu:mi300a:4
NodeName=r1 NodeAddr=198.51.100.22 Sockets=2 CoresPerSocket=96 RealMemory=2300000 Gres=gpu:amd_instinct_mi210:4
PartitionName=amd Nodes=ALL Default=YES MaxTime=1-0 State=UP
""",
)
NO_MEMORY = Shape(
    "no-memory",
    """
SelectTypeParameters=CR_Core
NodeName=g[1-4] NodeAddr=198.51.100.[1-4] Sockets=2 CoresPerSocket=16 Gres=gpu:a100:4
NodeName=v1 NodeAddr=198.51.100.5 Sockets=2 CoresPerSocket=16 Gres=gpu:v100:2
NodeName=v2 NodeAddr=198.51.100.6 Sockets=2 CoresPerSocket=16 RealMemory=64000 Gres=gpu:v100:2
NodeName=c[1-4] NodeAddr=198.51.100.[7-10] CPUs=64
PartitionName=gpu Nodes=g[1-4],v[1-2] Default=YES MaxTime=1-0 State=UP
PartitionName=cpu Nodes=c[1-4] MaxTime=1-0 State=UP
""",
)
EXCLUSIVE = Shape(
    "exclusive",
    """
NodeName=g[1-4] NodeAddr=198.51.100.[1-4] Sockets=2 CoresPerSocket=16 RealMemory=500000 Gres=gpu:a100:4
NodeName=c[1-4] NodeAddr=198.51.100.[5-8] Sockets=2 CoresPerSocket=64 RealMemory=250000
PartitionName=gpu Nodes=g[1-4] Default=YES MaxTime=1-0 OverSubscribe=EXCLUSIVE State=UP
PartitionName=cpu Nodes=c[1-4] MaxTime=1-0 OverSubscribe=EXCLUSIVE State=UP
""",
)
ACCESS = Shape(
    "access",
    """
NodeName=g[1-8] NodeAddr=198.51.100.[1-8] Sockets=2 CoresPerSocket=16 RealMemory=500000 Gres=gpu:a100:4
NodeName=v[1-2] NodeAddr=198.51.100.[11-12] Sockets=2 CoresPerSocket=16 RealMemory=250000 Gres=gpu:v100:4
NodeName=k[1-2] NodeAddr=198.51.100.[21-22] Sockets=2 CoresPerSocket=16 RealMemory=250000 Gres=gpu:p100:4
PartitionName=phys Nodes=g[1-4] AllowGroups=physics,chem MaxTime=1-0 State=UP
PartitionName=deny Nodes=g[5-6] DenyAccounts=guests,students MaxTime=1-0 State=UP
PartitionName=low Nodes=g[7-8] DenyQos=normal MaxTime=1-0 State=UP
PartitionName=down Nodes=v[1-2] State=DOWN
PartitionName=inactive Nodes=k1 State=INACTIVE
PartitionName=drain Nodes=k2 State=DRAIN
PartitionName=hidden Nodes=g[1-8] Hidden=YES State=UP
PartitionName=elsewhere Nodes=g1 AllocNodes=login1,login2 State=UP
""",
)
NO_DEFAULT = Shape(
    "no-default",
    """
NodeName=n[1-2] NodeAddr=198.51.100.[1-2] Sockets=2 CoresPerSocket=16 RealMemory=64000
NodeName=n[3-4] NodeAddr=198.51.100.[3-4] Sockets=2 CoresPerSocket=16 RealMemory=1024000
NodeName=n5 NodeAddr=198.51.100.5 Sockets=4 CoresPerSocket=28 RealMemory=6000000
PartitionName=short Nodes=n[1-5] MaxTime=60 State=UP
PartitionName=fat Nodes=n[3-5] MaxTime=3-0 TRESBillingWeights="CPU=1.0,Mem=0.25G" State=UP
PartitionName=thin Nodes=n[1-4] MaxTime=12:00:00 TRESBillingWeights="CPU=1.0,Mem=0.25G" State=UP
""",
)
OTHER_GRES = Shape(
    "other-gres",
    """
GresTypes=gpu,shard,nic,tmpdisk,mps
NodeName=g[1-2] NodeAddr=198.51.100.[1-2] Sockets=2 CoresPerSocket=16 RealMemory=500000 \\
    Gres=gpu:a100:4,nic:2,tmpdisk:800
NodeName=k1 NodeAddr=198.51.100.3 Sockets=1 CoresPerSocket=16 RealMemory=500000 Gres=gpu:v100:1,mps:100
NodeName=c1 NodeAddr=198.51.100.4 Sockets=2 CoresPerSocket=16 RealMemory=500000 Gres=tmpdisk:800 CoreSpecCount=2 \\
    MemSpecLimit=16000
PartitionName=gpu Nodes=g[1-2],k1 Default=YES MaxTime=1-0 MaxCPUsPerNode=28 State=UP
PartitionName=cpu Nodes=g[1-2],k1,c1 MaxTime=1-0 MaxCPUsPerNode=4 State=UP
""",
)
OVERLAP = Shape(
    "overlap",
    """
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=g[1-8] NodeAddr=198.51.100.[1-8] Sockets=2 CoresPerSocket=16 RealMemory=500000 Gres=gpu:a100:4
NodeName=w1 NodeAddr=198.51.100.9 Sockets=1 CoresPerSocket=8 RealMemory=31000 Gres=gpu:rtx3090:1
PartitionName=gpu-high Nodes=g[1-8] MaxTime=8:00:00 PriorityTier=10 State=UP
PartitionName=gpu-low Nodes=g[1-8],w1 MaxTime=7-0 PriorityTier=1 Default=YES State=UP
PartitionName=desk Nodes=w1 MaxTime=1-0 PriorityTier=10 DefMemPerGPU=20000 State=UP
PartitionName=gpu.test-1 Nodes=g8 MaxTime=30:00 State=UP
""",
)
MANY = Shape(
    "four-hundred-kinds",
    "".join(
        f"NodeName=s{number} NodeAddr=198.51.{100 + number // 250}.{number % 250 + 1} Sockets=2 "
        f"CoresPerSocket={8 + number % 40} RealMemory={64000 + 1000 * number} "
        f"Gres=gpu:{('a100', 'v100', 't4', 'l40s')[number % 4]}:{1 + number % 8}\n"
        for number in range(400)
    )
    + "PartitionName=all Nodes=ALL Default=YES MaxTime=UNLIMITED State=UP\n",
)
SHAPES = (
    *(DGX_A100, MIXED, MIG_H100, SHARDS, CPU_ONLY, CLOUD, CENTRE, WORKSTATION),
    *(ODD_TYPES, MIG_BESIDE, AMD, NO_MEMORY, EXCLUSIVE, ACCESS, NO_DEFAULT, OTHER_GRES, OVERLAP, MANY),
)


class ControllerAlone(ChangedSlurm):
    """A slurmctld of a shape, without any slurmd."""

    def __init__(self, shape: Shape, folder: Path) -> None:
        super().__init__(ClusterDescription((), (), name=shape.name), folder, self._with_shape)
        self._shape = shape

    def _with_shape(self, conf: str) -> str:
        conf = conf.replace("GresTypes=gpu\n", "" if "GresTypes=" in self._shape.conf else "GresTypes=gpu,shard\n")
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
