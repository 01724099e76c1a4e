# The hub of a workshop in 2017: 33 people on the GPU nodes of one cluster
import batchspawner
import wrapspawner

c.JupyterHub.spawner_class = "wrapspawner.ProfilesSpawner"
c.Spawner.http_timeout = 120
c.SlurmSpawner.start_timeout = 240
c.SlurmSpawner.req_nprocs = "1"
c.SlurmSpawner.req_runtime = "8:00:00"
c.SlurmSpawner.req_partition = "gpu"
c.SlurmSpawner.batch_script = """#!/bin/bash
#SBATCH --partition={partition}
#SBATCH --time={runtime}
#SBATCH --output={homedir}/jupyterhub_slurmspawner_%j.log
#SBATCH --job-name=jupyterhub-spawner
#SBATCH --cpus-per-task={nprocs}
#SBATCH --workdir=/home/{username}
#SBATCH --uid={username}
#SBATCH --mem={memory}
#SBATCH {options}
source /sw/apps/mpi/env.sh
source /sw/apps/modules/init/bash
module load courses/env
module load cuda/8.0.61
module load hdf5/1.8.16
which jupyterhub-singleuser
{cmd}
"""
c.ProfilesSpawner.profiles = [
    (
        "Furiosa GPU node - 40 cores, 32 GB, 8 hours",
        dict(req_nprocs="40", req_partition="gpu", req_runtime="8:00:00", req_memory="32000"),
    ),
    (
        "Furiosa CPU only node - 1 core, 16 GB, 8 hours",
        dict(req_nprocs="1", req_partition="batch", req_runtime="8:00:00", req_memory="16000"),
    ),
    (
        "Furiosa CPU node - 12 cores, 32 GB, 8 hours",
        dict(req_nprocs="12", req_partition="batch", req_runtime="8:00:00", req_memory="32000"),
    ),
    ("Test server", "local", "jupyterhub.spawner.LocalProcessSpawner", {"ip": ""}),
]
