"""A real job_submit plugin that refuses with one of Slurm's own messages is a refusal, not an outage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.demo.slurm_cluster import ClusterDescription, PrivateSlurm, SimulatedNode, SimulatedPartition
from jupyterhub_gpuspawner.errors import SubmitRejected
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.commands import Installation

pytestmark = pytest.mark.slurm

CLUSTER = ClusterDescription(
    nodes=(SimulatedNode("c1", machine="cpu", sockets=1, cores_per_socket=4, memory_mib=8000),),
    partitions=(SimulatedPartition("batch", ("c1",), default=True),),
    name="plugin",
)
PLUGIN = """
function slurm_job_submit(desc, parts, uid)
   if desc.comment ~= nil and desc.comment ~= "" then
      slurm.log_user("%s", desc.comment)
      return slurm.ERROR
   end
   return slurm.SUCCESS
end
function slurm_job_modify(desc, job, parts, uid)
   return slurm.SUCCESS
end
"""
"""A plugin that refuses with the job's comment as message."""


class WithPlugin(PrivateSlurm):
    """A Slurm with this plugin."""

    def _write_files(self) -> None:
        super()._write_files()
        self.conf.write_text(f"{self.conf.read_text()}JobSubmitPlugins=lua\n")
        (self.conf.parent / "job_submit.lua").write_text(PLUGIN)


@contextmanager
def client_with_plugin(folder: Path) -> Iterator[SlurmClient]:
    """A client of such a Slurm, which is in this folder."""
    if not list(Path("/usr").glob("lib*/**/job_submit_lua.so")):
        pytest.skip("this Slurm has no job_submit/lua")
    with WithPlugin(CLUSTER, folder) as slurm:
        yield SlurmClient(Installation(bin_dir=slurm.bin_dir, environment=slurm.environment))


WORDS = (
    "Connection refused by the licence server",
    "The project database is temporarily unavailable: try again at noon",
    "Unable to contact slurm controller (connect failure)",
    "Invalid account: ask your PI",
)
"""What a site's plugin may say, in part as Slurm does of an outage."""


@pytest.fixture(scope="module")
def client(needs_slurm: None, public_folder: Path) -> Iterator[SlurmClient]:
    """A client of this Slurm."""
    with client_with_plugin(public_folder / "plugin") as client:
        yield client


@pytest.mark.parametrize("words", WORDS)
async def test_a_plugins_sentence_is_told_and_is_no_outage(client: SlurmClient, words: str) -> None:
    """The plugin's message is reported; a job that it does not refuse is accepted."""
    script = f'#!/bin/sh\n#SBATCH --comment="{words}"\n#SBATCH --output=/dev/null\ntrue\n'
    with pytest.raises(SubmitRejected) as refused:
        await client.submit(script)
    assert refused.value.message == f"Slurm refused the job: {words}."
    assert await client.submit("#!/bin/sh\n#SBATCH --output=/dev/null\ntrue\n")
