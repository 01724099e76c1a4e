"""What is this job's: every form in which Slurm says it, on every kind of node."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from jupyterhub_gpuspawner.node import grant
from jupyterhub_gpuspawner.node.grant import GpuGrant, GrantedJob, Slurm
from jupyterhub_gpuspawner.placement import affinity
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology, NumaNode


@dataclass
class Slurmctld(Slurm):
    """Answers as told, and counts what it was asked."""

    detail: GrantedJob = field(default_factory=GrantedJob)
    gpus_handed_out: bool | None = None
    asked: int = 0

    def job(self) -> GrantedJob:
        self.asked += 1
        return self.detail

    def hands_out_gpus(self) -> bool | None:
        self.asked += 1
        return self.gpus_handed_out


def node(count: int = 4, *, source: str = "nvml+sysfs") -> NodeTopology:
    """A node whose driver shows ``count`` GPUs."""
    gpus = tuple(Gpu(n, f"GPU-{n}{n}{n}{n}", f"0000:{n:02x}:00.0") for n in range(count))
    return NodeTopology(gpus=gpus, source=source)


def mig_node(source: str = "nvml+sysfs") -> NodeTopology:
    """Two GPUs: the first in two MIG devices, the second whole."""
    gpus = (Gpu(0, "MIG-aaaa", mig="1g.10gb"), Gpu(0, "MIG-bbbb", mig="1g.10gb"), Gpu(1, "GPU-1111"))
    return NodeTopology(gpus=gpus, source=source)


JOB = {"SLURM_JOB_ID": "7"}


@pytest.mark.parametrize(
    ("environ", "topology", "expected"),
    [
        pytest.param(
            {"SLURM_JOB_GPUS": "2,3", "CUDA_VISIBLE_DEVICES": "2,3", "SLURM_GPUS_ON_NODE": "2"},
            node(4),
            GpuGrant(("2", "3"), (2, 3), (2, 3)),
            id="no device cgroup: Slurm's indices everywhere",
        ),
        pytest.param(
            {"SLURM_JOB_GPUS": "2,3", "CUDA_VISIBLE_DEVICES": "0,1", "SLURM_GPUS_ON_NODE": "2"},
            node(2),
            GpuGrant(("0", "1"), (0, 1), (2, 3)),
            id="device cgroup: the driver shows the job's GPUs alone, numbered anew",
        ),
        pytest.param(
            {"SLURM_JOB_GPUS": "0,2", "CUDA_VISIBLE_DEVICES": "0,1"},
            node(2),
            GpuGrant(("0", "1"), (0, 1), (0, 2)),
            id="device cgroup: an index that exists in both countings",
        ),
        pytest.param(
            {"SLURM_JOB_GPUS": "2,3", "CUDA_VISIBLE_DEVICES": "0,1"},
            node(4, source="file"),
            GpuGrant(("0", "1"), (2, 3), (2, 3)),
            id="device cgroup under a topology file: the file shows every GPU",
        ),
        pytest.param(
            {"SLURM_JOB_GPUS": "0,1", "SLURM_STEP_GPUS": "3", "CUDA_VISIBLE_DEVICES": "3"},
            node(4),
            GpuGrant(("3",), (3,), (3,)),
            id="a step's own GPUs count, the job's may be another node's",
        ),
        pytest.param(
            {"SLURM_JOB_GPUS": "1,3"},
            node(4),
            GpuGrant(("1", "3"), (1, 3), (1, 3)),
            id="indices without visible names",
        ),
        pytest.param(
            {"CUDA_VISIBLE_DEVICES": "1,2", "SLURM_GPUS_ON_NODE": "2"},
            node(4),
            GpuGrant(("1", "2"), (1, 2), (1, 2)),
            id="names alone, and the driver shows more: no cgroup, so they are Slurm's",
        ),
        pytest.param(
            {"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_GPUS_ON_NODE": "2"},
            node(2),
            GpuGrant(("0", "1"), (0, 1), (0, 1)),
            id="names alone, and the driver shows as many",
        ),
        pytest.param(
            {"GPU_DEVICE_ORDINAL": "1"},
            node(4),
            GpuGrant(("1",), (1,), (1,)),
            id="OpenCL's variable where CUDA's is not set",
        ),
        pytest.param(
            {"SLURM_GPUS_ON_NODE": "4"},
            node(4),
            GpuGrant(("0", "1", "2", "3"), (0, 1, 2, 3)),
            id="a count that is all there is",
        ),
        pytest.param(
            {"CUDA_VISIBLE_DEVICES": "GPU-3333,GPU-11", "SLURM_JOB_GPUS": "3,1"},
            node(4),
            GpuGrant(("GPU-3333", "GPU-11"), (3, 1), (3, 1)),
            id="UUIDs (Flags=env_uuid), and the beginning of one",
        ),
        pytest.param(
            {"CUDA_VISIBLE_DEVICES": "MIG-bbbb", "SLURM_JOB_GPUS": "1"},
            mig_node(),
            GpuGrant(("MIG-bbbb",), (1,), (1,)),
            id="a MIG device by UUID",
        ),
        pytest.param(
            {"CUDA_VISIBLE_DEVICES": "1", "SLURM_JOB_GPUS": "1"},
            mig_node("file"),
            GpuGrant(("MIG-bbbb",), (1,), (1,)),
            id="a MIG device by Slurm's index: CUDA wants its UUID",
        ),
        pytest.param(
            {"SLURM_JOB_GPUS": "0", "SLURM_SHARDS_ON_NODE": "2", "CUDA_VISIBLE_DEVICES": "0"},
            node(4),
            GpuGrant(("0",), (0,), (0,)),
            id="a share of a GPU",
        ),
        pytest.param({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, node(4), GpuGrant(), id="Slurm's word for none"),
        pytest.param(
            {"CUDA_VISIBLE_DEVICES": "", "SLURM_JOB_GPUS": "0,1"}, node(4), GpuGrant(), id="hidden by an admin's line"
        ),
        pytest.param(
            {"CUDA_VISIBLE_DEVICES": "3,-1,2"},
            node(4),
            GpuGrant(("3",), (3,), (3,)),
            id="CUDA stops at what it does not take",
        ),
    ],
)
def test_the_grant_is_read_from_the_environment(
    environ: dict[str, str], topology: NodeTopology, expected: GpuGrant
) -> None:
    """Without a question to slurmctld."""
    slurm = Slurmctld()

    assert grant.gpus(JOB | environ, topology, slurm) == expected
    assert slurm.asked == 0


@pytest.mark.parametrize(
    ("environ", "topology", "detail", "expected"),
    [
        pytest.param(
            {"SLURM_GPUS_ON_NODE": "2"},
            node(4),
            GrantedJob(gpus=(0, 3)),
            GpuGrant(("0", "3"), (0, 3), (0, 3)),
            id="a count alone",
        ),
        pytest.param(
            {"CUDA_VISIBLE_DEVICES": "0,1"},
            node(4, source="file"),
            GrantedJob(gpus=(2, 3)),
            GpuGrant(("0", "1"), (2, 3), (2, 3)),
            id="names under a file may be the job's own numbers",
        ),
        pytest.param(
            {"CUDA_VISIBLE_DEVICES": "2,3"},
            node(4, source="file"),
            GrantedJob(),
            GpuGrant(("2", "3"), (2, 3), (2, 3)),
            id="without an answer the names are Slurm's",
        ),
        pytest.param(
            {"SLURM_GPUS_ON_NODE": "2"},
            node(4),
            GrantedJob(),
            GpuGrant((), None, (), ("Slurm granted 2 GPUs, but does not say which; 4 were found.",)),
            id="without an answer a count names none",
        ),
    ],
)
def test_slurmctld_is_the_last_resort(
    environ: dict[str, str], topology: NodeTopology, detail: GrantedJob, expected: GpuGrant
) -> None:
    """It is asked once, if the environment leaves open which devices are meant."""
    slurm = Slurmctld(detail)

    assert grant.gpus(JOB | environ, topology, slurm) == expected
    assert slurm.asked == 1


@pytest.mark.parametrize(("handed_out", "names"), [(True, ()), (None, ()), (False, ("0", "1", "2", "3"))])
def test_gpus_that_slurm_does_not_hand_out_are_everybodys(handed_out: bool | None, names: tuple[str, ...]) -> None:
    """A job without GPUs has none, unless this cluster's Slurm knows nothing of GPUs: then it is told so."""
    granted = grant.gpus(JOB, node(4), Slurmctld(gpus_handed_out=handed_out))

    assert granted.names == names
    assert bool(names) == bool(granted.problems)


