"""A private Slurm whose one node is a virtual machine; hub, proxy, slurmctld and their munged run on this host.

The node has the same key of munge, gres.conf and cgroup.conf, and its own slurm.conf, with other paths. The users' home
folders are this host's, by virtiofs. The driver is the stand-in of NVML.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from jupyterhub_gpuspawner.demo.slurm_cluster import (
    ClusterDescription,
    SimulatedNode,
    SimulatedPartition,
    whole_gpus,
)
from jupyterhub_gpuspawner.placement.topology import NodeTopology
from tests.fixtures.hubs import STAND_IN
from tests.fixtures.slurm import ChangedSlurm
from tests.nightly.sites.machine import Machine
from tests.nightly.sites.main_job import MainJob, Site, granted
from tests.standins import nvml
from tests.vm.jobs import K80

PACKAGES = ("slurmd", "slurm-client", "munge")
NODE = "g1"
SOCKETS = (tuple(range(4)), tuple(range(4, 8)))
SERVER = "/opt/single_user.py"
COMMAND = f"[/usr/bin/python3, {SERVER}]"
"""The stand-in for a single-user server in the machine, as YAML."""
MEMORY_MIB = 1700
SLURM_CONF = """
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup,task/affinity
DebugFlags=NO_CONF_HASH
"""
CGROUP_CONF = """
ConstrainCores=yes
ConstrainDevices=yes
ConstrainRAMSpace=yes
"""
TOPOLOGY = replace(
    K80,
    gpus=tuple(replace(gpu, cpus=SOCKETS[gpu.index // 2]) for gpu in K80.gpus),
    numa_nodes=tuple(replace(node, cpus=SOCKETS[node.id]) for node in K80.numa_nodes),
)
"""The four GPUs of ``tests/vm``, near to the machine's sockets."""


class MachineSlurm(ChangedSlurm):
    """The Slurm; ``with MachineSlurm(machine, folder, CGROUP_CONF) as slurm:`` boots the machine, too."""

    def __init__(
        self, machine: Machine, folder: Path, cgroup_conf: str = CGROUP_CONF, topology: NodeTopology = TOPOLOGY
    ) -> None:
        cluster = ClusterDescription(
            nodes=(SimulatedNode(NODE, "", 2, 4, MEMORY_MIB, (whole_gpus("k80", range(4)),)),),
            partitions=(SimulatedPartition("gpu", (NODE,), default=True),),
        )
        gres = [
            f"NodeName={NODE} Name=gpu Type=k80 File=/dev/nvidia{gpu.minor} Cores={gpu.cpus[0]}-{gpu.cpus[-1]}"
            for gpu in topology.gpus
        ]
        files = {"gres.conf": "\n".join(["AutoDetect=off", *gres, ""]), "cgroup.conf": cgroup_conf}
        super().__init__(cluster, folder, self._with_machine, files)
        self.machine, self.topology = machine, topology

    def _with_machine(self, conf: str) -> str:
        lines = [
            line.replace(f"NodeHostname={self.layout.hostname}", f"NodeHostname={NODE}").replace(
                "NodeAddr=127.0.0.1", f"NodeAddr={self.machine.address}"
            )
            for line in conf.splitlines()
            if not line.startswith(("SlurmdParameters", "ProctrackType", "TaskPlugin"))
        ]
        return "\n".join(lines) + SLURM_CONF

    def start(self, *, timeout: float = 300.0) -> None:
        """Start the daemons here, boot the machine, and wait until the node is idle."""
        super().start(timeout=timeout)

    def stop(self) -> None:
        """End the daemons, and switch the machine off."""
        super().stop()
        self.machine.stop()

    def _start_node(self, name: str) -> None:  # noqa: ARG002 - there is one
        machine, folder = self.machine, self.layout.folder
        machine.start()
        conf = self.conf.read_text()
        for text, own in (
            ("(127.0.0.1)", f"({machine.host})"),
            (f"AuthInfo=socket={self.layout.munge_socket}\n", ""),
            (f"{folder}/spool/%n", "/var/spool/slurmd"),
            (f"{self.layout.logs}/slurmd-%n.log", "/var/log/slurmd.log"),
            (f"{folder}/slurmd-%n.pid", "/run/slurmd.pid"),
        ):
            assert text in conf, text
            conf = conf.replace(text, own)
        etc = next(path for path in ("/etc/slurm", "/etc/slurm-llnl") if machine.run(f"ls -d {path} || true"))
        machine.write(f"{etc}/slurm.conf", conf)
        for file in ("gres.conf", "cgroup.conf"):
            machine.write(f"{etc}/{file}", (folder / file).read_text())
        machine.write("/etc/munge/munge.key", (folder / "munge.key").read_bytes(), 0o400)
        machine.write(SERVER, STAND_IN.read_bytes())
        with tempfile.TemporaryDirectory() as built:
            library = nvml.build(Path(built)) / "libnvidia-ml.so.1"
            machine.write(f"/usr/lib/x86_64-linux-gnu/{library.name}", library.read_bytes(), 0o755)
        machine.write("/etc/nvml", nvml.describe(self.topology) + "devices /dev/nvidia\n")
        machine.run("chown munge: /etc/munge/munge.key; mkdir -p /run/munge /var/spool/slurmd; chown munge: /run/munge")
        machine.run("setpriv --reuid=munge --regid=munge --clear-groups /usr/sbin/munged")
        machine.run("slurmd")


