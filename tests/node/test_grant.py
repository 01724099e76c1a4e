"""What is this job's: every form in which Slurm says it, on every kind of node."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

import pytest

from jupyterhub_gpuspawner.node import grant
from jupyterhub_gpuspawner.node.grant import ControllerAnswers, GpuGrant, SlurmIndex, VisibleName
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology, NumaNode, kernel_cpus
from jupyterhub_gpuspawner.units import Gres, NodeAllocation


@dataclass
class Slurmctld(ControllerAnswers):
    """Answers as told, and counts what it was asked."""

    granted: NodeAllocation = field(default_factory=partial(NodeAllocation, "g1"))
    gpus_handed_out: bool | None = None
    calls: int = 0
    answering: bool = True

    def allocation(self) -> NodeAllocation:
        self.calls += 1
        return self.granted

    def hands_out_gpus(self) -> bool | None:
        self.calls += 1
        return self.gpus_handed_out

    def answers(self) -> bool:
        return self.answering

    def gives_nodes_alone(self) -> bool:
        return False


def node(count: int = 4, *, source: str = "nvml+sysfs") -> NodeTopology:
    """A node whose driver shows ``count`` GPUs."""
    gpus = tuple(Gpu(n, f"GPU-{n}{n}{n}{n}", f"0000:{n:02x}:00.0") for n in range(count))
    return NodeTopology(gpus=gpus, source=source)


def mig_node(source: str = "nvml+sysfs") -> NodeTopology:
    """Two GPUs: the first in two MIG devices, the second whole."""
    gpus = (Gpu(0, "MIG-aaaa", mig="1g.10gb"), Gpu(0, "MIG-bbbb", mig="1g.10gb"), Gpu(1, "GPU-1111"))
    return NodeTopology(gpus=gpus, source=source)


def lost(count: int) -> NodeTopology:
    """A node whose driver counts GPUs, of which the last one does not respond."""
    return replace(node(count), gpus=(*node(count).gpus[:-1], Gpu(count - 1)))


JOB = {"SLURM_JOB_ID": "7"}
NAMES = {
    "visible": "CUDA_VISIBLE_DEVICES",
    "ordinal": "GPU_DEVICE_ORDINAL",
    "job": "SLURM_JOB_GPUS",
    "step": "SLURM_STEP_GPUS",
    "count": "SLURM_GPUS_ON_NODE",
    "shards": "SLURM_SHARDS_ON_NODE",
}


def variables(text: str) -> dict[str, str]:
    """The variables of a job: ``job=2,3 visible=2,3``."""
    return JOB | {NAMES[name]: value for name, _, value in (word.partition("=") for word in text.split())}


def gpus(names: str, positions: str | None, slurm: str = "", *problems: str) -> GpuGrant:
    """A grant whose numbers are written with commas."""
    numbers = [
        None if text is None else tuple(map(int, text.split(","))) if text else () for text in (positions, slurm)
    ]
    visible = tuple(map(VisibleName, names.split(","))) if names else ()
    return GpuGrant(visible, numbers[0], tuple(map(SlurmIndex, numbers[1] or ())), problems)


FROM_THE_ENVIRONMENT = {
    "no device cgroup: Slurm's indices everywhere": ("job=2,3 visible=2,3 count=2", node(4), gpus("2,3", "2,3", "2,3")),
    "device cgroup: the driver shows the job's GPUs alone, numbered anew": (
        "job=2,3 visible=0,1 count=2",
        node(2),
        gpus("0,1", "0,1", "2,3"),
    ),
    "device cgroup: an index that exists in both countings": (
        "job=0,2 visible=0,1",
        node(2),
        gpus("0,1", "0,1", "0,2"),
    ),
    "device cgroup under a topology file: the file shows every GPU": (
        "job=2,3 visible=0,1",
        node(4, source="file"),
        gpus("0,1", "2,3", "2,3"),
    ),
    "a step's own GPUs count, the job's may be another node's": (
        "job=0,1 step=3 visible=3",
        node(4),
        gpus("3", "3", "3"),
    ),
    "indices without visible names": ("job=1,3", node(4), gpus("1,3", "1,3", "1,3")),
    "names alone, and the driver shows more: they are CUDA's": (
        "visible=1,2 count=2",
        node(4),
        gpus("1,2", "1,2"),
    ),
    "names alone, and the driver shows as many": ("visible=0,1 count=2", node(2), gpus("0,1", "0,1")),
    "names alone, and the driver shows fewer: CUDA stops at the first that it does not have": (
        "visible=1,2,0",
        node(2),
        gpus("1", "1", "", "CUDA_VISIBLE_DEVICES is 1,2,0, but this job may open 2 GPUs."),
    ),
    "names alone, of which CUDA has none": (
        "visible=5,7 count=2",
        node(2),
        gpus("5,7", None, "", "CUDA_VISIBLE_DEVICES is 5,7, but this job may open 2 GPUs."),
    ),
    "OpenCL's variable where CUDA's is not set": ("ordinal=1", node(4), gpus("1", "1")),
    "a count that is all there is": ("count=4", node(4), gpus("0,1,2,3", "0,1,2,3")),
    "UUIDs (Flags=env_uuid), and the beginning of one": (
        "visible=GPU-3333,GPU-11 job=3,1",
        node(4),
        gpus("GPU-3333,GPU-11", "3,1", "3,1"),
    ),
    "a MIG device by UUID": ("visible=MIG-bbbb job=1", mig_node(), gpus("MIG-bbbb", "1", "1")),
    "a MIG device by the name of an older driver": (
        "visible=MIG-GPU-1234/7/0 job=1",
        mig_node(),
        gpus("MIG-GPU-1234/7/0", "1", "1"),
    ),
    "two MIG devices by the names of an older driver": (
        "visible=MIG-GPU-1234/8/0,MIG-GPU-1234/7/0 job=0,1",
        mig_node(),
        gpus("MIG-GPU-1234/8/0,MIG-GPU-1234/7/0", "0,1", "0,1"),
    ),
    "a MIG device by the name of an older driver, which may be any": (
        "visible=MIG-GPU-1234/7/0",
        mig_node(),
        GpuGrant((VisibleName("MIG-GPU-1234/7/0"),), None, (), ("No GPU on this node matches MIG-GPU-1234/7/0.",)),
    ),
    "a MIG device by Slurm's index: CUDA wants its UUID": (
        "visible=1 job=1",
        mig_node("file"),
        gpus("MIG-bbbb", "1", "1"),
    ),
    "a share of a GPU": ("job=0 shards=2 visible=0", node(4), gpus("0", "0", "0")),
    "Slurm's word for none": ("visible=NoDevFiles", node(4), gpus("", "")),
    "hidden by an admin's line": (
        "visible= job=0,1",
        node(4),
        gpus("", "", "", "Slurm granted GPU 0-1, but none is visible to this job."),
    ),
    "CUDA stops at what it does not take": ("visible=3,-1,2", node(4), gpus("3", "3")),
    "a CPU job on a node without GPUs": ("", node(0), gpus("", "")),
    "no driver": (
        "job=2,3 visible=2,3",
        node(0),
        gpus("2,3", None, "2,3", "GPU 2-3 was granted, but no GPU was found on this node."),
    ),
    "GPUs that are not NVIDIA's: Slurm sets another variable, and this one stays unset": (
        "job=2,3",
        node(0),
        GpuGrant(None, None, problems=("GPU 2-3 was granted, but no GPU was found on this node.",)),
    ),
    "the same, with OpenCL's variable": (
        "job=2 ordinal=0",
        node(0),
        GpuGrant(None, None, problems=("GPU 2 was granted, but no GPU was found on this node.",)),
    ),
    "a file of another machine": (
        "job=6,7 visible=6,7",
        node(4),
        gpus("6,7", None, "6,7", "GPU 6-7 was granted, but only GPU 0-3 was found on this node."),
    ),
    "a UUID of nobody": (
        "visible=GPU-9999",
        node(4),
        gpus("GPU-9999", None, "", "No GPU on this node matches GPU-9999."),
    ),
    "a beginning of several": ("visible=GPU-", node(4), gpus("GPU-", None, "", "No GPU on this node matches GPU-.")),
    "a lost GPU beside another: CUDA fails entirely if one of its devices fails": (
        "job=1,2 visible=1,2",
        lost(3),
        gpus("1", "1", "1", "GPU 2 was granted but does not respond; it is not used."),
    ),
    "a lost GPU alone: CUDA's own error tells more than an empty list": (
        "job=0 visible=0",
        lost(1),
        gpus("0", "0", "0"),
    ),
}


@pytest.mark.parametrize(
    ("text", "topology", "expected"), FROM_THE_ENVIRONMENT.values(), ids=FROM_THE_ENVIRONMENT.keys()
)
def test_the_grant_is_read_from_the_environment(text: str, topology: NodeTopology, expected: GpuGrant) -> None:
    """Without a question to slurmctld. What cannot be found keeps the name that Slurm has set."""
    slurm = Slurmctld()

    assert grant.gpus(variables(text), topology, slurm) == expected
    assert slurm.calls == 0


FROM_SLURMCTLD = {
    "a count alone": ("count=2", node(4), (0, 3), gpus("0,3", "0,3", "0,3")),
    "names under a file may be the job's own numbers": (
        "visible=0,1",
        node(4, source="file"),
        (2, 3),
        gpus("0,1", "2,3", "2,3"),
    ),
    "without an answer it is not known what the names count": (
        "visible=2,3",
        node(4, source="file"),
        (),
        gpus("2,3", None, "", "CUDA_VISIBLE_DEVICES is 2,3; Slurm does not say which of the node's GPUs these are."),
    ),
    "without an answer a count names none": (
        "count=2",
        node(4),
        (),
        GpuGrant(None, None, problems=("Slurm granted 2 GPUs, but does not say which; 4 were found.",)),
    ),
}


@pytest.mark.parametrize(
    ("text", "topology", "indices", "expected"), FROM_SLURMCTLD.values(), ids=FROM_SLURMCTLD.keys()
)
def test_slurmctld_is_the_last_resort(
    text: str, topology: NodeTopology, indices: tuple[int, ...], expected: GpuGrant
) -> None:
    """It is asked once, if the environment leaves open which devices are meant."""
    slurm = Slurmctld(NodeAllocation("g1", gres=(Gres("gpu", indices=indices),)))

    assert grant.gpus(variables(text), topology, slurm) == expected
    assert slurm.calls == 1


@pytest.mark.parametrize(("handed_out", "names"), [(True, ()), (None, ()), (False, ("0", "1", "2", "3"))])
def test_gpus_that_slurm_does_not_hand_out_are_everybodys(handed_out: bool | None, names: tuple[str, ...]) -> None:
    """A job without GPUs has none, unless this cluster's Slurm knows nothing of GPUs: then it is told so."""
    granted = grant.gpus(JOB, node(4), Slurmctld(gpus_handed_out=handed_out))

    assert granted.names == names
    assert bool(names) == bool(granted.problems)


