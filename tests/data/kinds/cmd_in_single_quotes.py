"""The server's command in single quotes."""

c.JupyterHub.spawner_class = "wrapspawner.ProfilesSpawner"
c.SlurmSpawner.batch_script = """#!/bin/bash
#SBATCH --partition={{partition}}
#SBATCH --cpus-per-task={{nprocs}}
srun bash -c 'source /etc/profile && exec {{cmd}}'
"""
c.ProfilesSpawner.profiles = [("CPU", "cpu", "batchspawner.SlurmSpawner", {"req_partition": "cpu", "req_nprocs": "1"})]
