"""NVML: every machine as it is, as pynvml reads it, every call failing in every way."""

from __future__ import annotations

from ctypes import c_uint
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import jupyterhub_gpuspawner
from jupyterhub_gpuspawner.cli import nvidia_smi_matrix
from jupyterhub_gpuspawner.cli.topology import decoded
from jupyterhub_gpuspawner.node.nvml import HANDLE, Nvml
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology, load
from tests.standins.nvml import describe

if TYPE_CHECKING:
    from tests.node.conftest import AskNvml, StandinNvml

MACHINES = Path(jupyterhub_gpuspawner.__file__).parent / "demo" / "machines"
DATA = Path(__file__).parents[1] / "data"
TEXTS, NVML = DATA / "topo-m", DATA / "nvml"
NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, FUNCTION_NOT_FOUND, LOST, UNKNOWN = 3, 4, 6, 13, 15, 999
WORDS = {NO_PERMISSION: "Insufficient Permissions", LOST: "GPU is lost", UNKNOWN: "Unknown Error"}
FACTS: dict[str, dict[str, Any]] = {
    "nvmlDeviceGetUUID": {"uuid": ""},
    "nvmlDeviceGetName": {"name": ""},
    "nvmlDeviceGetMemoryInfo": {"memory_mib": None},
    "nvmlDeviceGetMemoryAffinity": {"numa_node": None, "numa_affinity": ()},
    "nvmlDeviceGetCpuAffinity": {"cpus": ()},
    "nvmlDeviceGetMinorNumber": {"minor": None},
    "nvmlDeviceGetMaxPcieLinkGeneration": {"pcie_generation": None},
    "nvmlDeviceGetNvLinkVersion": {"nvlink_generation": None},
    "nvmlDeviceGetMigMode": {},
}
CALLS = (
    *FACTS,
    "nvmlSystemGetDriverVersion",
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetNumaNodeId",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetNvLinkState",
    "nvmlDeviceGetNvLinkRemotePciInfo_v2",
    "nvmlDeviceGetNvLinkRemoteDeviceType",
    "nvmlDeviceGetTopologyCommonAncestor",
)


def usable_texts() -> list[str]:
    """Recorded matrices with two GPUs or more whose every link is known."""
    names = []
    for path in sorted(TEXTS.glob("*.txt")):
        try:
            topology = nvidia_smi_matrix.parse(decoded(path.read_bytes()))
        except nvidia_smi_matrix.TopoTextError:
            continue
        words = {word for row in topology.links for word in row}
        if len(topology.gpus) > 1 and "?" not in words:
            names.append(path.name)
    return names


@pytest.mark.parametrize("name", ["k80-2socket", "dgx1"])
def test_a_machine_is_read_as_it_is(ask_nvml: AskNvml, name: str) -> None:
    """GPUs, links, memory, NUMA nodes and NVLink generation of a described machine come back equal."""
    machine = load(str(MACHINES / f"{name}.json"))
    nodes = tuple(node.id for node in machine.numa_nodes)

    [read] = ask_nvml(describe(machine), nodes=nodes)

    expected = tuple(
        replace(gpu, numa_affinity=() if gpu.numa_node is None else (gpu.numa_node,)) for gpu in machine.gpus
    )
    assert expected == read.gpus
    assert machine.links == read.links
    assert (machine.driver or "0", "nvml", ()) == (read.driver, read.source, read.problems)


def test_mig_devices_stand_in_the_place_of_their_gpu(ask_nvml: AskNvml) -> None:
    """Each MIG device is reported by UUID and profile; empty slots are skipped."""
    machine = load(str(MACHINES / "a100-mig.json"))

    [read] = ask_nvml(describe(machine), nodes=tuple(node.id for node in machine.numa_nodes))

    def facts(topology: NodeTopology) -> list[tuple[int, str, str | None, int | None, int | None]]:
        return [(gpu.index, gpu.uuid, gpu.mig, gpu.memory_mib, gpu.numa_node) for gpu in topology.gpus]

    assert any(gpu.mig for gpu in machine.gpus)
    assert facts(machine) == facts(read)
    assert machine.links == read.links
    assert read.problems == ()


