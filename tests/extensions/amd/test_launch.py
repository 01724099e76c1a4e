"""A launch on a node with AMD's GPUs: which ones a HIP program then opens, whatever variables Slurm has set."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.extensions.amd.carried import CARRIED
from jupyterhub_gpuspawner.extensions.amd.node.launch import OtherGpus
from jupyterhub_gpuspawner.node import nvml, placing
from jupyterhub_gpuspawner.node.grant import ControllerAnswers
from jupyterhub_gpuspawner.node.hardware import observe
from jupyterhub_gpuspawner.node.placing import Launch, NoGpus
from jupyterhub_gpuspawner.placement.topology import NodeTopology
from jupyterhub_gpuspawner.wire.documents import LaunchPlan, PlacementDocument
from tests.extensions.amd.machines import MACHINES, read, write, write_machine

CUDA, ROCR, HIP, OPENCL = "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"
PLAN = LaunchPlan(readers=(CARRIED.reader,), deadline=30)
SILENT = ControllerAnswers({}, job="", node="")
NO_FLAGS = (CUDA, ROCR, OPENCL, "ZE_AFFINITY_MASK")
"""What Slurm sets for a ``gres.conf`` without AutoDetect and Flags."""


def of_rocm(text: str | None, count: int, uuids: Sequence[str] = ()) -> list[int]:
    """The devices that a list of ROCm's or HIP's names, of ``count``: to the first entry that is not valid."""
    if text is None:
        return list(range(count))
    devices: list[int] = []
    for word in text.split(","):
        named = [
            n for n, uuid in enumerate(uuids) if word[:4].upper() == "GPU-" and uuid[4:].startswith(word[4:].lower())
        ]
        number = int(word) if word.isdigit() else named[0] if len(named) == 1 else -1
        if not 0 <= number < count or number in devices:
            break
        devices.append(number)
    return devices


def opened(environ: dict[str, str], visible: Sequence[str], uuids: Sequence[str] = ()) -> list[str]:
    """The bus ids of the GPUs that a HIP program finds, in its order."""
    first = of_rocm(environ.get(ROCR), len(visible), uuids)
    inner = environ.get(HIP) or environ.get(CUDA) or None
    return [visible[first[n]] for n in of_rocm(inner, len(first))]


def launched(
    root: Path,
    environ: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    plan: LaunchPlan = PLAN,
    kind: type[Launch] = Launch,
    slurm: ControllerAnswers = SILENT,
) -> PlacementDocument:
    """A launch on the node below this folder, all of whose CPUs the job has; changes ``environ``."""
    monkeypatch.setattr(placing, "observe", partial(observe, root=str(root)))
    monkeypatch.setattr(placing, "allowed_cpus", lambda: tuple(range(192)))
    monkeypatch.setattr(placing, "bind_cpus", lambda cpus: (tuple(cpus), ()))
    monkeypatch.setattr(placing, "bind_memory", lambda *_: ("none", ()))
    return kind(plan, environ, slurm=slurm).place()[0]


def job(gpus: str, **variables: str) -> dict[str, str]:
    """A job's environment, in which Slurm has granted these GPUs."""
    count = str(len(gpus.split(",")))
    return {"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": gpus, "SLURM_GPUS_ON_NODE": count, **variables}