@pytest.mark.parametrize(
    ("visible", "shown", "source", "names", "slurm"),
    [
        ("3", 4, "nvml", ("3",), (3,)),
        ("3,2", 4, "nvml", ("3", "2"), (3, 2)),
        ("3,0", 4, "nvml", ("3",), (3,)),
        ("2,3,1", 4, "nvml", ("2", "3"), (2, 3)),
        ("7", 4, "nvml", (), ()),
        ("1", 2, "nvml", ("1",), (3,)),
        ("1,0", 2, "nvml", ("1", "0"), (3, 2)),
        ("1", 4, "file", ("1",), (3,)),
        ("3", 4, "file", ("3",), (3,)),
    ],
)
def test_names_that_an_admins_line_changed_never_widen(
    visible: str, shown: int, source: str, names: tuple[str, ...], slurm: tuple[int, ...]
) -> None:
    """Of Slurm's GPUs 2 and 3 only those that are left visible, in the order that they were put in."""
    environ = JOB | {"SLURM_JOB_GPUS": "2,3", "CUDA_VISIBLE_DEVICES": visible}

    granted = grant.gpus(environ, node(shown, source=source), Slurmctld())

    assert (names, slurm) == (granted.names, granted.slurm)
    positions = slurm if shown == 4 else tuple(index - 2 for index in slurm)
    assert granted.positions == positions
    problem = f"CUDA_VISIBLE_DEVICES is {visible}, but Slurm granted GPU 2-3; only GPUs in both are used."
    assert granted.problems == (() if len(names) == 2 and visible.count(",") == 1 else (problem,))


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, gpus("0,1,2,3", "0,1,2,3")),
        ("1,2", gpus("1,2", "1,2")),
        ("GPU-2222", gpus("GPU-2222", "2")),
        ("", gpus("", "")),
    ],
)
def test_outside_a_job_all_that_the_environment_leaves_visible(visible: str | None, expected: GpuGrant) -> None:
    """On the hub's own machine, nothing manages GPUs."""
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert grant.gpus(environ, node(4), Slurmctld()) == expected