def test_with_mig_the_memory_of_the_whole_gpu_need_not_be_known(ask_nvml: AskNvml) -> None:
    """NVML refuses it to a process that may not see the whole GPU; each device's own is known."""
    machine = load(str(MACHINES / "a100-mig.json"))
    parents = {gpu.index for gpu in machine.gpus if gpu.mig}

    [read] = ask_nvml(describe(machine) + "".join(f"guarded {index}\n" for index in parents))

    assert [gpu.memory_mib for gpu in read.gpus] == [gpu.memory_mib for gpu in machine.gpus]
    assert read.problems == ()


def test_mig_without_any_device_is_a_gpu_that_nothing_runs_on(ask_nvml: AskNvml) -> None:
    """A GPU with MIG enabled but no MIG device is reported as the whole GPU, with a problem."""
    gpu = Gpu(0, "GPU-0", "0000:07:00.0", "A100", 40960)

    [read] = ask_nvml(describe(NodeTopology(gpus=(gpu,))) + "mig 0 7\n")

    assert [gpu.uuid for gpu in read.gpus] == ["GPU-0"]
    assert read.problems == ("GPU 0 has MIG enabled but no MIG device, so nothing can run on it.",)


def test_links_to_switches_count_for_every_pair(ask_nvml: AskNvml) -> None:
    """GPUs on NVSwitches are connected by as many links as the GPU with fewer links has."""
    word = {2: "NV6", 1: "NV12"}
    gpus = tuple(Gpu(n, f"GPU-{n}", f"0000:{n:02x}:00.0", "A100", 40960, nvlink_generation=3) for n in range(3))
    links = tuple(tuple("X" if a == b else "NV12" for b in range(3)) for a in range(3))
    text = describe(NodeTopology(gpus=gpus, links=links))
    half_down = "".join(line for line in text.splitlines(keepends=True) if not _is_link(line, gpu=2, above=5))

    [read] = ask_nvml(half_down)

    assert read.links == (("X", word[1], word[2]), (word[1], "X", word[2]), (word[2], word[2], "X"))


def _is_link(line: str, *, gpu: int, above: int) -> bool:
    words = line.split()
    return words[0] == "nvlink" and int(words[1]) == gpu and int(words[2]) > above


def test_links_to_nowhere_are_the_admins_business_and_the_pci_level_counts(ask_nvml: AskNvml) -> None:
    """In a virtual machine, the far end of an NVLink may have an unknown bus id; that is no problem of a server's."""
    gpus = tuple(Gpu(n, f"GPU-{n}", f"0000:{n:02x}:00.0", "V100", 16384) for n in range(2))
    text = describe(NodeTopology(gpus=gpus, links=(("X", "SYS"), ("SYS", "X"))))

    [read] = ask_nvml(text + "nvlink 0 0 0 2 00000000:99:00.0\nnvlink 1 0 255 2 00000000:99:00.0\n")

    assert read.links == (("X", "SYS"), ("SYS", "X"))
    assert read.problems == ()
    assert read.notes == tuple(
        f"GPU {index} has 1 active NVLinks to a device that cannot be identified." for index in range(2)
    )


