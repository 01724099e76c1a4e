"""Drivers in trouble: slow, lost GPUs, memory errors, MIG that changes, vGPU, the wrong library or none.

The launcher reads a stand-in for ``libnvidia-ml.so.1`` (``tests/standins/nvml``), and GPUs in ``/sys/bus/pci``, both of
which are laid over the root folder of a node for each fault; CPUs and NUMA nodes are those of this host. ``nvidia-smi``
is a script that takes two seconds. The Python of jobs has no pynvml, except in the main job.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.demo.slurm_cluster import (
    ClusterDescription,
    SimulatedNode,
    SimulatedPartition,
    mig_devices,
    whole_gpus,
)
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology
from tests.fixtures.hubs import COMMAND, offer, start_hub
from tests.fixtures.slurm import ChangedSlurm, needs_layers
from tests.hub.servers import start
from tests.hub.visitor import Visitor
from tests.nightly.sites.main_job import CONFIG, MainJob, Site, profiles
from tests.node.test_sysfs import Tree
from tests.standins import c_library, nvml
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

BUS_IDS = ("0000:07:00.0", "0000:0f:00.0", "0000:47:00.0", "0000:4e:00.0")
GPUS = tuple(
    Gpu(n, f"GPU-{n}", bus_id, "NVIDIA A100-SXM4-80GB", 81920, minor=n, pcie_generation=4)
    for n, bus_id in enumerate(BUS_IDS)
)
VGPUS = tuple(replace(gpu, name="GRID A100-20C", memory_mib=20480, minor=None, pcie_generation=None) for gpu in GPUS)
SLICES = tuple(
    replace(GPUS[0], uuid=f"MIG-{n}", name="NVIDIA A100-SXM4-80GB MIG 1g.10gb", mig="1g.10gb", memory_mib=9728)
    for n in range(4)
)
NO_VGPU = ("TopologyCommonAncestor", "NvLinkState", "MigMode", "MaxMigDeviceCount", "RemappedRows", "PowerUsage")
"""Functions that a vGPU does not support."""


def machine(gpus: tuple[Gpu, ...], *lines: str) -> str:
    """The stand-in's text for these GPUs, of which each has four NVLinks to each other one, or which are of one GPU."""
    word = "PIX" if gpus[0].mig else "NV4"
    links = tuple(tuple("X" if a is b else word for b in gpus) for a in gpus)
    return "\n".join([nvml.describe(NodeTopology(gpus=gpus, links=links, driver="550.54.15")), *lines, ""])


def fails(code: int, gpu: int, *functions: str) -> list[str]:
    """Lines with which these functions of a device fail."""
    return [f"fail nvmlDeviceGet{function} {code} {gpu}" for function in functions]


@dataclass(frozen=True)
class Fault:
    """What NVML says on a node, and what people read."""

    machine: str | None
    """The stand-in's text; None: the node has no library."""
    card: tuple[str, ...] = ()
    """The warnings on the card of the server."""
    use: str = ""
    """Why the use of its GPUs is unknown."""
    health: Mapping[str, tuple[int, ...]] | None = None
    """What the section *Health* and ``gpuspawner fleet`` say, and of which GPUs."""
    check: tuple[str, ...] = ()
    """The warnings of ``gpuspawner check --submit``, where they are not those of the card."""
    gpus: int = 2
    """How many the server on this node asks for; it gets the first ones."""