TWO_SOCKETS = NodeTopology(
    numa_nodes=(NumaNode(0, (0, 2, 4, 6)), NumaNode(1, (1, 3, 5, 7))),
    siblings=((0, 4), (1, 5), (2, 6), (3, 7)),
    packages=((0, 2, 4, 6), (1, 3, 5, 7)),
)
ODD_AND_EVEN = (NumaNode(0, (1, 3, 5, 7)), NumaNode(1, (0, 2, 4, 6)))
"""The boot CPU is in the second."""


UNSAID = "Slurm granted 2 of 4 CPUs, but does not bind the job to them or say which they are."
NOT_ALLOWED = "Slurm granted CPUs 0-1, but this process is not allowed to use any of them."
CPUS = {
    "outside a job: what the kernel allows": (None, (0, 1), (), (0, 1), ""),
    "a cpuset: what the kernel allows": ("2", (3, 7), (), (3, 7), ""),
    "nothing binds the job: the first core of each socket, in the kernel's numbers": (
        "4",
        tuple(range(8)),
        (0, 1, 4, 5),
        (0, 1, 4, 5),
        "",
    ),
    "never more than the kernel allows": ("2", (0, 1, 2, 3), (0, 1), (0,), ""),
    "no answer": ("2", (0, 1, 2, 3), (), (0, 1, 2, 3), UNSAID),
    "an answer that cannot be": ("2", (5, 6, 7), (0, 1), (5, 6, 7), NOT_ALLOWED),
}


