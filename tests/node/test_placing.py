"""One server's place on a node: what is chosen, said and exported, on named machines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import jupyterhub_gpuspawner
from jupyterhub_gpuspawner.node import placing
from jupyterhub_gpuspawner.node.grant import ControllerAnswers
from jupyterhub_gpuspawner.node.placing import THREADS, Launch
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology, NumaNode, load
from jupyterhub_gpuspawner.units import parse_cpulist
from jupyterhub_gpuspawner.wire.documents import LaunchPlan, PlacementDocument

MACHINES = Path(jupyterhub_gpuspawner.__file__).parent / "demo" / "machines"


class Job(Launch):
    """A job on a described node; slurmctld says that it has the CPUs ``cpu_ids``."""

    def __init__(self, node: NodeTopology | str, environ: dict[str, str], cpu_ids: str = "", **plan: Any) -> None:
        topology = load(str(MACHINES / f"{node}.json")) if isinstance(node, str) else node
        slurm = ControllerAnswers({}, job=f"Nodes=n1 CPU_IDs={cpu_ids} Mem=1 GRES=", node="")
        super().__init__(LaunchPlan(**plan), {"SLURM_JOB_ID": "7", **environ}, slurm=slurm, topology=topology)

    def placement(self) -> PlacementDocument:
        return self.place()[0]


def granted(gpus: str, cpus: int, visible: str | None = None) -> dict[str, str]:
    """Slurm's variables of a job."""
    return {
        "SLURM_JOB_GPUS": gpus,
        "CUDA_VISIBLE_DEVICES": gpus if visible is None else visible,
        "SLURM_GPUS_ON_NODE": str(len(gpus.split(","))),
        "SLURM_CPUS_ON_NODE": str(cpus),
    }


K80 = "k80-2socket"
WHOLE_DGX1 = granted("0,1,2,3,4,5,6,7", 40)
CASES = {
    "a board": (Job(K80, granted("2,3", 4), "12-15", gpus=2, cpus=4), "2,3", "12-15", "1", True, "PIX"),
    "the wrong socket": (Job(K80, granted("2,3", 4), "0-3", gpus=2, cpus=4), "2,3", "0-3", "0", False, "PIX"),
    "two of four": (Job(K80, granted("0,1,2,3", 24), gpus=2, cpus=4), "0,1", "0-11", "0", True, "PIX"),
    "near the CPUs": (Job(K80, granted("0,1,2,3", 12), "12-23", gpus=1, cpus=2), "2", "12-23", "1", True, None),
    "more cores for its memory": (Job(K80, granted("2", 6), "12-17", gpus=1, cpus=3), "2", "12-17", "1", True, None),
    "device cgroup": (Job(K80, granted("2,3", 4, visible="0,1"), "12-15", gpus=2), "0,1", "12-15", "1", True, "PIX"),
    "no policy": (Job("dgx1", WHOLE_DGX1, gpus=2, cpus=4, policy="none"), "0,1", "0-39", "0-1", False, "NV1"),
}


@pytest.mark.parametrize(("job", "visible", "cpus", "numa", "aligned", "weakest"), CASES.values(), ids=CASES)
def test_gpus_and_cpus_are_chosen_together(
    job: Job, visible: str, cpus: str, numa: str, aligned: bool, weakest: str | None
) -> None:
    """The environment, the report and the exported variables say the same."""
    placement = job.placement()

    assert job.environ["CUDA_VISIBLE_DEVICES"] == job.environ["GPUSPAWNER_GPUS"] == visible
    assert [str(gpu.index) for gpu in placement.gpus] == visible.split(",")
    assert job.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert (cpus, parse_cpulist(numa)) == (placement.cpus, placement.numa_nodes)
    assert (cpus, numa) == (job.environ["GPUSPAWNER_CPUS"], job.environ["GPUSPAWNER_NUMA_NODES"])
    assert (aligned, weakest) == (placement.aligned, placement.weakest_link)
    assert (placement.simulated, placement.memory_policy, placement.problems) == (True, "none", ())