WORN = "A row of its memory is remapped once it is reset."
RETIRED = "A page of its memory is retired once it is reset."
LOST = "GPU 0 does not respond: GPU is lost."
OF_LOST = (
    LOST,
    "GPU 0 was granted but does not respond; it is not used.",
    "The profile promises 2 GPUs; only 1 available.",
)
TIMED_OUT = "Reading the hardware timed out after 3 s while asking NVML."
MISMATCH = "nvmlInit_v2 failed: Driver/library version mismatch"
NO_LIBRARY = "libnvidia-ml.so.1: cannot open shared object file: No such file or directory"
ALL = (0, 1, 2, 3)
FAULTS = {
    "well": Fault(machine(GPUS)),
    "lazy": Fault(  # no persistence daemon: the driver starts anew for each program
        machine(GPUS, "wait nvmlInitWithFlags 8"),
        (TIMED_OUT,),
    ),
    "lost": Fault(
        machine(GPUS, *fails(15, 0, "HandleByIndex_v2", "HandleByUUID")),
        OF_LOST,
        health={"GPU is lost": (0,)},
        check=(LOST,),
    ),
    "dying": Fault(
        machine(
            GPUS, *fails(15, 0, "UUID", "Name", "PciInfo_v3", "MemoryInfo", "MemoryInfo_v2", "HandleByPciBusId_v2")
        ),
        (LOST,),
        "The use of GPU 0 is unknown: nvmlDeviceGetHandleByPciBusId failed: GPU is lost.",
        health={"GPU is lost": (0,)},
        gpus=1,
    ),
    "worn": Fault(
        machine(GPUS, "errors 0 1 0 0", "errors 1 0 0 1", "errors 2 1 1 0", "errors 3 0 0 0"),
        (f"GPU 0: {WORN}", f"GPU 1: {RETIRED}"),
        health={WORN: (0,), RETIRED: (1,), "A row of its memory could not be remapped.": (2,)},
        check=(f"GPU 0: {WORN}", f"GPU 1: {RETIRED}", "GPU 2: A row of its memory could not be remapped."),
    ),
    "mig": Fault(machine(SLICES), use="The use of GPU 0 is unknown: nvmlDeviceGetHandleByUUID failed: Not Found."),
    "pending": Fault(
        machine(GPUS, "pending 0 1"),
        ("GPU 0: MIG is switched on once it is reset.",),
        health={"MIG is switched on once it is reset.": (0,)},
    ),
    "vgpu": Fault(machine(VGPUS, *fails(3, -1, *NO_VGPU))),
    "mismatch": Fault(
        machine(GPUS, "fail nvmlInitWithFlags 18 -1"),
        (f"NVML is not available: {MISMATCH}",),
        use=f"The use of the GPUs is unknown: {MISMATCH}.",
        health={"NVML is not available": ALL},
    ),
    "nolib": Fault(
        None,
        (f"NVML is not available: {NO_LIBRARY}",),
        use=f"The use of the GPUs is unknown: {NO_LIBRARY}.",
        health={"NVML is not available": ALL},
    ),
}
"""By the name of the node, of its partition and of its user."""
A100S = (whole_gpus("a100", range(4), cores="0-1"),)
OTHER_GPUS = {"mig": (mig_devices("1g.10gb", 0, (21, 30, 39, 48), cores="0-1"),)}
CLUSTER = ClusterDescription(
    nodes=tuple(
        SimulatedNode(name, "", sockets=1, cores_per_socket=2, memory_mib=64000, gpus=OTHER_GPUS.get(name, A100S))
        for name in FAULTS
    ),
    partitions=tuple(SimulatedPartition(name, (name,)) for name in FAULTS),
)
SETTINGS = """
c.GPUSlurmSpawner.topology_file = ""
c.GPUSlurmSpawner.usage_interval = 15
"""
ONE = "- {{display_name: On {name}, slug: {name}, command: {command}, slurm: {slurm}}}\n"
SLURM = "{{partition: {name}, gpus: {gpus}, gpu_type: {type}, cpus: 1, memory: 600M, time: '0:10:00'}}"


def layers(fault: Fault, folder: Path, library: Path) -> Path:
    """What is laid over the root folder of the node."""
    tree = Tree(folder)
    for bus_id in BUS_IDS:
        tree.pci(bus_id, numa=0)
        tree.width(bus_id, 16, 16)
    if fault.machine is not None:
        tree.write("etc/nvml-standin", fault.machine)
        libraries = folder / "usr/lib" / (sysconfig.get_config_var("MULTIARCH") or "")
        libraries.mkdir(parents=True)
        shutil.copy(library, libraries)
    tree.write("usr/bin/nvidia-smi", "#!/bin/sh\nsleep 2")
    (folder / "usr/bin/nvidia-smi").chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def nodes(site_folder: Path) -> Mapping[str, Path]:
    """The folder that is laid over each node."""
    if c_library.compiler() is None:
        pytest.skip("there is no C compiler")
    needs_layers(site_folder / "attempt")
    (site_folder / "library").mkdir()
    library = nvml.build(site_folder / "library") / "libnvidia-ml.so.1"
    return {name: layers(fault, site_folder / name, library) for name, fault in FAULTS.items()}


