"""The configuration of a workshop in 2017 still runs: only ``spawner_class`` is changed, and ``{cmd}`` added.

Its profiles are pairs; its template is bash with options that Slurm no longer accepts. The nodes have 40 cores.
"""

from __future__ import annotations

import re

import pytest

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.units import parse_cpulist
from tests.fixtures.hubs import StartHub

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.nightly]

WORKSHOP = '''
c.JupyterHub.spawner_class = "gpu-profiles"
c.GPUProfilesSpawner.profiles_dir = ""  # the demo's own
c.Spawner.http_timeout = 120
c.SlurmSpawner.start_timeout = 240
c.SlurmSpawner.req_nprocs = '1'
c.SlurmSpawner.req_runtime = '8:00:00'
c.SlurmSpawner.req_partition = 'gpu'
c.SlurmSpawner.batch_script = """#!/bin/bash
#SBATCH --partition={partition}
#SBATCH --time={runtime}
#SBATCH --output={homedir}/jupyterhub_slurmspawner_%j.log
#SBATCH --job-name=jupyterhub-spawner
#SBATCH --cpus-per-task={nprocs}
#SBATCH --workdir=/home/{username}
#SBATCH --uid={username}
#SBATCH --mem={memory}
#SBATCH {options}
source /sw/apps/mpi/env.sh
source /sw/apps/modules/init/bash
module load courses/env
module load cuda/8.0.61
module load hdf5/1.8.16
which jupyterhub-singleuser
{cmd}
"""
c.ProfilesSpawner.profiles = [
    ('Furiosa GPU node - 40 cores, 32 GB, 8 hours',
     dict(req_nprocs='40', req_partition='gpu', req_runtime='8:00:00', req_memory='32000')),
    ('Furiosa CPU only node - 1 core, 16 GB, 8 hours',
     dict(req_nprocs='1', req_partition='batch', req_runtime='8:00:00', req_memory='16000')),
    ('Furiosa CPU node - 12 cores, 32 GB, 8 hours',
     dict(req_nprocs='12', req_partition='batch', req_runtime='8:00:00', req_memory='32000')),
    ('Test server', 'local', 'jupyterhub.spawner.LocalProcessSpawner', {'ip': ''}),
]
'''


@pytest.fixture
def workshop(start_light_hub: StartHub) -> HubProcess:
    """A hub with the workshop's configuration."""
    return start_light_hub(WORKSHOP)


def test_every_profile_of_the_workshop_starts(workshop: HubProcess) -> None:
    """Each of the four profiles starts the requested server, and the log says what was corrected."""
    slugs = [
        "furiosa-gpu-node-40-cores-32-gb-8-hours",
        "furiosa-cpu-only-node-1-core-16-gb-8-hours",
        "furiosa-cpu-node-12-cores-32-gb-8-hours",
        "local",
    ]
    placements = {}
    for slug in slugs:
        placement = workshop.spawn("learner", {"profile": slug})
        placements[slug] = (
            placement.get("partition"),
            len(parse_cpulist(placement["cpus"])) if "cpus" in placement else None,
        )
        workshop.end("learner")

    assert placements == {slugs[0]: ("gpu", 40), slugs[1]: ("batch", 1), slugs[2]: ("batch", 12), "local": (None, None)}

    log = workshop.log.read_text()
    for option in ("--workdir", "--uid", "#SBATCH"):
        assert re.search(rf"Batch script of learner.*{option}", log), f"nothing is said of {option}"
