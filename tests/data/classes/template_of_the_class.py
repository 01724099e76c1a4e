"""A profile's class with a template of its own, as a property, beside one without."""

from batchspawner import SlurmSpawner


class Restored(SlurmSpawner):
    @property
    def batch_script(self):
        return """#!/bin/bash
#SBATCH --job-name=restored
#SBATCH --time=03:00:00
#SBATCH --mem=2000M
#SBATCH --cpus-per-task=2
#SBATCH --export={keepvars}
#SBATCH --chdir={homedir}
module restore
source /shared/venv/bin/activate
{cmd}
"""


c.JupyterHub.spawner_class = "wrapspawner.ProfilesSpawner"
c.ProfilesSpawner.profiles = [
    ("Restored", "restored", Restored, {}),
    ("Plain", "plain", "batchspawner.SlurmSpawner", {"req_runtime": "1:00:00"}),
]
