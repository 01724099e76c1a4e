"""The template by a method with the name that traitlets looks for."""

from batchspawner import SlurmSpawner


class Institute(SlurmSpawner):
    def _batch_script_default(self):
        return """#!/bin/bash
#SBATCH --job-name=institute
#SBATCH --account={account}
#SBATCH --time={runtime}
#SBATCH --chdir={homedir}
module load jupyter
{cmd}
"""


c.JupyterHub.spawner_class = Institute
c.Institute.req_account = "abc"
c.Institute.req_runtime = "1:00:00"