@pytest.mark.parametrize("cgroup", [False, True], ids=["", "in a device cgroup"])
@pytest.mark.parametrize(
    "names",
    [(ROCR,), (ROCR, OPENCL), NO_FLAGS, (ROCR, HIP), (CUDA,), ()],
    ids=[
        "AutoDetect=rsmi",
        "amd_gpu_env,opencl_env",
        "no flags",
        "a prolog sets HIP's",
        "nvidia_gpu_env",
        "no_gpu_env",
    ],
)
@pytest.mark.parametrize(
    ("machine", "granted", "ring"),
    [
        ("Frontier", "4,5", "45"),
        ("Frontier", "0,1,2,3,4,5,6,7", None),
        ("Frontier", "0,2,6", None),
        ("Frontier", "6", "6"),
        ("8 MI300X", "2,3,6", "236"),
        ("4 MI300A", "1,3", "13"),
        ("2 MI100 with a bridge", "1", "1"),
        ("a Vega in a desktop", "0", "0"),
    ],
)
def test_a_program_opens_what_slurm_has_granted(
    machine: str,
    granted: str,
    ring: str | None,
    names: tuple[str, ...],
    cgroup: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All of it and nothing else, as the card says; no problem is said, and each list counts inside of ROCm's."""
    numbers = [int(number) for number in granted.split(",")]
    gpus = MACHINES[machine].gpus
    write_machine(tmp_path, MACHINES[machine], hidden=[n for n in range(len(gpus)) if cgroup and n not in numbers])
    visible = [pci for n, (pci, _) in enumerate(gpus) if not cgroup or n in numbers]
    slurms = ",".join(map(str, range(len(numbers)))) if cgroup else granted
    environ = job(granted, **dict.fromkeys(names, slurms))

    placement = launched(tmp_path, environ, monkeypatch)

    found = opened(environ, visible)
    assert found == [gpu.pci for gpu in placement.gpus]
    assert sorted(found) == sorted(gpus[n][0] for n in numbers)
    assert ring is None or found == [gpus[int(n)][0] for n in ring]
    assert placement.problems == ()
    assert "CUDA_DEVICE_ORDER" not in environ
    counted = ",".join(map(str, range(len(numbers))))
    assert {environ[name] for name in (CUDA, HIP, OPENCL) if name in environ} <= {counted}
    assert environ.get("ZE_AFFINITY_MASK") == (slurms if "ZE_AFFINITY_MASK" in names else None)


@pytest.mark.parametrize("names", [(ROCR,), NO_FLAGS])
def test_the_best_of_more_than_was_promised(
    names: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two halves of one package, with cores beside each."""
    write_machine(tmp_path, MACHINES["Frontier"])
    environ = job("1,2,3,6", **dict.fromkeys(names, "1,2,3,6"))

    placement = launched(tmp_path, environ, monkeypatch, LaunchPlan(gpus=2, cpus=28, readers=PLAN.readers, deadline=30))

    assert opened(environ, [pci for pci, _ in MACHINES["Frontier"].gpus]) == ["0000:c9:00.0", "0000:ce:00.0"]
    assert placement.weakest_link == "XGMI4"
    assert (
        placement.why
        == "GPUs 2 and 3: the best 2 of 4 granted; the slowest link of their ring is XGMI4 (about 200 GB/s)."
    )
    assert (placement.cpus, placement.aligned) == ("16-22,24-30,80-86,88-94", True)


def test_a_gpu_by_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ROCm writes it, in capital letters too."""
    write_machine(tmp_path, MACHINES["Frontier"])
    environ = job("1", **{ROCR: "GPU-9F5A6C0000000001"})

    placement = launched(tmp_path, environ, monkeypatch)

    assert [gpu.pci for gpu in placement.gpus] == ["0000:c6:00.0"]
    assert environ[ROCR] == "GPU-9f5a6c0000000001"


def test_a_choice_inside_the_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank of a server whose lists this launcher has written keeps that server's GPUs."""
    write_machine(tmp_path, MACHINES["Frontier"])
    environ = job("4,5,6,7", **{ROCR: "6,7,5,4", HIP: "0,1"})

    placement = launched(tmp_path, environ, monkeypatch)

    assert sorted(opened(environ, [pci for pci, _ in MACHINES["Frontier"].gpus])) == ["0000:d9:00.0", "0000:de:00.0"]
    assert len(placement.gpus) == 2


def test_rocm_s_order_is_not_that_of_the_bus_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ROCm's list says what is opened. Without one nobody knows which GPUs Slurm means, so nothing is chosen."""
    write_machine(tmp_path, MACHINES["ARCHER2"])
    named, unnamed = job("0,1", **{ROCR: "0,1"}), job("0,1")

    assert [gpu.pci for gpu in launched(tmp_path, named, monkeypatch).gpus] == ["0000:c9:00.0", "0000:87:00.0"]
    before = dict(unnamed)
    placement = launched(tmp_path, unnamed, monkeypatch)

    assert {name: unnamed.get(name) for name in (CUDA, ROCR, HIP, OPENCL)} == dict.fromkeys((CUDA, ROCR, HIP, OPENCL))
    assert unnamed.items() >= before.items()
    assert placement.problems[0].startswith("Slurm sets no ROCR_VISIBLE_DEVICES")
    assert placement.problems[1:] == ("GPU 0-1 was granted, but none can be identified on this node.",)
    whole = job("0,1,2,3")
    assert len(launched(tmp_path, whole, monkeypatch).gpus) == 4
    assert sorted(whole[ROCR].split(",")) == ["0", "1", "2", "3"]


@pytest.mark.parametrize(("kind", "plan"), [(NoGpus, PLAN), (Launch, PLAN)], ids=["the plan is lost", "no GPU granted"])
def test_a_server_without_gpus_sees_none(
    kind: type[Launch], plan: LaunchPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HIP takes an empty list of its own for none; ROCm does not."""
    write_machine(tmp_path, MACHINES["Frontier"])
    environ = {"SLURM_JOB_ID": "7"}
    slurm = ControllerAnswers(
        {}, job="JobId=7\n  Nodes=g1 CPU_IDs=0-1 Mem=1 GRES=", node="NodeName=g1\n   Gres=gpu:8\n"
    )

    launched(tmp_path, environ, monkeypatch, plan, kind, slurm)

    assert environ[ROCR] == ""
    assert opened(environ, [pci for pci, _ in MACHINES["Frontier"].gpus]) == []


def write_nvidia(root: Path) -> None:
    """An NVIDIA GPU whose driver does not answer here."""
    for name, text in {"vendor": "0x10de", "class": "0x030200", "numa_node": "0"}.items():
        write(root, f"sys/bus/pci/devices/0000:21:00.0/{name}", text)


@pytest.mark.parametrize(
    ("variables", "gpus"),
    [
        ({CUDA: "0"}, ["0000:21:00.0"]),
        ({ROCR: "1"}, ["0000:83:00.0"]),
        ({ROCR: "1", CUDA: "NoDevFiles"}, ["0000:83:00.0"]),
        ({CUDA: "0", ROCR: "1"}, ["0000:21:00.0"]),
    ],
)
def test_a_node_with_gpus_of_two_makers(
    variables: dict[str, str], gpus: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job's are those of the maker whose variable alone is set; else NVIDIA's, and ROCm's list stays."""
    write_machine(tmp_path, MACHINES["2 MI100 with a bridge"])
    write_nvidia(tmp_path)
    environ = job(next(iter(variables.values())), **variables)

    placement = launched(tmp_path, environ, monkeypatch)

    assert [gpu.pci for gpu in placement.gpus] == gpus
    assert environ.get(ROCR) == variables.get(ROCR)


@pytest.mark.parametrize("number", ["0", "1"])
def test_gpus_of_two_makers_that_slurm_counts_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: str
) -> None:
    """Number 1 of both lists is none of NVIDIA's one GPU; whose number 0 is, and which of AMD's, gres.conf knows."""
    write_machine(tmp_path, MACHINES["2 MI100 with a bridge"])
    write_nvidia(tmp_path)
    environ = job(number, **dict.fromkeys(NO_FLAGS, number))

    placement = launched(tmp_path, environ, monkeypatch)

    assert placement.problems[0] == (
        "Slurm counts this node's GPUs of NVIDIA (1) and AMD (2) together; nothing is chosen among them."
    )
    assert {name: environ[name] for name in NO_FLAGS} == dict.fromkeys(NO_FLAGS, number)


def test_nvml_that_hangs_costs_nothing_on_a_node_of_amd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An image of a site may have its library; on a node without NVIDIA's GPUs it is not asked."""
    write_machine(tmp_path, MACHINES["Frontier"])
    monkeypatch.setattr(nvml, "read", lambda *_: time.sleep(60))
    environ = job("4,5", **{ROCR: "4,5"})

    placement = launched(tmp_path, environ, monkeypatch)

    assert ([gpu.pci[5:7] for gpu in placement.gpus], placement.problems) == (["d1", "d6"], ())


def test_a_list_that_does_not_fit_has_rocm_s_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said of the job's GPUs names the variable that its reader knows."""
    write_machine(tmp_path, MACHINES["2 MI100 with a bridge"])
    environ = {"SLURM_JOB_ID": "7", ROCR: "1,2"}

    placement = launched(tmp_path, environ, monkeypatch)

    assert placement.problems == ("ROCR_VISIBLE_DEVICES is 1,2, but this job may open 2 GPUs.",)


def test_what_uses_each_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the kernel's list of all users' processes, as far as they hold memory of it, and by the memory in use."""
    write_machine(tmp_path, MACHINES["Frontier"])
    for pid, gpu, held in ((100, 0, 4096), (101, 0, 1), (102, 1, 0), (103, 7, 1 << 30)):
        write(tmp_path, f"sys/class/kfd/kfd/proc/{pid}/vram_{10000 + gpu}", held)
    for n in range(8):
        write(tmp_path, f"sys/class/kfd/kfd/topology/nodes/{4 + n}/gpu_id", 10000 + n)
    write(tmp_path, "sys/bus/pci/devices/0000:d9:00.0/mem_info_vram_used", 40 << 30)

    known = {pci[5:7]: numbers for pci, *numbers in OtherGpus({}).in_use(read(tmp_path), str(tmp_path)) or ()}

    idle = [0, 283, 65536]
    assert known == dict.fromkeys(("c6", "c9", "ce", "d1", "d6"), idle) | {
        "c1": [2, 283, 65536],
        "d9": [0, 40960, 65536],
        "de": [1, 283, 65536],
    }
    assert OtherGpus({}).in_use(NodeTopology(), str(tmp_path)) is None


def test_intel_s_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their variables stay as Slurm has set them; cores are chosen beside the GPU, and no problem is said."""
    for number, text in {0: "0-95", 1: "96-191"}.items():
        write(tmp_path, f"sys/devices/system/node/node{number}/cpulist", text)
    for n, pci in enumerate(("0000:29:00.0", "0000:3a:00.0", "0000:9a:00.0", "0000:ca:00.0")):
        for name, text in {"vendor": "0x8086", "class": "0x038000", "numa_node": str(n // 2)}.items():
            write(tmp_path, f"sys/bus/pci/devices/{pci}/{name}", text)
    write(tmp_path, "sys/bus/pci/devices/0000:00:02.0/vendor", "0x8086")  # the processor's own
    write(tmp_path, "sys/bus/pci/devices/0000:00:02.0/class", "0x030000")
    for variables in (
        {"ZE_AFFINITY_MASK": "2,3"},
        {"ZE_AFFINITY_MASK": "2.0,2.1,3.0,3.1"},
        dict.fromkeys(NO_FLAGS, "2,3"),
    ):
        environ = job("2,3", **variables)

        placement = launched(tmp_path, environ, monkeypatch, LaunchPlan(cpus=8, readers=PLAN.readers, deadline=30))

        assert {
            name: environ[name] for name in (CUDA, ROCR, OPENCL, "ZE_AFFINITY_MASK") if name in environ
        } == variables
        assert [gpu.pci for gpu in placement.gpus] == ["0000:9a:00.0", "0000:ca:00.0"]
        assert (placement.cpus, placement.problems) == ("96-103", ())