def test_a_cpu_job_on_a_node_without_gpus_asks_nothing() -> None:
    """slurmctld is not asked for what cannot matter."""
    slurm = Slurmctld()

    assert grant.gpus(JOB, node(0), slurm) == GpuGrant()
    assert slurm.asked == 0


@pytest.mark.parametrize(
    ("environ", "topology", "expected"),
    [
        pytest.param(
            {"SLURM_JOB_GPUS": "2,3", "CUDA_VISIBLE_DEVICES": "2,3"},
            node(0),
            GpuGrant(("2", "3"), None, (2, 3), ("GPU 2-3 was granted, but no GPU was found on this node.",)),
            id="no driver",
        ),
        pytest.param(
            {"SLURM_JOB_GPUS": "6,7", "CUDA_VISIBLE_DEVICES": "6,7"},
            node(4),
            GpuGrant(
                ("6", "7"),
                None,
                (6, 7),
                ("GPU 6-7 was granted, but only GPU 0-3 was found on this node.",),
            ),
            id="a file of another machine",
        ),
        pytest.param(
            {"CUDA_VISIBLE_DEVICES": "GPU-9999"},
            node(4),
            GpuGrant(("GPU-9999",), None, (), ("No GPU on this node matches GPU-9999.",)),
            id="a UUID of nobody",
        ),
        pytest.param(
            {"CUDA_VISIBLE_DEVICES": "GPU-"},
            node(4),
            GpuGrant(("GPU-",), None, (), ("No GPU on this node matches GPU-.",)),
            id="a beginning of several",
        ),
    ],
)
def test_what_cannot_be_found_keeps_its_name(
    environ: dict[str, str], topology: NodeTopology, expected: GpuGrant
) -> None:
    """The server still gets what Slurm set; only nothing is known about it."""
    assert grant.gpus(JOB | environ, topology, Slurmctld()) == expected


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
    told = f"CUDA_VISIBLE_DEVICES is {visible}, but Slurm granted GPU 2-3; only GPUs in both are used."
    assert granted.problems == (() if len(names) == 2 and visible.count(",") == 1 else (told,))


