"""The demo, apart from its hub and its Slurm."""

from __future__ import annotations

import os
import shutil
from datetime import datetime
from pathlib import Path
from unittest.mock import patch

import pytest

from jupyterhub_gpuspawner.cpulist import parse_cpulist
from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.run import PROFILES, SLUG, course_file
from jupyterhub_gpuspawner.demo.slurm_cluster import DEMO_CLUSTER, MACHINES, SimulatedNode
from jupyterhub_gpuspawner.extensions.courses.course_profile import course_profile
from jupyterhub_gpuspawner.extensions.courses.folder import CourseFolder
from jupyterhub_gpuspawner.placement.topology import NodeTopology, load
from jupyterhub_gpuspawner.profiles.files import EVERYTHING, ProfileFolder
from jupyterhub_gpuspawner.site.configuration import load_site


def test_check_and_show_read_what_the_demos_hub_reads(tmp_path: Path) -> None:
    """The demo writes a configuration for them with the same folders of profiles and homes, and without secrets."""
    shutil.copytree(PROFILES, tmp_path / "profiles")
    hub = HubProcess(tmp_path, token="a secret", password="a secret")
    written = hub.write_configuration()
    with patch.dict(os.environ):
        site = load_site(written)
        offered = [profile.slug for profile in site.spawner("ada").offered()]
    assert offered == ["k80", "p100x4", "mig", "two-nodes", "short", "cpu", "local"]
    assert site.config.GPUSlurmSpawner.req_homedir == str(tmp_path / "homes" / "{username}")
    assert "secret" not in written.read_text()


# --- the course: its session is on whenever the demo is started -----------------------------------


@pytest.mark.parametrize("hour", [0, 9, 20, 21, 23])
@pytest.mark.parametrize("with_slurm", [True, False])
def test_its_session_is_on_at_any_hour(tmp_path: Path, hour: int, with_slurm: bool) -> None:
    """Also late in the evening, and without Slurm, where it is a server on this machine."""
    now = datetime(2026, 3, 2, hour, 40).astimezone()
    (tmp_path / f"{SLUG}.yaml").write_text(course_file(now, with_slurm=with_slurm))
    (file,) = CourseFolder(tmp_path).courses()
    assert file.fault is None
    course = course_profile(file, ProfileFolder(PROFILES, EVERYTHING).profiles(), now)

    assert (course.is_open, course.profile.kind) == (True, "slurm" if with_slurm else "local")


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
