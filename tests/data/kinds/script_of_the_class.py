"""A hub's own class with a property for the script, and commands as plain attributes."""

from batchspawner import SlurmSpawner
class MySpawner(SlurmSpawner):
    exec_prefix = ""
    batch_submit_cmd = "sudo -E -u {username} sbatch --parsable"
    @property
    def batch_script(self):
        return """#!/bin/bash
#SBATCH --time=03:00:00
#SBATCH --mem=2000M
#SBATCH --cpus-per-task=2
#SBATCH --export={keepvars}
module restore
source /shared/venv/bin/activate
{cmd}
"""
c.JupyterHub.spawner_class = MySpawner
