# A research centre with two clusters in one accounting database, and a class that reads sbatch's answer for both
from batchspawner import SlurmSpawner

c = get_config()


class ClusterSpawner(SlurmSpawner):
    """sbatch answers 17;gpu for a job of another cluster."""

    def parse_job_id(self, output):
        return output.split(";")[0]


c.JupyterHub.authenticator_class = "dummy"
c.JupyterHub.spawner_class = "wrapspawner.ProfilesSpawner"
c.SlurmSpawner.exec_prefix = "sudo -E -u {username}"
c.SlurmSpawner.batch_query_cmd = "squeue -M {cluster} -h -j {job_id} -o '%T %B'"
c.SlurmSpawner.batch_cancel_cmd = "scancel -M {cluster} {job_id}"
c.SlurmSpawner.req_cluster = "smp"
c.SlurmSpawner.req_runtime = "3:00:00"
c.SlurmSpawner.state_exechost_exp = r"\1.research.example"
c.SlurmSpawner.batch_script = """#!/bin/bash
#SBATCH --clusters={{cluster}}
#SBATCH --partition={{partition}}
#SBATCH --time={{runtime}}
#SBATCH --cpus-per-task={{nprocs}}
{% if gres %}#SBATCH --gres={{gres}}
{% endif %}
#SBATCH --chdir={{homedir}}
#SBATCH --output=/dev/null

module purge
module load jupyterhub
{{cmd}}
"""
c.ProfilesSpawner.profiles = [
    ("4 cores", "smp", ClusterSpawner, {"req_partition": "smp", "req_nprocs": "4"}),
    ("High memory", "high-mem", ClusterSpawner, {"req_partition": "high-mem", "req_nprocs": "8", "req_runtime": "12:00:00"}),
    (
        "One A100",
        "a100",
        ClusterSpawner,
        {"req_cluster": "gpu", "req_partition": "a100", "req_nprocs": "8", "req_gres": "gpu:1"},
    ),
]
