"""A hub's class with a property for the template, and commands of its own as plain attributes."""

from batchspawner import SlurmSpawner


class MySpawner(SlurmSpawner):
    exec_prefix = ""

    @property
    def batch_script(self):
        return """#!/bin/bash
#SBATCH --job-name=mine
#SBATCH --time=03:00:00
#SBATCH --mem=2000M
#SBATCH --cpus-per-task=2
#SBATCH --export={keepvars}
#SBATCH --chdir={homedir}
module restore
source /shared/venv/bin/activate
{cmd}
"""


c.JupyterHub.spawner_class = MySpawner
