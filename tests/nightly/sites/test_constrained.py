"""A node whose jobs cgroup v2 confines: to their GPU of four that are linked, to their cores, and to their memory.

The node is a virtual machine with Debian 12's kernel and userland (``machine.py``) and slurmd's ``cgroup/v2`` plugin
without systemd; sockets, cgroups, devices' rules and the killing for memory are real. The GPUs' driver is a stand-in,
which shows a process only the GPUs whose device files it may open, as NVML does, and names the far ends of NVLinks
also where they are hidden. There is no device behind the files. The users' home folders are on this host, by virtiofs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fixtures.hubs import offer, start_hub
from tests.hub.servers import in_the_end, state, why_it_ended
from tests.nightly.sites.machine import CGROUPS_2, Machine, needs_machine
from tests.nightly.sites.machine_node import (
    CGROUP_CONF,
    COMMAND,
    NODE,
    PACKAGES,
    SERVER,
    TOPOLOGY,
    MachineJob,
    MachineSlurm,
    hub_folder,
    hub_lines,
    memory_of_cgroup,
    server_of,
    usage,
)
from tests.nightly.sites.main_job import CONFIG, Site, answers, granted, profiles
from tests.standins import c_library
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.vm]

LINKED = replace(
    TOPOLOGY,
    gpus=tuple(replace(gpu, name="Tesla P100-SXM2-16GB", nvlink_generation=1) for gpu in TOPOLOGY.gpus),
    links=tuple(tuple("X" if a == b else "NV1" for b in range(4)) for a in range(4)),
)
"""Four GPUs, each linked with the three others."""
V2 = f"{CGROUP_CONF}CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\n"
HUNGRY = """
- display_name: More memory than it asked for
  slug: hungry
  command: [/usr/bin/python3, /opt/hungry.py]
  slurm: {partition: gpu, gpus: 1, cpus: 1, memory: 600M, time: "0:10:00"}
"""
ALLOCATES = f"""
import runpy, threading
threading.Timer(10, bytearray, [1 << 30]).start()
runpy.run_path("{SERVER}", run_name="__main__")
"""


@pytest.fixture(scope="module")
def slurm(needs_slurm: None, site_folder: Path) -> Iterator[MachineSlurm]:
    """The Slurm with the machine."""
    needs_machine()
    if c_library.compiler() is None:
        pytest.skip("no C compiler for the stand-in of NVML")
    homes = hub_folder(site_folder) / "homes"
    machine = Machine("bookworm", CGROUPS_2, packages=PACKAGES, shares=(homes,), name=NODE)
    with MachineSlurm(machine, site_folder / "slurm", V2, LINKED) as slurm:
        yield slurm


@pytest.fixture(scope="module")
def site(slurm: MachineSlurm, site_folder: Path) -> Iterator[Site]:
    """The hub with that node."""
    with ExitStack() as stack:
        lines = CONFIG + hub_lines(slurm.machine)
        offered = profiles(COMMAND, slurm="partition: gpu, gpus: 1, gpu_type: k80, cpus: 2")
        yield Site(start_hub(stack, slurm, site_folder / "hub", lines=lines, profiles=offered), slurm)


class TestMainJob(MachineJob):
    """The main job."""


def test_a_server_can_open_its_own_gpu_alone(site: Site, slurm: MachineSlurm, server: str) -> None:
    """For the kernel, not for the driver; and CUDA's number of it is 0, whatever its device file."""
    [index] = granted(slurm, server)["gpus"]
    # There is no driver: what may be opened is "no such device" (ENXIO), and what may not "not permitted" (EPERM).
    answers = [inside(slurm, server, f"cat /dev/nvidia{gpu.minor} 2>&1 || true") for gpu in LINKED.gpus]
    allowed = ["No such device" in answer for answer in answers]
    refused = ["not permitted" in answer for answer in answers]
    assert (allowed, refused) == ([n == index for n in range(4)], [n != index for n in range(4)])
    placement = site.hub.api("GET", f"/gpuspawner/placement/{site.user}").json()
    assert [gpu["index"] for gpu in placement["gpus"]] == [0]


def test_a_process_cannot_leave_its_cores(site: Site, slurm: MachineSlurm, server: str) -> None:
    """Not with taskset either, as which a person may try it."""
    cpus = granted(slurm, server)["cpus"]
    outside = next(cpu for cpu in range(8) if str(cpu) not in cpus.replace("-", ","))
    answer = inside(slurm, server, f"taskset -c {outside} true 2>&1 || true")
    assert "Invalid argument" in answer


def test_the_usage_is_that_of_the_cgroup(site: Site, slurm: MachineSlurm, server: str) -> None:
    """Within a minute the hub has the memory of the job, as cgroup v2 counts it, and the use of its one GPU."""
    use = wait_until(lambda: usage(site))[-1]["use"]
    [path] = slurm.machine.run(f"sed -n 's/^0:://p' /proc/{server_of(slurm.machine, server)}/cgroup").splitlines()
    counted = memory_of_cgroup(slurm.machine, server, "/sys/fs/cgroup" + path.partition("/job_")[0])
    assert (use["problems"], len(use["gpus"]), abs(use["memory_mib"] - counted) <= 4) == ([], 1, True), (use, counted)


def test_a_kernel_that_outgrows_the_memory_ends_alone(site: Site, slurm: MachineSlurm, server: str) -> None:
    """The kernel kills the largest process of the cgroup: the server and its job go on, and are stopped as any."""
    status = inside(slurm, server, "python3 -c 'bytearray(1 << 30)'; echo $?")
    survived = (answers(site), state(slurm, server))
    site.hub.end(site.user)
    assert (status.splitlines()[-1], survived, in_the_end(slurm, server)) == ("137", (True, "RUNNING"), "CANCELLED")


def test_a_server_that_outgrows_its_memory_names_the_amount(site: Site, slurm: MachineSlurm) -> None:
    """The kernel kills it, Slurm says OUT_OF_MEMORY, and the person reads how much the job had."""
    slurm.machine.write("/opt/hungry.py", ALLOCATES)
    offer(site.hub, "hungry", HUNGRY)
    job = str(site.hub.spawn("grace", {"profile": "hungry"}, timeout=100)["job_id"])
    assert in_the_end(slurm, job) == "OUT_OF_MEMORY"
    wait_until(lambda: not site.hub.server("grace"))
    assert why_it_ended(site.hub, "grace") == "The job exceeded its memory limit of 600 MiB."


def inside(slurm: MachineSlurm, job: str, command: str) -> str:
    """The output of a command that runs in the cgroup of a job's server."""
    pid = server_of(slurm.machine, job)
    folder = f"/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/{pid}/cgroup)"
    return slurm.machine.run(f'echo $$ >"{folder}/cgroup.procs" && {command}')