def test_as_many_cores_are_bound_as_slurm_allocated_where_it_does_not_say_which() -> None:
    """Beside the GPU: more than the profile promises, and never the whole node."""
    placement = Job(K80, granted("2", 6), gpus=1, cpus=3).placement()

    assert (placement.cpus, placement.problems) == (
        "12-17",
        ("Slurm granted 6 of 24 CPUs, but does not bind the job to them or say which they are.",),
    )


def test_a_mig_device_is_named_by_its_uuid() -> None:
    """CUDA accepts no number for it; the report gives its parent's number, and its own on that."""
    job = Job("a100-mig", granted("3", 4), "0-3", gpus=1, cpus=4)
    device = load(str(MACHINES / "a100-mig.json")).gpus[3]

    placement = job.placement()

    assert job.environ["CUDA_VISIBLE_DEVICES"] == device.uuid
    assert [(gpu.uuid, gpu.index, gpu.mig, gpu.mig_device) for gpu in placement.gpus] == [
        (device.uuid, 2, "1g.10gb", 1)
    ]
    assert placement.why.endswith("To Slurm this is GPU 3.")


def test_a_fault_of_the_servers_own_gpu_is_a_problem() -> None:
    """Those of other GPUs are their users' and the admin's; of one without a UUID the topology has a problem itself."""
    node = load(str(MACHINES / "k80-2socket.json"))
    gpus = [replace(gpu, fault=f"{gpu.index} is worn.") for gpu in node.gpus]
    gpus[1] = replace(gpus[1], uuid="")

    placement = Job(replace(node, gpus=tuple(gpus)), granted("0,1", 4), "0-3", gpus=2).placement()

    assert placement.problems == ("GPU 0: 0 is worn.",)


def test_a_cpu_job_on_a_gpu_node_sees_no_gpu() -> None:
    """They are hidden, and the report says so."""
    job = Job("k80-2socket", {"SLURM_CPUS_ON_NODE": "4"}, "0-3", cpus=4)

    placement = job.placement()

    assert job.environ["CUDA_VISIBLE_DEVICES"] == ""
    assert placement.gpus == ()
    assert placement.why == "This job has no GPU; the node's GPUs are hidden from it."


def test_gpus_that_are_not_nvidias_are_left_to_slurms_variable() -> None:
    """Slurm sets ROCR_VISIBLE_DEVICES for AMD's."""
    slurms = {"SLURM_JOB_GPUS": "2,3", "ROCR_VISIBLE_DEVICES": "0,1", "SLURM_CPUS_ON_NODE": "4"}
    job = Job("cpu", slurms, "0-3", gpus=2, cpus=4)

    placement = job.placement()

    assert "CUDA_VISIBLE_DEVICES" not in job.environ
    assert placement.problems == ("GPU 2-3 was granted, but no GPU was found on this node.",)


def test_a_cpu_job_on_a_cpu_node_has_nothing_set() -> None:
    """Where there is nothing to hide."""
    job = Job("cpu", {"SLURM_CPUS_ON_NODE": "4"}, "0-3", gpus=0, cpus=4)

    placement = job.placement()

    assert "CUDA_VISIBLE_DEVICES" not in job.environ
    assert (placement.gpus, placement.cpus, placement.aligned, placement.why) == ((), "0-3", None, "")


@pytest.mark.parametrize(
    ("words", "visible"),
    [
        ("OverSubscribe=NO TresPerNode=gres:gpu:k80:2", "0,1"),
        ("OverSubscribe=NO TresPerNode=gres/gpu:k80:2", "0,1"),
        ("OverSubscribe=OK TresPerNode=gres:gpu:k80:2", ""),
        ("OverSubscribe=NO", ""),
    ],
)
def test_a_job_with_a_whole_node_has_its_gpus_where_slurm_assigns_none(words: str, visible: str) -> None:
    """As select/linear does: the best of all are chosen; a job that requested none sees none."""
    job = Job("k80-2socket", {"SLURM_CPUS_ON_NODE": "24"}, gpus=2, cpus=4)
    answer = f"Nodes=n1 CPU_IDs=0-23 Mem=600 GRES=gpu:k80:0(IDX:)\n   {words}\n"
    job.slurm = ControllerAnswers({}, job=answer, node="Gres=gpu:k80:4\n")

    job.place()

    assert job.environ["CUDA_VISIBLE_DEVICES"] == visible


