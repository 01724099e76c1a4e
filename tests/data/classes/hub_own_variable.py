"""A variable of the class's own in the template, and settings in its section."""

from batchspawner import SlurmSpawner
from traitlets import Unicode


class SiteSpawner(SlurmSpawner):
    req_conda_env = Unicode("common").tag(config=True)
    req_module = Unicode("anaconda/2023").tag(config=True)


c.JupyterHub.spawner_class = SiteSpawner
c.SiteSpawner.req_conda_env = "/opt/envs/lab"
c.SiteSpawner.req_partition = "cpu"
c.SiteSpawner.batch_script = """#!/bin/bash
#SBATCH --job-name=lab
#SBATCH --partition={{partition}}
#SBATCH --chdir={{homedir}}
module load {{module}}
export PATH={{conda_env}}/bin:$PATH
{{cmd}}
"""