HIDDEN_SWITCH = "The driver does not say where the NVLinks lead; NVSwitches are assumed."
FAR_ENDS = {
    "no bus id": ("255 6 FFFFFFFF:FF:FF.0", "", {"NV18"}, (HIDDEN_SWITCH,)),
    "no bus id, by NCCL's reading of it": ("0 6 FFFFFFF:FFFF:FF.0", "", {"NV18"}, (HIDDEN_SWITCH,)),
    "a device that is not there": ("255 6 00000000:C1:00.0", "", {"NV18"}, (HIDDEN_SWITCH,)),
    "no answer": (
        "255 6 FFFFFFFF:FF:FF.0",
        "fail nvmlDeviceGetNvLinkRemotePciInfo_v2 3 -1\nfail nvmlDeviceGetNvLinkRemoteDeviceType 3 -1\n",
        {"NV18"},
        (HIDDEN_SWITCH,),
    ),
    "a switch": ("2 6 FFFFFFFF:FF:FF.0", "", {"NV18"}, ()),
    "GPUs of another virtual machine": (
        "0 6 00000000:C1:00.0",
        "",
        {"PHB"},
        tuple(f"GPU {index} has 18 active NVLinks to a device that cannot be identified." for index in range(8)),
    ),
    "processors": ("1 6 00000000:C1:00.0", "", {"PHB"}, ()),
}


@pytest.mark.parametrize(("far", "lines", "words", "notes"), FAR_ENDS.values(), ids=FAR_ENDS.keys())
def test_nvlinks_whose_far_ends_a_virtual_machine_hides_lead_to_switches(
    ask_nvml: AskNvml, far: str, lines: str, words: set[str], notes: tuple[str, ...]
) -> None:
    """As NCCL assumes, where no GPU's links lead to anything that is known; the node's admin reads it in a note."""
    text = (NVML / "vm-hidden-nvswitches.txt").read_text().replace("255 6 FFFFFFFF:FF:FF.0", far)

    [read] = ask_nvml(text + lines)

    assert ({word for row in read.links for word in row} - {"X"}, read.notes, read.problems) == (words, notes, ())


def test_a_gpu_of_a_virtual_machine_whose_nvlinks_are_down_is_behind_the_host(ask_nvml: AskNvml) -> None:
    """The others are on the hidden switches."""
    text = (NVML / "vm-hidden-nvswitches.txt").read_text()

    [read] = ask_nvml("".join(line for line in text.splitlines(keepends=True) if not line.startswith("nvlink 2 ")))

    assert [row[2] for row in read.links] == ["PHB", "PHB", "X", *["PHB"] * 5]
    assert {read.link(a, b) for a in range(8) for b in range(a) if 2 not in (a, b)} == {"NV18"}


def test_gpus_without_peer_access_reach_each_other_through_the_host(ask_nvml: AskNvml) -> None:
    """The driver says so for most GeForce and RTX cards; a bridge or a longer path is what it is."""
    gpus = tuple(Gpu(n, f"GPU-{n}", f"0000:{n:02x}:00.0", "RTX", 24576, nvlink_generation=3) for n in range(4))
    links = (("X", "PIX", "PXB", "NODE"), ("PIX", "X", "NV4", "SYS"), ("PXB", "NV4", "X", "PIX"),
             ("NODE", "SYS", "PIX", "X"))  # fmt: skip
    text = describe(NodeTopology(gpus=gpus, links=links))
    peers = {(0, 1): 2, (0, 2): 5, (0, 3): 1, (1, 3): 4, (2, 3): 6}

    whole, read = ask_nvml(text, text + "".join(f"peer {a} {b} {status}\n" for (a, b), status in peers.items()))

    assert (whole.links, whole.notes) == (links, ())
    assert read.links == (("X", "PHB", "PHB", "NODE"), ("PHB", "X", "NV4", "SYS"), ("PHB", "NV4", "X", "PIX"),
                          ("NODE", "SYS", "PIX", "X"))  # fmt: skip
    assert read.notes == ("GPUs 0-2 have no peer access by their switch, which counts as PHB.",)


