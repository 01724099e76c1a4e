"""What the launcher reports, against what a real two-socket kernel says, for jobs on the right and the wrong socket.

The node is that of a workshop of 2017 (:mod:`conftest` builds it). Each job is a cgroup with a cpuset, an environment
as Slurm sets it, and the packed launcher as first process; what the launcher becomes then touches 20 MiB and reads
``/proc``. The report goes through the hub's own parser and is held against that.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from jupyterhub_gpuspawner.topology import Gpu, NodeTopology, NumaNode, from_document, to_document
from jupyterhub_gpuspawner.units import format_cpulist, parse_cpulist
from jupyterhub_gpuspawner.wire import LaunchPlan, NodeReport, parse_report
from tests.standins import nvml

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.vm, pytest.mark.timeout(400)]

TOUCHED = 2 * (10 << 20) // 4096
"""Pages that the witness touches."""
SOCKETS = (tuple(range(12)), tuple(range(12, 24)))
BOARDS = ("0000:13:00.0", "0000:14:00.0"), ("0000:83:00.0", "0000:84:00.0")
NIC = "0000:85:00.0"
NO_DRIVER = ("NVML cannot be had", "nvidia-smi cannot be had")
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
    """What a server is held to: by the kernel, or in the words of a report."""

    gpus: str
    """``CUDA_VISIBLE_DEVICES``."""
    cpus: str
    numa_nodes: tuple[int, ...]
    memory_policy: str
    aligned: bool
    """GPUs, CPUs and memory on the same NUMA nodes."""


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
    """NUMA nodes that the touched pages must be on; empty where the kernel may choose."""
    problems: tuple[str, ...] = ()
    """What the report says went wrong, beside that the machine has no driver."""
    before: tuple[str, ...] = ()
    """What the job's script runs the launcher under."""
    driver: bool = False
    """NVML is there (the stand-in)."""
    constrained: bool = False
    """Slurm's ConstrainDevices: the driver shows the job's GPUs alone, and they are counted from 0."""

    @property
    def pci(self) -> tuple[str, ...]:
        """PCI addresses of the granted GPUs."""
        return tuple(K80.gpus[int(index)].pci for index in self.gpus.split(","))

    def shown(self) -> NodeTopology:
        """What NVML shows inside the job: of the CPUs near a GPU, and of constrained GPUs, the job's own."""
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
        """The job as ``guest/jobs.py`` takes it."""
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
            "plan": self.plan.dumps(),
        }


def plan(**settings: Any) -> LaunchPlan:
    """A plan with time enough for an emulated machine."""
    return LaunchPlan(**{"gpus": 1, "cpus": 4, "deadline": 30.0, **settings})


JOBS = (
    Job(
        "right socket", "12-15", "1", "2", plan(),
        Held("2", "12-15", (1,), "preferred:1", aligned=True), pages=(1,),
    ),
    Job(
        "wrong socket", "0-3", "0", "2", plan(),
        Held("2", "0-3", (0,), "preferred:0", aligned=False), pages=(0,),
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
        Held("2", "12-15", (1,), "preferred:1", aligned=True), pages=(1,),
    ),
    Job(
        "both sockets, memory bound", "0-23", "0-1", "2", plan(memory_policy="bind"),
        Held("2", "12-15", (1,), "bind:1", aligned=True), pages=(1,),
    ),
    Job(
        "a GPU of each socket", "0-23", "0-1", "0,2", plan(gpus=2),
        Held("0,2", "0-1,12-13", (0, 1), "preferred-many:0-1", aligned=True),
    ),
    Job(
        "the workshop's: 4 CPUs, 4 GPUs", "0-3", "0-1", "0,1,2,3", plan(gpus=4),
        Held("0,1,2,3", "0-3", (0,), "preferred-many:0-1", aligned=False), pages=(0,),
    ),
    Job(
        "one of four GPUs", "12-15", "1", "0,1,2,3", plan(),
        Held("2", "12-15", (1,), "preferred:1", aligned=True), pages=(1,),
    ),
    Job(
        "right CPUs, memory of the other socket", "12-15", "0", "2", plan(),
        Held("2", "12-15", (1,), "default", aligned=False), pages=(0,),
        problems=("Memory of NUMA nodes 1 is not this job's to use, which has 0; no policy was set.",),
    ),
    Job(
        "the script bound memory itself", "12-15", "0-1", "2", plan(memory_policy="none"),
        Held("2", "12-15", (1,), "bind:0", aligned=False), pages=(0,), before=("numactl", "--membind=0"),
    ),
    Job(
        "topology file", "0-23", "0-1", "0,1,2,3", plan(gpus=2, topology_file="/guest/{node}.json"),
        Held("0,1", "0-3", (0,), "preferred:0", aligned=True), pages=(0,),
    ),
    Job(
        "NVML", "0-23", "0-1", "0,1,2,3", plan(gpus=2),
        Held("0,1", "0-3", (0,), "preferred:0", aligned=True), pages=(0,), driver=True,
    ),
    Job(
        "NVML, constrained devices", "12-15", "1", "2,3", plan(),
        Held("0", "12-15", (1,), "preferred:1", aligned=True), pages=(1,), driver=True, constrained=True,
    ),
    Job(
        "NVML, constrained devices, wrong socket", "0-3", "0-1", "2,3", plan(gpus=2),
        Held("0,1", "0-3", (0,), "preferred-many:0-1", aligned=False), pages=(0,), driver=True, constrained=True,
    ),
)  # fmt: skip


