"""A node of the age of RHEL 8: kernel 5.10, Python 3.9, cgroup v1, and slurmd 20.11 below a slurmctld that is newer.

The node is a virtual machine with Debian 11's kernel and userland (``machine.py``); its sockets, NUMA nodes, cgroups
and processes are real, and what the hub's pages say of the placement is compared with them. The GPUs' driver is a
stand-in, and there is no device behind the device files. The users' home folders are on this host, by virtiofs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.fixtures.hubs import start_hub
from tests.nightly.sites.machine import CGROUPS_1, Machine, needs_machine
from tests.nightly.sites.machine_node import (
    COMMAND,
    NODE,
    PACKAGES,
    MachineJob,
    MachineSlurm,
    hub_folder,
    hub_lines,
    memory_of_cgroup,
    usage,
)
from tests.nightly.sites.main_job import CONFIG, Site, profiles
from tests.standins import c_library
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.vm]


@pytest.fixture(scope="module")
def slurm(needs_slurm: None, site_folder: Path) -> Iterator[MachineSlurm]:
    """The Slurm with the machine."""
    needs_machine()
    if c_library.compiler() is None:
        pytest.skip("no C compiler for the stand-in of NVML")
    homes = hub_folder(site_folder) / "homes"
    machine = Machine("bullseye", CGROUPS_1, packages=PACKAGES, shares=(homes,), name=NODE)
    with MachineSlurm(machine, site_folder / "slurm") as slurm:
        yield slurm


@pytest.fixture(scope="module")
def site(slurm: MachineSlurm, site_folder: Path) -> Iterator[Site]:
    """The hub with that node."""
    with ExitStack() as stack:
        lines = CONFIG + hub_lines(slurm.machine) + 'c.GPUSlurmSpawner.memory_policy = "bind"'
        hub = start_hub(stack, slurm, site_folder / "hub", lines=lines, profiles=profiles(COMMAND))
        yield Site(hub, slurm)


class TestMainJob(MachineJob):
    """The main job."""


def test_the_node_is_of_that_age(slurm: MachineSlurm) -> None:
    """Kernel, Python, slurmd, and the hierarchies of cgroup v1."""
    lines = slurm.machine.run(
        "uname -r; python3 --version; slurmd -V; stat -f -c %T /sys/fs/cgroup/memory"
    ).splitlines()
    assert [line.rpartition(".")[0] or line for line in lines] == ["5.10", "Python 3.9", "slurm-wlm 20.11", "cgroupfs"]


def test_memory_is_bound_where_the_page_says(site: Site, server: str) -> None:
    """The policy ``bind`` is the kernel's policy for the server, to the NUMA node of its CPUs (see ``placed``)."""
    placement = site.hub.api("GET", f"/gpuspawner/placement/{site.user}").json()
    assert placement["memory_policy"] == f"bind:{placement['numa_nodes'][0]}"


def test_the_usage_is_that_of_the_cgroup(site: Site, slurm: MachineSlurm, server: str) -> None:
    """Within a minute the hub has the memory of the job, as the memory controller of cgroup v1 counts it."""
    use = wait_until(lambda: usage(site))[-1]["use"]
    counted = memory_of_cgroup(slurm.machine, server, "/sys/fs/cgroup/memory/slurm_*/uid_0")
    assert (use["problems"], abs(use["memory_mib"] - counted) <= 4) == ([], True), (use, counted)
