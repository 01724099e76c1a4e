"""The demo, apart from its hub and its Slurm."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import pytest

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.run import PROFILES, in_a_minute
from jupyterhub_gpuspawner.demo.slurm_cluster import DEMO_CLUSTER, MACHINES, SimulatedNode
from jupyterhub_gpuspawner.demo.story import IN_COURSE, ON_CLUSTER, Start
from jupyterhub_gpuspawner.placement.topology import NodeTopology, load
from jupyterhub_gpuspawner.site.configuration import load_site
from jupyterhub_gpuspawner.units import parse_cpulist


def test_servers_that_a_killed_hub_has_left_are_ended(tmp_path: Path) -> None:
    """Also one that goes on when it is asked to end; what another hub has started runs on."""
    hub = HubProcess(tmp_path)
    goes_on = 'trap "" TERM; echo; while :; do sleep 1; done'
    urls = [f"http://127.0.0.1:{port}/hub/api" for port in (hub.ports[1], hub.ports[1] + 1)]
    servers = [
        subprocess.Popen(
            ["sh", "-c", goes_on], env={"JUPYTERHUB_API_URL": url}, stdout=subprocess.PIPE, start_new_session=True
        )
        for url in urls
    ]
    try:
        for server in servers:
            assert server.stdout is not None
            server.stdout.readline()
        hub.end_servers()
        assert (servers[0].wait(10), servers[1].poll()) == (-signal.SIGKILL, None)
    finally:
        for server in servers:
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
            server.communicate()


@pytest.mark.parametrize(
    ("starts", "lines"),
    [
        ((), []),
        (IN_COURSE, ["In a minute student1, student2 and student3 have servers."]),
        (
            (*IN_COURSE, *ON_CLUSTER),
            [
                "In a minute student1, student2 and student3 have servers; bob has one that runs and one that waits in "
                "line."
            ],
        ),
    ],
    ids=["empty", "without Slurm", "with Slurm"],
)
def test_who_is_said_to_have_servers_gets_them(starts: tuple[Start, ...], lines: list[str]) -> None:
    """Nobody in a demo that is empty, and nobody's server waits in line without Slurm."""
    assert in_a_minute(starts) == lines


def test_check_and_show_read_what_the_demos_hub_reads(tmp_path: Path) -> None:
    """The demo writes a configuration for them with the same folders of profiles and homes, and without secrets."""
    shutil.copytree(PROFILES, tmp_path / "profiles")
    hub = HubProcess(tmp_path, token="a secret", password="a secret")
    written = hub.write_configuration()
    with patch.dict(os.environ):
        site = load_site(written)
        offered = [profile.slug for profile in site.spawner("ada").offered()]
    assert offered == ["k80", "p100x4", "k80-node", "mig", "two-nodes", "short", "cpu", "local"]
    assert site.config.GPUSlurmSpawner.req_homedir == str(tmp_path / "homes" / "{username}")
    assert "secret" not in written.read_text()


# --- the cluster matches its topology files -------------------------------------------------------


def topology(node: SimulatedNode) -> NodeTopology:
    return load(str(MACHINES / f"{node.machine}.json"))


@pytest.mark.parametrize("node", DEMO_CLUSTER.nodes, ids=lambda node: node.name)
def test_a_node_is_its_machine(node: SimulatedNode) -> None:
    """Sockets, cores and memory of a node in Slurm are within those of its topology file."""
    machine = topology(node)
    assert len(machine.packages) == node.sockets
    assert [len(package) for package in machine.packages] == [node.cores_per_socket * node.threads] * node.sockets
    assert node.memory_mib <= sum(numa_node.memory_mib or 0 for numa_node in machine.numa_nodes)


@pytest.mark.parametrize("node", DEMO_CLUSTER.nodes, ids=lambda node: node.name)
def test_gpus_stand_in_slurms_order(node: SimulatedNode) -> None:
    """The n-th GPU of gres.conf is the n-th of the topology file: same device, same closest cores, MIG or not."""
    described = [
        (files[0], tuple(parse_cpulist(group.cores)), len(files) > 1) for group in node.gpus for files in group.devices
    ]
    devices = [(f"nvidia{gpu.minor}", tuple(gpu.cpus), gpu.mig is not None) for gpu in topology(node).gpus]
    assert described == devices
