"""Two hardware threads a core: Slurm counts threads or cores as CPUs, and a job uses both threads or one.

Nodes t1 and t2 have the same two sockets of twelve cores. To Slurm, t1 has 48 CPUs, and t2 has 24 (``CPUs=``). Jobs of
this site use one thread of each core (``--hint=nomultithread``), unless a profile says otherwise. The main job runs on
t2. The nodes' CPUs have the kernel's usual numbers: a core's second thread has that of its first, plus the number of
cores.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jupyterhub_gpuspawner.demo.slurm_cluster import (
    MACHINES,
    ClusterDescription,
    SimulatedNode,
    SimulatedPartition,
    whole_gpus,
)
from jupyterhub_gpuspawner.placement.topology import NodeTopology, load, to_document
from jupyterhub_gpuspawner.units import format_cpulist
from tests.fixtures.hubs import COMMAND, start_hub
from tests.fixtures.slurm import ChangedSlurm
from tests.hub.servers import environment
from tests.nightly.sites.main_job import CONFIG, MainJob, Site, granted, profiles
from tests.nightly.sites.promises import Filled, fill
from tests.standins.resources import resolved

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

CORES = 24
T1 = SimulatedNode(
    "t1",
    machine="with-two-threads",
    sockets=2,
    cores_per_socket=CORES // 2,
    memory_mib=64000,
    gpus=(whole_gpus("k80", range(2), cores="0-11"), whole_gpus("k80", range(2, 4), cores="12-23")),
    threads=2,
)
CLUSTER = ClusterDescription(
    (T1, replace(T1, name="t2")),
    (SimulatedPartition("threads", ("t1",), default=True), SimulatedPartition("cores", ("t2",))),
    name="threads",
)
ONE_THREAD = "c.GPUSlurmSpawner.req_options = '--hint=nomultithread'"
OTHERS = f"""
- {{display_name: One thread of four cores, slug: one, command: {COMMAND},
   slurm: {{partition: threads, gpus: 1, gpu_type: k80, cpus: 4, memory: 600M, time: "0:10:00"}}}}
- {{display_name: Three threads, slug: three, command: {COMMAND},
   slurm: {{partition: threads, gpus: 1, gpu_type: k80, cpus: 3, memory: 600M, time: "0:10:00", extra: null}}}}
- {{display_name: Three cores, slug: cores, command: {COMMAND},
   slurm: {{partition: cores, gpus: 1, gpu_type: k80, cpus: 3, memory: 600M, time: "0:10:00", extra: null}}}}
- {{display_name: Two cores of a whole node, slug: whole, command: {COMMAND},
   slurm: {{partition: cores, exclusive: true, gpus: 1, gpu_type: k80, cpus: 2, memory: 600M, time: "0:10:00"}}}}
"""


def change(text: str) -> str:
    """Count the cores of t2 as its CPUs."""
    return "\n".join(f"{line} CPUs={CORES}" if line.startswith("NodeName=t2") else line for line in text.splitlines())


def one_task_per_core(text: str) -> str:
    """The same, where no two tasks share a core unless a job asks for it."""
    return change(text).replace("CR_Core_Memory", "CR_Core_Memory,CR_ONE_TASK_PER_CORE")


def with_two_threads(node: NodeTopology) -> NodeTopology:
    """The same node with a second thread of each core."""

    def both(cpus: tuple[int, ...]) -> tuple[int, ...]:
        return (*cpus, *(cpu + CORES for cpu in cpus))

    return replace(
        node,
        gpus=tuple(replace(gpu, cpus=both(gpu.cpus)) for gpu in node.gpus),
        numa_nodes=tuple(replace(numa_node, cpus=both(numa_node.cpus)) for numa_node in node.numa_nodes),
        siblings=tuple(both(core) for core in node.siblings),
        packages=tuple(both(package) for package in node.packages),
    )


def kernel_numbers(slurms: str) -> str:
    """The kernel's numbers of CPUs of such a node, by Slurm's: core by core, the two threads beside each other."""
    numbers = [int(end) for part in slurms.split(",") for end in part.split("-")]
    pairs = [(numbers[at], numbers[at + 1]) for at in range(0, len(numbers), 2)]
    return format_cpulist(
        number // 2 + number % 2 * CORES for first, last in pairs for number in range(first, last + 1)
    )


@pytest.fixture(scope="module")
def site(needs_slurm: None, public_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Both nodes, and profiles for both."""
    with ExitStack() as stack:
        slurm = stack.enter_context(ChangedSlurm(CLUSTER, public_folder / "threads", change))
        document = json.dumps(to_document(with_two_threads(load(str(MACHINES / "k80-2socket.json")))))
        for node in CLUSTER.nodes:
            (slurm.folder / "topology" / f"{node.name}.json").write_text(document)
        main = profiles(slurm="partition: cores, gpus: 2, gpu_type: k80, cpus: 4")
        folder = tmp_path_factory.mktemp("hub")
        hub = start_hub(stack, slurm, folder, lines=f"{CONFIG}\n{ONE_THREAD}", profiles=main)
        yield Site(hub, slurm, partition="cores", numbers=kernel_numbers)


class TestMainJob(MainJob):
    """The main job on the node whose CPUs are cores."""


