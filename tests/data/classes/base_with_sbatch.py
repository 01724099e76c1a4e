"""A class that is derived from batchspawner's base and runs sbatch, and one for another batch system's like."""

from batchspawner import BatchSpawnerBase
from traitlets import Unicode


class Own(BatchSpawnerBase):
    batch_submit_cmd = Unicode("sbatch --parsable").tag(config=True)
    req_partition = Unicode("own").tag(config=True)
    req_options = Unicode("--mail-type=END").tag(config=True)
    batch_script = Unicode(
        """#!/bin/bash
#SBATCH --job-name=own
#SBATCH --partition={partition}
#SBATCH --chdir={homedir}
#SBATCH {options}
{cmd}
"""
    ).tag(config=True)


c.JupyterHub.spawner_class = "wrapspawner.ProfilesSpawner"
c.SlurmSpawner.req_partition = "slurm"
c.ProfilesSpawner.profiles = [("Own", "own", Own, {}), ("Slurm", "slurm", "batchspawner.SlurmSpawner", {})]