@pytest.mark.parametrize(("count", "allowed", "abstract", "expected", "problem"), CPUS.values(), ids=CPUS.keys())
def test_cpus_are_what_the_kernel_allows_and_slurm_granted(
    count: str | None,
    allowed: tuple[int, ...],
    abstract: tuple[int, ...],
    expected: tuple[int, ...],
    problem: str,
) -> None:
    """Slurm is asked only where the kernel allows more than Slurm granted."""
    slurm = Slurmctld(NodeAllocation("g1", abstract))
    environ = {} if count is None else JOB | {"SLURM_CPUS_ON_NODE": count}

    assert grant.cpus(environ, TWO_SOCKETS, allowed, slurm) == (expected, (problem,) if problem else ())
    assert slurm.calls == (count is not None and int(count) < len(allowed))


def test_on_a_simulated_node_the_numbers_are_the_nodes_own() -> None:
    """What the real machine's kernel allows does not matter there."""
    simulated = replace(TWO_SOCKETS, siblings=(), simulated=True)
    slurm = Slurmctld(NodeAllocation("g1", (4, 5)))

    assert grant.cpus(JOB | {"SLURM_CPUS_ON_NODE": "2"}, simulated, (0,), slurm) == ((1, 3), ())


@pytest.mark.parametrize(
    ("topology", "abstract", "kernel"),
    [
        (TWO_SOCKETS, (0, 1), (0, 4)),
        (TWO_SOCKETS, (2, 4, 5), (1, 2, 5)),
        (replace(TWO_SOCKETS, siblings=()), (0, 1, 4), (0, 1, 2)),
        (NodeTopology(), (3, 1), (1, 3)),
        (TWO_SOCKETS, (0, 9), (0, 9)),
        (replace(TWO_SOCKETS, siblings=(), packages=((1, 3, 5, 7), (0, 2, 4, 6))), (0, 1), (0, 2)),
        (replace(TWO_SOCKETS, siblings=(), packages=(tuple(range(8)),), numa_nodes=ODD_AND_EVEN), (0, 1), (0, 2)),
        (NodeTopology(numa_nodes=ODD_AND_EVEN), (0, 1, 4), (0, 1, 2)),
    ],
)
def test_slurms_abstract_cpus_count_by_socket_core_and_thread(
    topology: NodeTopology, abstract: tuple[int, ...], kernel: tuple[int, ...]
) -> None:
    """In the order of the lowest CPU of socket, NUMA node and core; numbers of unknown sockets are used as they are."""
    assert kernel_cpus(abstract, topology) == kernel