@pytest.fixture(scope="module")
def others(site: Site) -> None:
    """Have the hub offer the other profiles, too."""
    (site.hub.folder / "profiles" / "others.yaml").write_text(OTHERS)


@pytest.mark.usefixtures("others")
@pytest.mark.parametrize(
    ("profile", "slurms", "cpus", "cores"),
    [
        ("one", "0-7", "0-3,24-27", "4"),
        ("three", "0-3", "0-1,24-25", "2"),
        ("cores", "0-5", "0-2,24-26", "3"),
        ("whole", "0-47", "0-11,24-35", "12"),
    ],
)
def test_a_server_has_both_threads_of_the_cores_that_it_gets(
    site: Site, profile: str, slurms: str, cpus: str, cores: str
) -> None:
    """As many cores as CPUs, or half as many, as Slurm counts; of a whole node those of its GPU's socket."""
    job = str(site.hub.spawn("eve", {"profile": profile})["job_id"])
    try:
        placement = site.hub.api("GET", "/gpuspawner/placement/eve").json()
        assert (placement["cpus"], placement["problems"]) == (cpus, [])
        assert granted(site.slurm, job)["cpus"] == slurms
        assert environment(site.hub, "eve")["OMP_NUM_THREADS"] == cores
    finally:
        site.hub.end("eve")


@pytest.mark.usefixtures("others")
def test_the_form_says_cores_where_a_job_gets_cores(site: Site) -> None:
    """Where it uses both threads of a core, a CPU is half a core."""
    site.hub.api("POST", "/users/eve")
    words = {"main": "4 cores", "one": "4 cores", "three": "4 CPUs (2 cores)", "cores": "3 cores", "whole": "24 cores"}
    trials = {
        slug: site.hub.api("POST", "/gpuspawner/trial/eve", {"user_options": {"profile": slug}}).json()
        for slug in words
    }
    assert {slug: trial["gets"][1] for slug, trial in trials.items()} == words


@pytest.mark.usefixtures("others")
def test_what_if_shows_cores(site: Site) -> None:
    """Of both nodes by Slurm's numbers of cores, also where a job has one thread of each."""
    answers = {profile: what_if(site, profile, 6)["today"] for profile in ("one", "three", "main")}
    assert {profile: answer["running"] for profile, answer in answers.items()} == {"one": 4, "three": 4, "main": 2}
    assert [job["shares"][0]["cores"] for job in answers["one"]["jobs"][:2]] == [[0, 1, 2, 3], [12, 13, 14, 15]]
    assert [job["shares"][0]["cores"] for job in answers["three"]["jobs"][:2]] == [[0, 1], [12, 13]]


def what_if(site: Site, profile: str, people: int) -> dict[str, Any]:
    """What ``gpuspawner what-if`` says of so many people with a profile."""
    words = ["what-if", "--json", "--empty", "--profile", profile, "--people", str(people)]
    program = Path(sys.executable).with_name("gpuspawner")
    command = [str(program), *words, "--config", str(site.hub.write_configuration())]
    answer = subprocess.run(command, cwd=site.hub.folder, capture_output=True, text=True, check=True, timeout=170)
    document: dict[str, Any] = json.loads(answer.stdout)
    return document


REQUESTS: Mapping[str, dict[str, Any]] = {
    "GPUs": {"gpus": 1, "gpu_type": "k80", "cpus": 4},
    "an odd number": {"cpus": 3},
    "more than the half of a socket": {"cpus": 7},
    "one thread of each core": {"cpus": 5, "extra": ("--hint=nomultithread",)},
    "one thread by its other name": {"cpus": 7, "extra": ("--threads-per-core=1",)},
    "whole nodes": {"exclusive": True, "cpus": 2, "memory": 600},
}
RUN = {
    "threads": (4, 12, 6, 4, 3, 1),
    "cores": (4, 8, 3, 4, 3, 1),
}


@pytest.mark.parametrize(("partition", "run"), RUN.items())
def test_what_starts_is_what_was_promised(site: Site, partition: str, run: tuple[int, ...]) -> None:
    """The form's "starts now" for one job after the other, and the number of seats."""
    filled = {
        what: fill(site.slurm, resolved(partition, time=600, **resources)) for what, resources in REQUESTS.items()
    }
    assert filled == {what: Filled(number, number, number) for what, number in zip(REQUESTS, run, strict=True)}


@pytest.mark.parametrize(("partition", "run"), RUN.items())
def test_what_starts_is_what_was_promised_with_one_task_per_core(
    one_task: ChangedSlurm, partition: str, run: tuple[int, ...]
) -> None:
    """A server is one task, so that it is all the same (SelectTypeParameters, CR_ONE_TASK_PER_CORE)."""
    filled = {what: fill(one_task, resolved(partition, time=600, **resources)) for what, resources in REQUESTS.items()}
    assert filled == {what: Filled(number, number, number) for what, number in zip(REQUESTS, run, strict=True)}


@pytest.fixture(scope="module")
def one_task(needs_slurm: None, public_folder: Path) -> Iterator[ChangedSlurm]:
    """The same nodes with CR_ONE_TASK_PER_CORE."""
    with ChangedSlurm(CLUSTER, public_folder / "one-task", one_task_per_core) as slurm:
        yield slurm
