"""A template that names the server itself, in the place of its variable."""

c.JupyterHub.spawner_class = "batchspawner.SlurmSpawner"
c.SlurmSpawner.req_partition = "cpu"
c.SlurmSpawner.batch_script = """#!/bin/bash
#SBATCH --partition={partition}
srun bash -c 'source /nfs/env/bin/activate && exec batchspawner-singleuser jupyterhub-singleuser'
"""
