"""Requests and a template in the section of all spawners."""

c.JupyterHub.spawner_class = "batchspawner.SlurmSpawner"
c.Spawner.req_partition = "general"
c.Spawner.req_runtime = "2:00:00"
c.Spawner.req_srun = "srun"
c.Spawner.batch_script = """#!/bin/bash
#SBATCH --job-name=nb
#SBATCH --partition={{partition}}
#SBATCH --time={{runtime}}
{{srun}} {{cmd}}
"""