STATION = NodeTopology(
    gpus=tuple(
        Gpu(n, f"GPU-{n}", f"0000:{n:02x}:00.0", name, mib, numa_node=0)
        for n, (name, mib) in enumerate(
            [("NVIDIA DGX Display", 4096), *[("NVIDIA A100-SXM4-40GB", 40960)] * 2, ("NVIDIA A100 80GB PCIe", 81920)]
        )
    ),
    numa_nodes=(NumaNode(0, tuple(range(8))),),
    source="nvml+sysfs",
    simulated=True,
)


@pytest.mark.parametrize(
    ("plan", "visible"),
    [
        ({"gpus": 1}, "3"),
        ({"gpus": 1, "gpu_type": "a100-40gb"}, "1"),
        ({"gpus": 2}, "1,2"),
        ({"gpus": 3}, "3,1,2"),
        ({}, "3,0,1,2"),
        ({"gpus": 1, "policy": "none"}, "3"),
    ],
)
def test_where_slurm_does_not_choose_a_display_adapter_is_not_the_first(plan: dict[str, Any], visible: str) -> None:
    """The profile's type travels in the plan; without one, a GPU with less memory is the last resort."""
    job = Job(STATION, {}, **plan)
    job.slurm = ControllerAnswers({}, job="JobId=7\n", node="Gres=(null)\n")

    job.place()

    assert job.environ["CUDA_VISIBLE_DEVICES"] == visible


def test_what_was_promised_and_is_not_there_is_told() -> None:
    """The server starts with what there is."""
    job = Job("k80-2socket", granted("1", 2), "0-1", gpus=2, cpus=4)

    placement = job.placement()

    assert job.environ["CUDA_VISIBLE_DEVICES"] == "1"
    assert placement.problems == (
        "The profile promises 2 GPUs; only 1 available.",
        "The profile promises 4 CPUs; only 2 available.",
    )


def test_gpus_that_nothing_is_known_of_keep_slurms_names() -> None:
    """As many as were promised."""
    job = Job(NodeTopology(hostname="n1", simulated=True), granted("2,3", 1), gpus=1)

    placement = job.placement()

    assert job.environ["CUDA_VISIBLE_DEVICES"] == "2"
    assert [(gpu.index, gpu.uuid) for gpu in placement.gpus] == [(2, "")]
    assert placement.problems[0] == "GPU 2-3 was granted, but no GPU was found on this node."


def test_outside_a_job_gpus_are_chosen_only_where_the_profile_asks() -> None:
    """On the hub's own machine."""
    job = Job("k80-2socket", {"SLURM_JOB_ID": ""}, gpus=2)
    idle = Job("k80-2socket", {"SLURM_JOB_ID": ""})

    assert [gpu.index for gpu in job.placement().gpus] == [0, 1]
    assert idle.placement().gpus == ()
    assert "CUDA_VISIBLE_DEVICES" not in idle.environ


def test_threads_are_cores_unless_the_profile_says_otherwise() -> None:
    """Two hyperthreads are one core; a variable that is set stays."""
    node = NodeTopology(
        numa_nodes=(NumaNode(0, (0, 1, 2, 3)),), siblings=((0, 2), (1, 3)), packages=((0, 1, 2, 3),), simulated=True
    )
    job = Job(node, {"SLURM_CPUS_ON_NODE": "4", "OMP_NUM_THREADS": "7"})
    job.place()

    assert {name: job.environ[name] for name in THREADS} == dict.fromkeys(THREADS, "2") | {"OMP_NUM_THREADS": "7"}

    unset = Job(node, {"SLURM_CPUS_ON_NODE": "4"}, set_threads=False)
    unset.place()

    assert not set(THREADS) & set(unset.environ)


