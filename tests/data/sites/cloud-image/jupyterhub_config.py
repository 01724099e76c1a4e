# A cloud's image: the hub is the head node, nodes are made when jobs ask for them, and Slurm is below /opt
c = get_config()
c.JupyterHub.authenticator_class = "dummy"
c.JupyterHub.hub_ip = "0.0.0.0"
c.JupyterHub.spawner_class = "wrapspawner.ProfilesSpawner"

c.Spawner.http_timeout = 120
c.Spawner.default_url = "/lab"
c.Spawner.environment = {"CLOUD_REGION": "north-1"}
c.BatchSpawnerBase.start_timeout = 1200
c.BatchSpawnerBase.exec_prefix = ""
c.BatchSpawnerBase.batch_submit_cmd = "sudo -E -u {username} /opt/slurm/bin/sbatch --parsable --wckey=jupyter"
c.BatchSpawnerBase.batch_query_cmd = "/opt/slurm/bin/squeue -h -j {job_id} -o '%T %B'"
c.BatchSpawnerBase.batch_cancel_cmd = "sudo -E -u {username} /opt/slurm/bin/scancel {job_id}"
c.BatchSpawnerBase.req_runtime = "8"
c.BatchSpawnerBase.req_memory = "4"
c.BatchSpawnerBase.req_nprocs = "2"
c.SlurmSpawner.batch_script = """#!/bin/bash
#SBATCH --partition={partition}
#SBATCH --time={runtime}:00:00
#SBATCH --mem={memory}G
#SBATCH --cpus-per-task={nprocs}
#SBATCH --job-name=jupyter
#SBATCH --output={homedir}/logs/jupyter_%j.log
#SBATCH --chdir={homedir}
#SBATCH --export={keepvars}
#SBATCH {options}

echo "starting on $(hostname)"
mkdir -p /tmp/nb-$SLURM_JOB_ID
trap 'rm -rf /tmp/nb-$SLURM_JOB_ID' EXIT
srun bash -c 'source /opt/jupyter/venv/bin/activate && exec {cmd}'
"""
c.ProfilesSpawner.profiles = [
    ("2 cores, 4 GB", "small", "batchspawner.SlurmSpawner", dict(req_partition="c5-large", req_nodes="1")),
    (
        "16 cores, 32 GB",
        "large",
        "batchspawner.SlurmSpawner",
        dict(req_partition="c5-4xlarge", req_nprocs="16", req_memory="32", req_options="--exclusive"),
    ),
    (
        "One T4",
        "gpu",
        "batchspawner.SlurmSpawner",
        dict(req_partition="g4dn", req_nprocs="4", req_memory="16", req_options="--gres=gpu:t4:1\n#SBATCH --constraint=spot"),
    ),
]