@pytest.mark.parametrize(("word", "between"), [("NV12", "SYS"), ("PIX", "PHB"), ("PXB", "PHB"), ("NODE", "NODE")])
def test_mig_devices_have_no_nvlinks_and_no_peer_access(ask_nvml: AskNvml, word: str, between: str) -> None:
    """Two slices reach each other through the host, on one GPU as on two, and on a GPU in slices and a whole one."""
    gpus = tuple(Gpu(n, f"GPU-{n}", f"0000:{n:02x}:00.0", "A100", 40960, nvlink_generation=3) for n in range(3))
    links = tuple(tuple("X" if a == b else word for b in range(3)) for a in range(3))
    parts = "".join(
        f"mig {n} 7\n" + "".join(f"part {n} {place} MIG-{n}{place} 4864 A100_MIG_1g.5gb\n" for place in (0, 1))
        for n in (0, 1)
    )

    [read] = ask_nvml(describe(NodeTopology(gpus=gpus, links=links)) + parts)

    assert [gpu.mig for gpu in read.gpus] == ["1g.5gb"] * 4 + [None]
    assert read.links[0] == ("X", "PHB", between, between, between)
    assert read.links[4] == (between, between, between, between, "X")


def test_a_gpu_that_a_device_cgroup_hides_is_known_to_the_kernel(ask_nvml: AskNvml) -> None:
    """A job with one of four linked GPUs: NVML lists this GPU alone, and its NVLinks go to GPUs that sysfs lists."""
    gpu = Gpu(0, "GPU-0", "0000:01:00.0", "A100", 40960, nvlink_generation=3)
    hidden = tuple(f"0000:0{number}:00.0" for number in (2, 3, 4))
    links = "".join(f"nvlink 0 {link} 0 5 00000000:0{2 + link % 3}:00.0\n" for link in range(12))

    [read] = ask_nvml(describe(NodeTopology(gpus=(gpu,))) + links, devices=(gpu.pci, *hidden))

    assert [device.uuid for device in read.gpus] == ["GPU-0"]
    assert (read.problems, read.notes) == ((), ())


def recorded(name: str) -> NodeTopology:
    """The machine of a recorded text, with what that does not say made up."""
    topology = nvidia_smi_matrix.parse(decoded((TEXTS / name).read_bytes()))
    gpus = tuple(
        replace(gpu, uuid=f"GPU-{gpu.index}", pci=f"0000:{n:02x}:00.0", name="g", memory_mib=1)
        for n, gpu in enumerate(topology.gpus)
    )
    return replace(topology, gpus=gpus)


@pytest.fixture(scope="module")
def matrices(ask_nvml: AskNvml) -> dict[str, NodeTopology]:
    names = usable_texts()
    return dict(zip(names, ask_nvml(*(describe(recorded(name)) for name in names)), strict=True))


@pytest.mark.parametrize("name", usable_texts())
def test_a_recorded_matrix_comes_back_equal(matrices: dict[str, NodeTopology], name: str) -> None:
    """Text of ``nvidia-smi topo -m`` -> stand-in -> NVML -> the same matrix; SOC is today's SYS."""
    links = tuple(tuple(word.replace("SOC", "SYS") for word in row) for row in recorded(name).links)

    assert matrices[name].links == links


@pytest.mark.parametrize("code", [NOT_SUPPORTED, NOT_FOUND, FUNCTION_NOT_FOUND, NO_PERMISSION, UNKNOWN])
def test_a_call_that_fails_for_a_gpu_costs_one_fact_of_that_gpu(ask_nvml: AskNvml, code: int) -> None:
    """Whatever GPU 3 does not answer, the rest is complete; "not supported" and "not found" are answers."""
    machine = load(str(MACHINES / "dgx1.json"))
    text = describe(machine)

    [whole, *answers] = ask_nvml(text, *(f"{text}fail {call} {code} 3\n" for call in FACTS))

    for (call, lost), read in zip(FACTS.items(), answers, strict=True):
        expected = tuple(replace(gpu, **lost) if gpu.index == 3 else gpu for gpu in whole.gpus)
        problems = (f"{call.partition('_v')[0]} failed on GPU 3: {WORDS[code]}.",) if code in WORDS else ()
        assert (call, expected, whole.links, problems) == (call, read.gpus, read.links, read.problems)


