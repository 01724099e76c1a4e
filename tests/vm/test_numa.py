"""The launcher's report compared with a real two-socket kernel, for jobs on the right and the wrong socket.

The node is that of a workshop in 2017 (built by :mod:`conftest`). Each job is a cgroup with a cpuset, an environment
like Slurm's, and the packed launcher as first process; the command that it executes touches 20 MiB and reads
``/proc``. The report is read by the hub's own parser and compared with that.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from jupyterhub_gpuspawner.hub.report.server_report import parse_report
from jupyterhub_gpuspawner.placement.topology import NumaNode, from_document, to_document
from jupyterhub_gpuspawner.units import format_cpulist, parse_cpulist
from jupyterhub_gpuspawner.wire.documents import NodeReport
from tests.standins import c_library, nvml
from tests.vm.jobs import BOARDS, JOBS, K80, NIC, SOCKETS, Held, Job

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.vm, pytest.mark.timeout(1200), pytest.mark.nightly]

TOUCHED = 2 * (10 << 20) // 4096
"""Pages that the witness touches."""
NO_DRIVER = "NVML is not available"
CAN_BUILD = pytest.mark.skipif(c_library.compiler() is None, reason="no C compiler for the stand-in of NVML")
JOB_PARAMS = [pytest.param(job, marks=(CAN_BUILD,) if job.driver else (), id=job.name) for job in JOBS]


def own_pci(job: Job, visible: str) -> tuple[str, ...]:
    """PCI addresses of the GPUs that ``CUDA_VISIBLE_DEVICES`` names in a job."""
    addresses = job.pci if job.constrained else tuple(gpu.pci for gpu in K80.gpus)
    return tuple(addresses[int(name)] for name in visible.split(","))


class Truth:
    """The guest's output: the kernel's description of the node, and each job's report and witness."""

    def __init__(self, documents: list[dict[str, Any]]) -> None:
        self.node: dict[str, Any] = documents[0]["node"]
        self.jobs: dict[str, dict[str, Any]] = {
            document["job"]: document for document in documents if "job" in document
        }

    def report(self, job: Job) -> NodeReport:
        """The job's report, read by the hub's parser."""
        assert self.jobs[job.name].get("report"), self.jobs[job.name]
        path, _, body = self.jobs[job.name]["report"].partition(" ")
        assert path == "/hub/api/gpuspawner/report"
        return parse_report(body.encode())

    def witness(self, name: str) -> dict[str, Any]:
        """What the command of the job with this name found in ``/proc``."""
        assert self.jobs[name].get("witness"), self.jobs[name]
        witness: dict[str, Any] = json.loads(self.jobs[name]["witness"])
        return witness

    def held(self, job: Job) -> Held:
        """The server's binding, according to the kernel alone."""
        witness = self.witness(job.name)
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
    """The results of all jobs; the machine is booted once."""
    files = tmp_path_factory.mktemp("guest")
    (files / "k80.json").write_text(json.dumps(to_document(K80)))
    jobs = [job for job in JOBS if not job.driver or c_library.compiler()]
    if c_library.compiler():
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


def test_a_kernel_before_5_15_chooses_the_memory_of_two_sockets_itself(
    boot: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    """Debian 11's cannot prefer several NUMA nodes: no policy is set, and that is not reported as misaligned."""
    jobs = [job for job in JOBS if job.name in ("wrong socket, memory of both", "a GPU of each socket")]
    truth = Truth(boot([job.to_guest() for job in jobs], tmp_path, "bullseye"))
    assert truth.node["kernel"].startswith("5.10.")
    for job in jobs:
        placement = truth.report(job).placement
        assert truth.held(job) == replace(job.held, memory_policy="default")
        assert (placement.memory_policy, placement.aligned) == ("default", job.held.aligned)


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
    """Every number of the reported topology is the kernel's, and numactl's where available."""
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


@pytest.mark.parametrize("job", JOB_PARAMS)
def test_a_server_is_held_where_its_job_allows(truth: Truth, job: Job) -> None:
    """CPUs, memory policy and pages are as in the table, according to the kernel, for every thread."""
    witness = truth.witness(job.name)
    assert truth.held(job) == job.held
    assert set(witness["threads"]) == {job.held.cpus}
    assert len(witness["threads"]) == 3
    assert sum(witness["pages"].values()) >= TOUCHED
    if job.pages:
        assert tuple(int(node) for node in witness["pages"]) == job.pages


@pytest.mark.parametrize("job", JOB_PARAMS)
def test_the_report_says_what_the_kernel_does(truth: Truth, job: Job) -> None:
    """GPUs, CPUs, NUMA nodes and memory policy in the report are those of the server's process."""
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


@pytest.mark.parametrize("job", JOB_PARAMS)
def test_aligned_means_gpus_cpus_and_memory(truth: Truth, job: Job) -> None:
    """The report says aligned exactly if the kernel keeps CPUs and memory on the NUMA nodes of the GPUs."""
    assert truth.report(job).placement.aligned is truth.held(job).aligned


@pytest.mark.parametrize("job", JOB_PARAMS)
def test_numactl_agrees(truth: Truth, job: Job) -> None:
    """``numactl --show`` in place of the server shows the same CPUs and the same policy."""
    shown = dict(line.split(": ", 1) for line in truth.witness(job.name)["numactl"].splitlines() if ": " in line)
    assert (format_cpulist(map(int, shown["physcpubind"].split())), shown["policy"]) == (
        job.held.cpus,
        job.held.memory_policy.partition(":")[0],
    )


@pytest.mark.parametrize("job", JOB_PARAMS)
def test_the_environment_says_the_same(truth: Truth, job: Job) -> None:
    """CPUs and nodes that libraries and notebooks see are those that the kernel enforces."""
    environ = truth.witness(job.name)["environ"]
    held = truth.held(job)
    names = ("GPUSPAWNER_GPUS", "GPUSPAWNER_CPUS", "GPUSPAWNER_NUMA_NODES", "OMP_NUM_THREADS", "CUDA_DEVICE_ORDER")
    assert [environ[name] for name in names] == [
        held.gpus,
        held.cpus,
        format_cpulist(held.numa_nodes),
        str(len(parse_cpulist(held.cpus))),
        "PCI_BUS_ID",
    ]