MEMORY_ELSEWHERE = ("right CPUs, memory of the other socket", "the script bound memory itself")
CAN_BUILD = pytest.mark.skipif(nvml.compiler() is None, reason="no C compiler for the stand-in of NVML")
EACH = [pytest.param(job, marks=(CAN_BUILD,) if job.driver else (), id=job.name) for job in JOBS]


def own_pci(job: Job, visible: str) -> tuple[str, ...]:
    """PCI addresses of the GPUs that ``CUDA_VISIBLE_DEVICES`` names in a job."""
    known = job.pci if job.constrained else tuple(gpu.pci for gpu in K80.gpus)
    return tuple(known[int(name)] for name in visible.split(","))


class Truth:
    """What the guest said: the kernel's words on the node, and of each job its report and its witness."""

    def __init__(self, said: list[dict[str, Any]]) -> None:
        self.node: dict[str, Any] = said[0]["node"]
        self.jobs: dict[str, dict[str, Any]] = {each["job"]: each for each in said if "job" in each}

    def report(self, job: Job) -> NodeReport:
        """The job's report, read by the hub's parser."""
        assert self.jobs[job.name].get("report"), self.jobs[job.name]
        path, _, body = self.jobs[job.name]["report"].partition(" ")
        assert path == "/hub/api/gpuspawner/report"
        return parse_report(body.encode())

    def witness(self, job: Job) -> dict[str, Any]:
        """What the job's command found in ``/proc``."""
        assert self.jobs[job.name].get("witness"), self.jobs[job.name]
        witness: dict[str, Any] = json.loads(self.jobs[job.name]["witness"])
        return witness

    def held(self, job: Job) -> Held:
        """What the kernel holds the job's server to, from its own words alone."""
        witness = self.witness(job)
        gpus = witness["environ"]["CUDA_VISIBLE_DEVICES"]
        cpus = set(parse_cpulist(witness["cpus"]))
        nodes = {n for n in (0, 1) if cpus & set(parse_cpulist(self.node["cpulist"][f"node{n}"]))}
        beside = {int(self.node["pci"][pci]["numa_node"]) for pci in own_pci(job, gpus)}
        [policy] = witness["policies"]
        memory = set(parse_cpulist(policy.partition(":")[2] or witness["mems"])) & set(parse_cpulist(witness["mems"]))
        return Held(
            gpus=gpus,
            cpus=witness["cpus"],
            numa_nodes=tuple(sorted(nodes)),
            memory_policy=policy.replace("prefer (many):", "preferred-many:").replace("prefer:", "preferred:"),
            aligned=beside == nodes and (memory == nodes or (policy == "default" and nodes <= memory)),
        )


@pytest.fixture(scope="module")
def truth(boot: Callable[..., list[dict[str, Any]]], tmp_path_factory: pytest.TempPathFactory) -> Truth:
    """The machine is booted once, for all jobs."""
    files = tmp_path_factory.mktemp("guest")
    (files / "k80.json").write_text(json.dumps(to_document(K80)))
    jobs = [job for job in JOBS if not job.driver or nvml.compiler()]
    if nvml.compiler():
        (files / "nvml").mkdir()
        nvml.build(files / "nvml")
        pynvml = find_spec("pynvml")
        assert pynvml is not None
        assert pynvml.origin is not None
        shutil.copy2(pynvml.origin, files / "nvml" / "pynvml.py")
    for job in jobs:
        if job.driver:
            (files / job.name).write_text(nvml.describe(job.shown()))
    return Truth(boot([job.to_guest() for job in jobs], files))


def test_the_kernel_sees_the_workshops_node(truth: Truth) -> None:
    """Two sockets at distance 21, two boards of two GPUs, a network adapter on the second socket."""
    assert truth.node["cpulist"] == {"node0": "0-11", "node1": "12-23"}
    assert truth.node["distance"] == {"node0": "10 21", "node1": "21 10"}
    at = {pci: facts["numa_node"] for pci, facts in truth.node["pci"].items()}
    assert {pci: at[pci] for pci in (*BOARDS[0], *BOARDS[1], NIC)} == {
        **dict.fromkeys(BOARDS[0], "0"),
        **dict.fromkeys((*BOARDS[1], NIC), "1"),
    }


