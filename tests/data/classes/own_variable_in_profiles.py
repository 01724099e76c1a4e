"""A template of all profiles with a variable that only one class has."""

from batchspawner import SlurmSpawner
from traitlets import Unicode


class CondaSpawner(SlurmSpawner):
    req_conda_env = Unicode("common").tag(config=True)


c.JupyterHub.spawner_class = "wrapspawner.ProfilesSpawner"
c.SlurmSpawner.batch_script = """#!/bin/bash
#SBATCH --job-name=lab
#SBATCH --partition={{partition}}
#SBATCH --chdir={{homedir}}
{% if conda_env %}source activate {{conda_env}}{% endif %}
{{cmd}}
"""
c.CondaSpawner.req_partition = "cpu"
c.ProfilesSpawner.profiles = [
    ("Common", "common", CondaSpawner, {}),
    ("Maths", "maths", CondaSpawner, {"req_conda_env": "/opt/maths"}),
    ("Plain", "plain", "batchspawner.SlurmSpawner", {"req_partition": "other"}),
]