def hub_lines(machine: Machine) -> str:
    """Lines of configuration for a hub whose node is a machine."""
    return f"""
import os
c.JupyterHub.hub_bind_url = "http://0.0.0.0:" + os.environ["GPUSPAWNER_DEMO_PORTS"].split(",")[1]
c.JupyterHub.hub_connect_ip = "{machine.host}"
c.GPUSlurmSpawner.topology_file = ""
c.Spawner.environment = {{"STANDIN_NVML": "/etc/nvml"}}
"""


def server_of(machine: Machine, job: str) -> str:
    """The process id, in the machine, of a job's single-user server."""
    output = machine.run(
        f"for pid in $(pgrep -f '^/usr/bin/python3 {SERVER}'); do "
        f"tr '\\0' '\\n' </proc/$pid/environ | grep -qx SLURM_JOB_ID={job} && echo $pid; done; true"
    )
    [pid] = output.split()
    return pid


def held(machine: Machine, job: str) -> dict[str, object]:
    """What the machine's kernel allows a job's server: the CPUs of every thread, and the policy of its memory.

    Sources: proc(5) on ``status`` and ``numa_maps``, whose policy for new memory is that of the heap.
    """
    pid = server_of(machine, job)
    threads = machine.run(f"sed -n 's/^Cpus_allowed_list:\\t//p' /proc/{pid}/task/*/status | sort -u")
    policy = machine.run(f"sed -n 's/^[0-9a-f]* \\(.*\\) heap .*/\\1/p' /proc/{pid}/numa_maps | sort -u")
    return {"cpus": threads, "memory_policy": policy.replace("prefer:", "preferred:")}


def memory_of_cgroup(machine: Machine, job: str, pattern: str) -> int:
    """MiB that the kernel counts for a job in the file below its cgroup, without the page cache; cgroups(7)."""
    used, cache = machine.run(
        f"folder=$(ls -d {pattern}/job_{job}); cat $folder/memory.current $folder/memory.usage_in_bytes 2>/dev/null; "
        "sed -n 's/^\\(total_\\)*inactive_file //p' $folder/memory.stat | tail -n 1"
    ).split()
    return (int(used) - int(cache)) >> 20


def usage(site: Site) -> list[dict[str, Any]]:
    """The summaries of what the user's server has used; the first comes after a minute."""
    answer = site.hub.api("GET", f"/gpuspawner/usage/{site.user}").json()
    summaries: list[dict[str, Any]] = answer.get("summaries", [])
    return summaries


def hub_folder(folder: Path) -> Path:
    """The hub's folder below ``folder``, with that of the home folders, which the machine shares."""
    (folder / "hub" / "homes").mkdir(parents=True)
    return folder / "hub"


class MachineJob(MainJob):
    """The main job on a site whose node is a machine."""

    def placement_and_grant(self, site: Site, server: str, placement: dict[str, Any]) -> tuple[object, object]:
        """The GPUs and CPUs are those that Slurm allocated, and the kernel holds the server there.

        In a device cgroup the driver shows only the job's GPUs and numbers them from 0; their addresses stay.
        """
        assert isinstance(site.slurm, MachineSlurm)
        grant = granted(site.slurm, server)
        gpus = [site.slurm.topology.gpus[index] for index in grant["gpus"]]
        shown = {name: placement[name] for name in ("node", "cpus", "numa_nodes", "aligned", "problems")}
        expected = {
            "node": NODE,
            "cpus": grant["cpus"],
            "numa_nodes": sorted({gpu.numa_node for gpu in gpus}),
            "aligned": True,
            "problems": [],
            "pci": [gpu.pci for gpu in gpus],
            "kernel": {"cpus": placement["cpus"], "memory_policy": placement["memory_policy"]},
        }
        pci = sorted(gpu["pci"] for gpu in placement["gpus"])
        return {**shown, "pci": pci, "kernel": held(site.slurm.machine, server)}, expected
