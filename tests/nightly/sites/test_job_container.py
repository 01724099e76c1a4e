"""A site where Slurm gives each job folders of its own for temporary files (job_container/tmpfs), shared memory too."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.demo.slurm_cluster import DEMO_CLUSTER, ClusterDescription, SimulatedPartition
from tests.fixtures.hubs import start_hub
from tests.fixtures.slurm import ChangedSlurm
from tests.hub.servers import environment, job_id
from tests.nightly.sites.main_job import CONFIG, MainJob, Site, profiles

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

CLUSTER = ClusterDescription(
    nodes=tuple(node for node in DEMO_CLUSTER.nodes if node.name == "g1"),
    partitions=(SimulatedPartition("gpu", ("g1",), default=True),),
    name="containers",
)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder outside of /tmp, since each job has its own; what a slurmd that was killed leaves mounted goes, too."""
    if os.geteuid() != 0:
        pytest.skip("only root can make mount namespaces for jobs")
    path = Path(tempfile.mkdtemp(prefix="gpus-", dir="/srv"))
    path.chmod(0o755)
    yield path
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for mount in reversed([mount for mount in mounts if mount.startswith(f"{path}/")]):
        subprocess.run(["umount", "--lazy", mount], check=False)
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def site(needs_slurm: None, folder: Path) -> Iterator[Site]:
    """Slurm with the plugin."""
    files = {"job_container.conf": f"AutoBasePath=true\nBasePath={folder}/private\n"}
    lines = "JobContainerType=job_container/tmpfs\nPrologFlags=Contain\n"
    with ExitStack() as stack:
        slurm = stack.enter_context(ChangedSlurm(CLUSTER, folder / "slurm", lambda conf: conf + lines, files))
        hub = start_hub(stack, slurm, folder / "hub", lines=CONFIG, profiles=profiles())
        yield Site(hub, slurm)


class TestMainJob(MainJob):
    """The main job."""


def test_a_step_of_the_job_finds_the_launchers_files_which_the_node_itself_does_not_have(site: Site) -> None:
    """As `gpuspawner-run` in a notebook needs them: each step enters the job's own /tmp."""
    site.hub.spawn("eve", {"profile": "main"})
    job, variables = job_id(site.hub, "eve"), environment(site.hub, "eve")
    archive = Path(variables["GPUSPAWNER_LAUNCHER"])

    step = site.slurm.run("srun", "--overlap", f"--jobid={job}", "--mem=0", "ls", str(archive), timeout=60)
    assert (step, archive.is_relative_to("/tmp"), archive.exists()) == (str(archive), True, False)
    site.hub.end("eve")