def test_a_lost_gpu_is_left_out_where_others_remain() -> None:
    """CUDA fails entirely if one of its devices fails."""
    lost = replace(node(3), gpus=(*node(3).gpus[:2], Gpu(2)))

    granted = grant.gpus(JOB | {"SLURM_JOB_GPUS": "1,2", "CUDA_VISIBLE_DEVICES": "1,2"}, lost, Slurmctld())

    problem = "GPU 2 was granted but does not respond; it is not used."
    assert granted == GpuGrant(("1",), (1,), (1,), (problem,))


def test_the_only_gpu_is_kept_though_it_is_lost() -> None:
    """Nothing better can be had; CUDA's own error tells the user more than an empty list."""
    lost = replace(node(1), gpus=(Gpu(0),))

    granted = grant.gpus(JOB | {"SLURM_JOB_GPUS": "0", "CUDA_VISIBLE_DEVICES": "0"}, lost, Slurmctld())

    assert granted == GpuGrant(("0",), (0,), (0,))


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, GpuGrant(("0", "1", "2", "3"), (0, 1, 2, 3))),
        ({"CUDA_VISIBLE_DEVICES": "1,2"}, GpuGrant(("1", "2"), (1, 2), (1, 2))),
        ({"CUDA_VISIBLE_DEVICES": "GPU-2222"}, GpuGrant(("GPU-2222",), (2,))),
        ({"CUDA_VISIBLE_DEVICES": ""}, GpuGrant()),
    ],
)
def test_outside_a_job_all_that_the_environment_leaves_visible(environ: dict[str, str], expected: GpuGrant) -> None:
    """On the hub's own machine, nothing manages GPUs."""
    assert grant.gpus(environ, node(4), Slurmctld()) == expected


