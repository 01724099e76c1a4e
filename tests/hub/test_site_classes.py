"""A spawner class of a site's own in wrapspawner's tuples, on a real hub and a real Slurm."""

from __future__ import annotations

import sys

import pytest

from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.fixtures.hubs import STAND_IN, StartHub

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

LINES = f"""
from batchspawner import SlurmSpawner
from traitlets import Unicode
class HPCSpawner(SlurmSpawner):
    req_runtime = Unicode("0:10:00").tag(config=True)
    req_label = Unicode("none").tag(config=True)
    @property
    def batch_script(self):
        return (
            "#!/bin/bash\\n#SBATCH --partition={{partition}} --mem={{memory}} --time={{runtime}} --nice=7\\n"
            "#SBATCH --output=own-%j.log\\necho label {{label}}\\n{{cmd}}\\n"
        )
    def state_ispending(self): return False
c.GPUSlurmSpawner.dangerously_run_servers_as_root = True
c.HPCSpawner.req_memory = "100M"
c.HPCSpawner.req_label = "maths"
command = {[sys.executable, str(STAND_IN)]!r}
c.GPUProfilesSpawner.profiles = [("HPC", "hpc", HPCSpawner, {{"req_partition": "batch", "cmd": command}})]
"""


def test_its_servers_start_with_what_the_class_sets(start_light_hub: StartHub, slurm_cluster: PrivateSlurm) -> None:
    """Template, defaults, section and a variable of its own; a method without effect is named before any start."""
    hub = start_light_hub(lines=LINES)
    assert hub.log.read_text().count("HPCSpawner.state_ispending has no effect") == 1
    job = hub.spawn("ann", {"profile": "hpc"})["job_id"]
    record = slurm_cluster.run("scontrol", "show", "job", job)
    log = (hub.folder / "homes" / "ann" / f"own-{job}.log").read_text()

    assert "Nice=7 " in record
    assert " TimeLimit=00:10:00 " in record
    assert "mem=100M" in record
    assert "label maths\n" in log
    hub.end("ann")


DERIVED = f"""
from pathlib import Path
from jupyterhub_gpuspawner import GPUSlurmSpawner
from traitlets import Dict, Unicode
class Derived(GPUSlurmSpawner):
    req_partition = "batch"
    req_env = Dict({{"COURSE": "maths 1"}}).tag(config=True)
    req_setup = Unicode("echo one\\necho two").tag(config=True)
    batch_script = Unicode(
        "#!/bin/bash\\n#SBATCH --partition={{{{partition}}}} --time=10 --mem=100M --output=own-%j.log\\n"
        "  #SBATCH --hold\\n#SBATCH {{{{options}}}}\\n{{{{setup}}}}\\n"
        "{{% for name, value in env.items() %}}export {{{{name}}}}='{{{{value}}}}'\\n{{% endfor %}}"
        "echo label $COURSE\\n{{{{cmd}}}}\\n"
    ).tag(config=True)
    async def pre_spawn_hook(self, spawner):
        Path(self.req_homedir.format(username=self.user.name)).mkdir(parents=True)
        self.req_options += " --nice=7\\n  #SBATCH --hold"
c.JupyterHub.spawner_class = Derived
c.Derived.dangerously_run_servers_as_root = True
c.Derived.cmd = {[sys.executable, str(STAND_IN)]!r}
"""


def test_servers_of_a_class_derived_from_ours_start_with_what_it_sets(
    start_light_hub: StartHub, slurm_cluster: PrivateSlurm
) -> None:
    """Its hook is a method, its variables are a table and lines, and an option that is indented is none."""
    hub = start_light_hub(lines=DERIVED)
    job = hub.spawn("ann", {})["job_id"]
    record = slurm_cluster.run("scontrol", "show", "job", job)
    log = (hub.folder / "homes" / "ann" / f"own-{job}.log").read_text()

    assert "Nice=7 " in record
    assert "one\ntwo\nlabel maths 1\n" in log
    hub.end("ann")