TWO_THREADS = NodeTopology(
    numa_nodes=(NumaNode(0, (0, 1, 4, 5)), NumaNode(1, (2, 3, 6, 7))),
    siblings=tuple((core, core + 4) for core in range(4)),
    packages=((0, 1, 4, 5), (2, 3, 6, 7)),
    simulated=True,
)


@pytest.mark.parametrize(
    ("count", "cpu_ids", "promised", "cpus", "threads", "problems"),
    [
        pytest.param("4", "0-3", 4, "0-1,4-5", "2", (), id="threads are Slurm's CPUs"),
        pytest.param("4", "0-3", 3, "0-1,4-5", "2", (), id="an odd number of threads"),
        pytest.param("8", "0-7", 3, "0-1,4-5", "2", (), id="the cores of one NUMA node of a whole node"),
        pytest.param("2", "0-3", 2, "0-1,4-5", "2", (), id="cores are Slurm's CPUs, or one thread of each is used"),
        pytest.param("4", "0-7", 2, "0-1,4-5", "2", (), id="two cores of a whole node"),
        pytest.param(
            "2",
            "4-7",
            3,
            "2-3,6-7",
            "2",
            ("The profile promises 3 CPUs; only 2 available.",),
            id="too few cores",
        ),
    ],
)
def test_a_server_has_both_threads_of_each_core_that_it_was_promised(
    count: str, cpu_ids: str, promised: int, cpus: str, threads: str, problems: tuple[str, ...]
) -> None:
    """Slurm gives out whole cores, and counts a core as one CPU or as two."""
    job = Job(TWO_THREADS, {"SLURM_CPUS_ON_NODE": count}, cpu_ids, cpus=promised)

    placement = job.placement()

    assert (placement.cpus, job.environ["OMP_NUM_THREADS"], placement.problems) == (cpus, threads, problems)


def test_times_are_utc_and_to_the_second() -> None:
    """From ``SLURM_JOB_END_TIME``, which newer versions of Slurm set; None without it."""
    ended = Job("cpu", {"SLURM_JOB_END_TIME": "1795259690"}).placement()

    assert ended.ends_at == "2026-11-21T11:14:50Z"
    assert ended.started_at is not None
    assert ended.started_at.endswith("Z")
    assert Job("cpu", {}).placement().ends_at is None
    problems = Job("cpu", {"SLURM_JOB_END_TIME": "soon"}).placement().problems
    assert any(problem.startswith("Reading the job's end failed: ValueError") for problem in problems)


def test_on_a_real_node_the_kernels_answers_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what was asked for, but what the kernel did."""
    calls: list[object] = []

    def bind_cpus(cpus: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[str, ...]]:
        calls.append(cpus)
        return (12, 13), ("The kernel refused something.",)

    def bind_memory(policy: str, nodes: tuple[int, ...], local: tuple[int, ...]) -> tuple[str, tuple[str, ...]]:
        calls.append((policy, nodes, local))
        return "preferred:1", ()

    monkeypatch.setattr(placing, "allowed_cpus", lambda: tuple(range(24)))
    monkeypatch.setattr(placing, "bind_cpus", bind_cpus)
    monkeypatch.setattr(placing, "bind_memory", bind_memory)
    node = replace(load(str(MACHINES / "k80-2socket.json")), simulated=False)

    placement = Job(node, granted("2,3", 24), gpus=2, cpus=4).placement()

    assert calls == [tuple(range(12, 24)), ("preferred", (1,), (1,))]
    assert (placement.cpus, placement.numa_nodes, placement.memory_policy) == ("12-13", (1,), "preferred:1")
    assert placement.problems == ("The kernel refused something.",)
