"""The workshop's node as a topology, and the jobs that run on it: what Slurm grants, and the expected binding."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology, NumaNode
from jupyterhub_gpuspawner.units import parse_cpulist
from jupyterhub_gpuspawner.wire.documents import LaunchPlan

SOCKETS = (tuple(range(12)), tuple(range(12, 24)))
BOARDS = ("0000:13:00.0", "0000:14:00.0"), ("0000:83:00.0", "0000:84:00.0")
NIC = "0000:85:00.0"
K80 = NodeTopology(
    gpus=tuple(
        Gpu(
            index=2 * node + n,
            uuid=f"GPU-{2 * node + n}",
            pci=pci,
            name="Tesla K80",
            memory_mib=11441,
            numa_node=node,
            cpus=SOCKETS[node],
            minor=2 * node + n,
            numa_affinity=(node,),
        )
        for node, board in enumerate(BOARDS)
        for n, pci in enumerate(board)
    ),
    links=tuple(tuple("X" if a == b else "PIX" if a // 2 == b // 2 else "SYS" for b in range(4)) for a in range(4)),
    numa_nodes=(NumaNode(0, SOCKETS[0], distances=(10, 21)), NumaNode(1, SOCKETS[1], distances=(21, 10))),
)


@dataclass(frozen=True)
class Held:
    """A server's binding, according to the kernel or to a report."""

    gpus: str
    """``CUDA_VISIBLE_DEVICES``."""
    cpus: str
    numa_nodes: tuple[int, ...]
    memory_policy: str
    aligned: bool
    """Whether the CPUs are near the GPUs, and the memory near the CPUs."""


@dataclass(frozen=True)
class Job:
    """A job as Slurm would start it on this node, and where its server must end up."""

    name: str
    cpus: str
    mems: str
    gpus: str
    plan: LaunchPlan
    held: Held
    pages: tuple[int, ...] = ()
    """NUMA nodes on which the touched pages must be; empty if the kernel may choose."""
    problems: tuple[str, ...] = ()
    """Problems in the report, apart from the missing driver."""
    before: tuple[str, ...] = ()
    """The command under which the job's script runs the launcher."""
    driver: bool = False
    """NVML is available (the stand-in)."""
    constrained: bool = False
    """Slurm's ConstrainDevices: the driver shows only the job's GPUs, counted from 0."""

    @property
    def pci(self) -> tuple[str, ...]:
        """PCI addresses of the granted GPUs."""
        return tuple(K80.gpus[int(index)].pci for index in self.gpus.split(","))

    def shown(self) -> NodeTopology:
        """What NVML shows inside the job: only the job's own CPUs near a GPU and, if constrained, GPUs."""
        own = set(parse_cpulist(self.cpus))
        gpus = [gpu for gpu in K80.gpus if gpu.pci in self.pci or not self.constrained]
        return NodeTopology(
            gpus=tuple(
                replace(gpu, index=index, cpus=tuple(cpu for cpu in gpu.cpus if cpu in own))
                for index, gpu in enumerate(gpus)
            ),
            links=tuple(tuple(K80.link(a.index, b.index) for b in gpus) for a in gpus),
        )

    def to_guest(self) -> dict[str, Any]:
        """The job in the format of ``guest/jobs.py``."""
        count = len(parse_cpulist(self.cpus))
        visible = ",".join(map(str, range(len(self.pci)))) if self.constrained else self.gpus
        environ = {
            "SLURM_JOB_GPUS": self.gpus,
            "SLURM_GPUS_ON_NODE": str(len(self.gpus.split(","))),
            "SLURM_CPUS_ON_NODE": str(count),
            "SLURM_JOB_CPUS_PER_NODE": str(count),
            "CUDA_VISIBLE_DEVICES": visible,
        }
        if self.driver:
            environ.update(PYTHONPATH="/guest/nvml", LD_LIBRARY_PATH="/guest/nvml", STANDIN_NVML=f"/guest/{self.name}")
        return {
            "name": self.name,
            "cpus": self.cpus,
            "mems": self.mems,
            "before": list(self.before),
            "environ": environ,
            "arguments": ["--plan", self.plan.dumps(), "--"],
        }


def plan(**settings: Any) -> LaunchPlan:
    """A plan with a long enough time limit for an emulated machine."""
    return LaunchPlan(**{"gpus": 1, "cpus": 4, "deadline": 30.0, **settings})


JOBS = (
    Job(
        "right socket", "12-15", "1", "2", plan(),
        Held("2", "12-15", (1,), "default", aligned=True), pages=(1,),
    ),
    Job(
        "wrong socket", "0-3", "0", "2", plan(),
        Held("2", "0-3", (0,), "default", aligned=False), pages=(0,),
    ),
    Job(
        "wrong socket, memory of both", "0-3", "0-1", "2", plan(),
        Held("2", "0-3", (0,), "preferred-many:0-1", aligned=False), pages=(0,),
    ),
    Job(
        "unbound", "0-23", "0-1", "2", plan(policy="none", memory_policy="none", cpus=None),
        Held("2", "0-23", (0, 1), "default", aligned=False),
    ),
    Job(
        "both sockets, few promised", "0-23", "0-1", "2", plan(),
        Held("2", "12-23", (1,), "default", aligned=True), pages=(1,),
    ),
    Job(
        "both sockets, memory bound", "0-23", "0-1", "2", plan(memory_policy="bind"),
        Held("2", "12-23", (1,), "bind:1", aligned=True), pages=(1,),
    ),
    Job(
        "a GPU of each socket", "0-23", "0-1", "0,2", plan(gpus=2),
        Held("0,2", "0-23", (0, 1), "default", aligned=True),
    ),
    Job(
        "the workshop's: 4 CPUs, 4 GPUs", "0-3", "0-1", "0,1,2,3", plan(gpus=4),
        Held("0,1,2,3", "0-3", (0,), "preferred-many:0-1", aligned=False), pages=(0,),
    ),
    Job(
        "one of four GPUs", "12-15", "1", "0,1,2,3", plan(),
        Held("2", "12-15", (1,), "default", aligned=True), pages=(1,),
    ),
    Job(
        "right CPUs, memory of the other socket", "12-15", "0", "2", plan(),
        Held("2", "12-15", (1,), "default", aligned=False), pages=(0,),
        problems=("This job is not allowed to use memory of NUMA nodes 1, only of 0; no policy was set.",),
    ),
    Job(
        "the script bound memory itself", "12-15", "0-1", "2", plan(memory_policy="none"),
        Held("2", "12-15", (1,), "bind:0", aligned=False), pages=(0,), before=("numactl", "--membind=0"),
    ),
    Job(
        "topology file", "0-23", "0-1", "0,1,2,3", plan(gpus=2, topology_file="/guest/{node}.json"),
        Held("0,1", "0-11", (0,), "default", aligned=True), pages=(0,),
    ),
    Job(
        "NVML", "0-23", "0-1", "0,1,2,3", plan(gpus=2),
        Held("0,1", "0-11", (0,), "default", aligned=True), pages=(0,), driver=True,
    ),
    Job(
        "NVML, constrained devices", "12-15", "1", "2,3", plan(),
        Held("0", "12-15", (1,), "default", aligned=True), pages=(1,), driver=True, constrained=True,
    ),
    Job(
        "NVML, constrained devices, wrong socket", "0-3", "0-1", "2,3", plan(gpus=2),
        Held("0,1", "0-3", (0,), "preferred-many:0-1", aligned=False), pages=(0,), driver=True, constrained=True,
    ),
)  # fmt: skip
