"""Options of sbatch in several lines, joined as a script has them."""

c.JupyterHub.spawner_class = "wrapspawner.ProfilesSpawner"
c.SlurmSpawner.batch_script = """#!/bin/bash
#SBATCH --job-name=nb
{% if partition %}#SBATCH --partition={{partition}}
{% endif %}{% if options %}#SBATCH {{options}}
{% endif %}
{{cmd}}
"""
c.ProfilesSpawner.profiles = [("A", "a", "batchspawner.SlurmSpawner", {"req_partition": "cpu",
    "req_options": "--account=a1\n#SBATCH --qos=normal\n#SBATCH --constraint=k80"})]
