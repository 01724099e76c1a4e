"""Units that follow the variables."""

c.JupyterHub.spawner_class = "batchspawner.SlurmSpawner"
c.SlurmSpawner.req_memory = "4"
c.SlurmSpawner.req_runtime = "8"
c.SlurmSpawner.req_nprocs = "2"
c.SlurmSpawner.batch_script = """#!/bin/bash
#SBATCH --mem={memory}G
#SBATCH --time={runtime}:00:00
#SBATCH --cpus-per-task={nprocs}
{cmd}
"""
