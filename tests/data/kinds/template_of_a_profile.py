"""A profile with a template of its own."""

T = """#!/bin/bash
#SBATCH --job-name=nb
#SBATCH --ntasks=1
#SBATCH --export={{keepvars}}
{% if partition %}#SBATCH --partition={{partition}}
{% endif %}{% if memory %}#SBATCH --mem={{memory}}
{% endif %}
{{cmd}}
"""
c.JupyterHub.spawner_class = "wrapspawner.ProfilesSpawner"
c.ProfilesSpawner.profiles = [("CPU", "cpu", "batchspawner.SlurmSpawner", {"req_partition": "cpu", "req_memory": "8G", "req_options": "", "batch_script": T})]