def test_a_gpu_that_any_call_finds_lost_is_reported_once(ask_nvml: AskNvml) -> None:
    """It keeps the facts that are known; the links of the others are."""
    text = describe(load(str(MACHINES / "dgx1.json")))

    [whole, *answers] = ask_nvml(text, *(f"{text}fail {call} {LOST} 3\n" for call in FACTS))

    for (call, unknown), read in zip(FACTS.items(), answers, strict=True):
        facts = {"nvlink_generation": None, **unknown}
        lost = replace(whole.gpus[3], fault="GPU is lost", **facts)
        assert (call, read.gpus) == (call, (*whole.gpus[:3], lost, *whole.gpus[4:]))
        assert (call, read.problems) == (call, ("GPU 3 does not respond: GPU is lost.",))
        assert [row[:3] for row in read.links[:3]] == [row[:3] for row in whole.links[:3]]


FAULTS = {
    "errors 0 1 0 0": "A row of its memory is remapped once it is reset.",
    "errors 0 2 0 0": "A row of its memory is remapped once it is reset.",
    "errors 0 0 0 1": "A page of its memory is retired once it is reset.",
    "errors 0 1 1 0": "A row of its memory could not be remapped.",
    "errors 0 0 0 0": "",
    "pending 0 1": "MIG is switched on once it is reset.",
}


def test_what_the_nodes_admin_should_know_of_a_gpu_is_its_fault(ask_nvml: AskNvml) -> None:
    """Nothing of it is a problem of the reading."""
    text = describe(load(str(MACHINES / "k80-2socket.json")))

    read = ask_nvml(*(f"{text}{line}\n" for line in FAULTS))

    assert [[gpu.fault for gpu in node.gpus] for node in read] == [[fault, "", "", ""] for fault in FAULTS.values()]
    assert {node.problems for node in read} == {()}


@pytest.mark.parametrize(
    "call",
    [
        "nvmlDeviceGetNvLinkState",
        "nvmlDeviceGetNvLinkRemotePciInfo_v2",
        "nvmlDeviceGetNvLinkRemoteDeviceType",
        "nvmlDeviceGetTopologyCommonAncestor",
    ],
)
def test_one_end_of_a_link_is_enough(ask_nvml: AskNvml, call: str) -> None:
    """A link that one GPU reports counts, even if the other GPU cannot report it."""
    links = (("X", "NV1"), ("NV1", "X"))
    gpus = tuple(Gpu(n, f"GPU-{n}", f"0000:{n:02x}:00.0", "V100", 16384) for n in range(2))
    text = describe(NodeTopology(gpus=gpus, links=links))

    [read] = ask_nvml(f"{text}fail {call} {UNKNOWN} 1\n")

    assert links == read.links


@pytest.mark.parametrize("code", [NO_PERMISSION, LOST, UNKNOWN])
def test_an_unknown_distance_is_no_guess(ask_nvml: AskNvml, code: int) -> None:
    """If NVML does not say how two GPUs are connected, the link word is ``?``."""
    text = describe(load(str(MACHINES / "k80-2socket.json")))

    [read] = ask_nvml(f"{text}fail nvmlDeviceGetTopologyCommonAncestor {code} 1\n")

    assert [row[1] for row in read.links] == ["?", "X", "SYS", "SYS"]
    assert read.problems == (f"nvmlDeviceGetTopologyCommonAncestor failed on GPU 1: {WORDS[code]}.",)


@pytest.mark.parametrize("code", [NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, FUNCTION_NOT_FOUND, LOST, UNKNOWN])
@pytest.mark.parametrize("name", ["dgx1", "a100-mig"])
def test_no_failure_of_a_call_for_all_gpus_is_an_exception(ask_nvml: AskNvml, name: str, code: int) -> None:
    """Whichever call fails for all GPUs, the topology has the same GPUs, as long as they can be counted."""
    text = describe(load(str(MACHINES / f"{name}.json")))

    [whole, *answers] = ask_nvml(text, *(f"{text}fail {call} {code} -1\n" for call in CALLS))

    for call, read in zip(CALLS, answers, strict=True):
        uncounted = call == "nvmlDeviceGetCount_v2" or (call, code) == ("nvmlDeviceGetHandleByIndex_v2", NO_PERMISSION)
        indices = set() if uncounted else {gpu.index for gpu in whole.gpus}
        assert (call, indices) == (call, {gpu.index for gpu in read.gpus})