def test_the_report_shows_the_node_as_the_kernel_does(truth: Truth) -> None:
    """Every number of the reported topology is the kernel's, numactl's where it gives one."""
    document = truth.report(JOBS[0]).topology
    assert document is not None
    topology = from_document(document)
    words = truth.node["numactl"].splitlines()
    memory = [int(line.split()[3]) for line in words if " size: " in line]
    assert topology.numa_nodes == (
        NumaNode(0, SOCKETS[0], memory_mib=memory[0], distances=(10, 21)),
        NumaNode(1, SOCKETS[1], memory_mib=memory[1], distances=(21, 10)),
    )
    assert topology.packages == SOCKETS
    assert topology.siblings == tuple((cpu,) for cpu in range(24))
    assert [(gpu.pci, str(gpu.numa_node), format_cpulist(gpu.cpus)) for gpu in topology.gpus] == [
        (pci, truth.node["pci"][pci]["numa_node"], truth.node["pci"][pci]["local_cpulist"])
        for board in BOARDS
        for pci in board
    ]


@CAN_BUILD
def test_nvml_and_the_kernel_make_one_node(truth: Truth) -> None:
    """Names, UUIDs and links are the driver's; NUMA nodes and CPUs the kernel's, not those clipped to a cpuset."""
    [job] = [job for job in JOBS if job.name == "NVML, constrained devices"]
    document = truth.report(job).topology
    assert document is not None
    topology = from_document(document)
    whole = [replace(gpu, index=gpu.index - 2) for gpu in K80.gpus[2:]]
    assert (list(topology.gpus), topology.links) == (whole, (("X", "PIX"), ("PIX", "X")))


@pytest.mark.parametrize("job", EACH)
def test_a_server_is_held_where_its_job_allows(truth: Truth, job: Job) -> None:
    """CPUs, memory policy and pages are where the table says, in the kernel's own words, for every thread."""
    witness = truth.witness(job)
    assert truth.held(job) == job.held
    assert set(witness["threads"]) == {job.held.cpus}
    assert len(witness["threads"]) == 3
    assert sum(witness["pages"].values()) >= TOUCHED
    if job.pages:
        assert tuple(int(node) for node in witness["pages"]) == job.pages


@pytest.mark.parametrize("job", EACH)
def test_the_report_says_what_the_kernel_does(truth: Truth, job: Job) -> None:
    """GPUs, CPUs, NUMA nodes and memory policy in the report are those that the server's process then has."""
    placement = truth.report(job).placement
    held = truth.held(job)
    assert tuple(gpu.pci for gpu in placement.gpus) == own_pci(job, held.gpus)
    assert (
        ",".join(str(gpu.index) for gpu in placement.gpus),
        placement.cpus,
        placement.numa_nodes,
        placement.memory_policy,
        tuple(problem for problem in placement.problems if job.driver or not problem.startswith(NO_DRIVER)),
    ) == (held.gpus, held.cpus, held.numa_nodes, held.memory_policy, job.problems)


@pytest.mark.parametrize("job", EACH)
def test_aligned_means_gpus_cpus_and_memory(truth: Truth, job: Job, request: pytest.FixtureRequest) -> None:
    """The report calls a server aligned exactly where the kernel holds its CPUs and memory beside its GPUs."""
    if job.name in MEMORY_ELSEWHERE:
        request.applymarker(pytest.mark.xfail(strict=True, reason="aligned does not look at memory"))
    assert truth.report(job).placement.aligned is truth.held(job).aligned


@pytest.mark.parametrize("job", EACH)
def test_numactl_agrees(truth: Truth, job: Job) -> None:
    """``numactl --show`` in the server's place tells of the same CPUs and the same policy."""
    shown = dict(line.split(": ", 1) for line in truth.witness(job)["numactl"].splitlines() if ": " in line)
    assert (format_cpulist(map(int, shown["physcpubind"].split())), shown["policy"]) == (
        job.held.cpus,
        job.held.memory_policy.partition(":")[0],
    )


@pytest.mark.parametrize("job", EACH)
def test_the_environment_says_the_same(truth: Truth, job: Job) -> None:
    """What libraries and notebooks read of CPUs and nodes is what the kernel holds the server to."""
    environ = truth.witness(job)["environ"]
    held = truth.held(job)
    names = ("GPUSPAWNER_GPUS", "GPUSPAWNER_CPUS", "GPUSPAWNER_NUMA_NODES", "OMP_NUM_THREADS", "CUDA_DEVICE_ORDER")
    assert [environ[name] for name in names] == [
        held.gpus,
        held.cpus,
        format_cpulist(held.numa_nodes),
        str(len(parse_cpulist(held.cpus))),
        "PCI_BUS_ID",
    ]
