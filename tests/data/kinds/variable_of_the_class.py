"""A hub's own class with a variable of its template."""

from batchspawner import SlurmSpawner
from traitlets import Unicode
class SiteSpawner(SlurmSpawner):
    req_conda_env = Unicode("common").tag(config=True)
c.JupyterHub.spawner_class = SiteSpawner
c.SiteSpawner.req_conda_env = "/opt/envs/lab"
c.SiteSpawner.req_partition = "cpu"
c.SiteSpawner.batch_script = """#!/bin/bash
#SBATCH --partition={{partition}}
export PATH={{conda_env}}/bin:$PATH
{{cmd}}
"""
