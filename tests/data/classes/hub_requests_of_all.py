"""Requests and the template under the section of all spawners."""

c.JupyterHub.spawner_class = "batchspawner.SlurmSpawner"
c.Spawner.req_partition = "general"
c.Spawner.req_runtime = "2:00:00"
c.Spawner.batch_script = """#!/bin/bash
#SBATCH --job-name=nb
#SBATCH --partition={{partition}}
#SBATCH --time={{runtime}}
#SBATCH --chdir={{homedir}}
{{cmd}}
"""