def test_numbers_that_cannot_be_are_unknown(ask_nvml: AskNvml) -> None:
    """All bits set, or no generation at all."""
    lines = [
        "driver 1",
        "gpu GPU-0 00000000:07:00.0 1 2147483647 - 1 65535 0 K80",
        "gpu GPU-1 00000000:08:00.0 1 7 - 1 3 4 K80",
    ]

    [read] = ask_nvml("\n".join(lines) + "\n")

    assert [(gpu.minor, gpu.gpu_numa_id, gpu.pcie_generation) for gpu in read.gpus] == [(None, None, None), (7, 3, 4)]


def test_a_gpu_of_another_job_is_left_out_and_a_lost_one_is_kept_without_facts(ask_nvml: AskNvml) -> None:
    """NVML counts both; "no permission" means another job's GPU, "lost" means that it is broken."""
    text = describe(load(str(MACHINES / "k80-2socket.json")))

    [read] = ask_nvml(
        f"{text}fail nvmlDeviceGetHandleByIndex_v2 {NO_PERMISSION} 0\nfail nvmlDeviceGetHandleByIndex_v2 {LOST} 2\n"
    )

    assert [(gpu.index, bool(gpu.uuid)) for gpu in read.gpus] == [(1, True), (2, False), (3, True)]
    assert read.links == (("X", "?", "SYS"), ("?", "X", "?"), ("SYS", "?", "X"))
    assert read.problems == ("GPU 2 does not respond: GPU is lost.",)


@pytest.mark.parametrize(
    ("code", "reason"),
    [(9, "Driver Not Loaded"), (18, "version mismatch"), (999, "Unknown Error")],
)
def test_nvml_that_does_not_open_cannot_be_had(ask_nvml: AskNvml, code: int, reason: str) -> None:
    """A driver that is not loaded, or does not match the library, is reported in one sentence."""
    [why] = ask_nvml.answers(f"fail nvmlInitWithFlags {code} -1\n")

    assert why.rstrip(".").endswith(reason)


_OURS = """
import json, sys
from jupyterhub_gpuspawner.node.nvml import Nvml
nvml = Nvml()
device = nvml.call("nvmlDeviceGetHandleByIndex", 1)
for name in json.load(sys.stdin):
    print(json.dumps(str(nvml.ask(name, device))))
print(json.dumps([nvml.call("nvmlDeviceGetPciInfo", device).busId.decode(), nvml.memory(device).total]))
"""
_PYNVML = """
import json, sys, pynvml
pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(1)
more = {"nvmlDeviceGetCpuAffinity": (64,), "nvmlDeviceGetMemoryAffinity": (64, 0)}
for name in json.load(sys.stdin):
    try:
        value = getattr(pynvml, name)(device, *more.get(name, ()))
    except pynvml.NVMLError:
        value = None
    print(json.dumps(str(list(value) if name in more or isinstance(value, tuple) else value)))
total = pynvml.nvmlDeviceGetMemoryInfo(device, pynvml.nvmlMemory_v2).total
print(json.dumps([pynvml.nvmlDeviceGetPciInfo(device).busId, total]))
"""


def test_a_call_returns_what_pynvml_returns(standin: StandinNvml) -> None:
    """Of each function that asks a GPU for a number, a text, several numbers or a mask."""
    pytest.importorskip("pynvml")
    names = [
        name
        for name, (_, *kinds) in Nvml.functions.items()
        if kinds[0] is HANDLE and HANDLE not in kinds[1:] and c_uint not in kinds[1:] and "Info" not in name
    ]
    machine = describe(load(str(MACHINES / "dgx1.json")))

    assert standin.run(_OURS, machine, names) == standin.run(_PYNVML, machine, names)
    assert len(names) > 10