TWO_SOCKETS = NodeTopology(
    numa_nodes=(NumaNode(0, (0, 2, 4, 6)), NumaNode(1, (1, 3, 5, 7))),
    siblings=((0, 4), (1, 5), (2, 6), (3, 7)),
    packages=((0, 2, 4, 6), (1, 3, 5, 7)),
)
ODD_AND_EVEN = (NumaNode(0, (1, 3, 5, 7)), NumaNode(1, (0, 2, 4, 6)))
"""The boot CPU is in the second."""


@pytest.mark.parametrize(
    ("environ", "allowed", "detail", "expected", "asked"),
    [
        pytest.param({}, (0, 1), GrantedJob(), ((0, 1), ()), 0, id="outside a job: what the kernel allows"),
        pytest.param(
            JOB | {"SLURM_CPUS_ON_NODE": "2"},
            (3, 7),
            GrantedJob(),
            ((3, 7), ()),
            0,
            id="a cpuset: what the kernel allows",
        ),
        pytest.param(
            JOB | {"SLURM_CPUS_ON_NODE": "4"},
            tuple(range(8)),
            GrantedJob(cpus=(0, 1, 4, 5)),
            ((0, 1, 4, 5), ()),
            1,
            id="nothing binds the job: the first core of each socket, in the kernel's numbers",
        ),
        pytest.param(
            JOB | {"SLURM_CPUS_ON_NODE": "2"},
            (0, 1, 2, 3),
            GrantedJob(cpus=(0, 1)),
            ((0,), ()),
            1,
            id="never more than the kernel allows",
        ),
        pytest.param(
            JOB | {"SLURM_CPUS_ON_NODE": "2"},
            (0, 1, 2, 3),
            GrantedJob(),
            ((0, 1, 2, 3), ("Slurm granted 2 of 4 CPUs, but does not bind the job to them or say which they are.",)),
            1,
            id="no answer",
        ),
        pytest.param(
            JOB | {"SLURM_CPUS_ON_NODE": "2"},
            (5, 6, 7),
            GrantedJob(cpus=(0, 1)),
            ((5, 6, 7), ("Slurm granted CPUs 0-1, but this process is not allowed to use any of them.",)),
            1,
            id="an answer that cannot be",
        ),
    ],
)
def test_cpus_are_what_the_kernel_allows_and_slurm_granted(
    environ: dict[str, str],
    allowed: tuple[int, ...],
    detail: GrantedJob,
    expected: tuple[tuple[int, ...], tuple[str, ...]],
    asked: int,
) -> None:
    """Slurm is asked only where the kernel allows more than Slurm granted."""
    slurm = Slurmctld(detail)

    assert grant.cpus(environ, TWO_SOCKETS, allowed, slurm) == expected
    assert slurm.asked == asked


def test_on_a_simulated_node_the_numbers_are_the_nodes_own() -> None:
    """What the real machine's kernel allows does not matter there."""
    simulated = replace(TWO_SOCKETS, siblings=(), simulated=True)
    slurm = Slurmctld(GrantedJob(cpus=(4, 5)))

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
    assert affinity.kernel_cpus(abstract, topology) == kernel