@pytest.fixture(scope="module")
def site(
    needs_slurm: None, nodes: Mapping[str, Path], site_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """A cluster of these nodes."""
    with ExitStack() as stack:
        slurm = stack.enter_context(ChangedSlurm(CLUSTER, site_folder / "slurm", lambda text: text, over=nodes))
        fields = "partition: well, gpus: 2, gpu_type: a100, cpus: 1"
        main = profiles(slurm=fields).replace(
            "slug: main,", f"slug: main, environment: {{variables: {{GPUSPAWNER_PYTHON: {sys.executable}}}}},"
        )
        hub = start_hub(stack, slurm, tmp_path_factory.mktemp("hub"), lines=CONFIG + SETTINGS, profiles=main)
        yield Site(hub, slurm, partition="well")


class TestMainJob(MainJob):
    """The main job, on a node whose driver is well."""


@pytest.fixture(scope="module")
def visitors(site: Site, nodes: Mapping[str, Path]) -> Mapping[str, Visitor]:
    """A user on each node, whose server runs; then the MIG devices are made anew."""
    types = {name: "1g.10gb" if name == "mig" else "a100" for name in FAULTS}
    slurm = {name: SLURM.format(name=name, type=types[name], gpus=FAULTS[name].gpus) for name in FAULTS}
    offer(site.hub, "others", "".join(ONE.format(name=name, command=COMMAND, slurm=slurm[name]) for name in FAULTS))
    visitors = {name: Visitor(site.hub, name) for name in FAULTS}
    for name in FAULTS:
        start(site.hub, name, name)
    for name in FAULTS:
        site.hub.wait(name, ready=True, timeout=120)
    text = (FAULTS["mig"].machine or "").replace("MIG-", "MIG-new-")
    (nodes["mig"] / "etc/nvml-standin").write_text(text)
    return visitors


@pytest.mark.parametrize("name", FAULTS)
def test_a_server_starts_and_its_card_says_what_is_wrong(
    site: Site, visitors: Mapping[str, Visitor], name: str
) -> None:
    """Also of the use of its GPUs, once it has been measured."""
    placement = site.hub.api("GET", f"/gpuspawner/placement/{name}").json()

    def card() -> str:
        return visitors[name].look("/hub/home").text

    wait_until(lambda: "Measured" in card() and FAULTS[name].use in card(), card, seconds=90)
    why = [sentence for sentence in card().split(". ") if sentence.startswith(("The use of", "Measured"))]
    assert (tuple(placement["problems"]), "is unknown" in " ".join(why)) == (FAULTS[name].card, bool(FAULTS[name].use))


@pytest.mark.usefixtures("visitors")
def test_the_admin_reads_which_gpus_of_which_node_are_ill(site: Site) -> None:
    """In the section Health, and by `gpuspawner fleet`."""
    expected = {name: dict(fault.health or {}) for name, fault in FAULTS.items()}
    program = Path(sys.executable).with_name("gpuspawner")
    command = [str(program), "fleet", "--json", "--config", str(site.hub.write_configuration())]
    answer = subprocess.run(command, cwd=site.hub.folder, capture_output=True, text=True, check=True, timeout=60)
    differences = {
        node["node"]: {
            difference["seen"]: tuple(BUS_IDS.index(subject) for subject in difference["subjects"])
            for difference in node["differences"]
        }
        for node in json.loads(answer.stdout)["nodes"]
    }
    page = Visitor(site.hub, "admin").look("/hub/gpuspawner/cluster").soup.text
    assert differences == expected
    assert [text for of_node in expected.values() for text in of_node if text.rstrip(".") not in page] == []


@pytest.mark.usefixtures("visitors")
def test_check_names_every_ill_gpu_of_the_node_that_it_looks_at(site: Site) -> None:
    """Whichever GPU its own job gets there."""
    findings: dict[str, list[str]] = defaultdict(list)
    for finding in site.check("--submit", "--user", "well"):
        if finding["code"] == "job-placed" and finding["severity"] == "warning":
            findings[finding["where"].removeprefix("node ")].append(finding["text"].removeprefix("the launcher says: "))
    expected = {name: sorted(fault.check or fault.card) for name, fault in FAULTS.items() if fault.check or fault.card}
    assert {name: sorted(texts) for name, texts in findings.items()} == expected
