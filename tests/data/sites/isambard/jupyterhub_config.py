# A national centre's hub in a pod: its own spawner class, registered by a package that is not installed here; three
# scripts on a login node stand between the hub and Slurm
import os
from pathlib import Path

import batchspawner
import siteidentity

c = get_config()


def deployed(name, otherwise):
    """A value of the deployment."""
    return os.environ.get(f"DEPLOY_{name}", otherwise)


c.JupyterHub.bind_url = f"http://127.0.0.1:8000{deployed('BASE_URL', '/jupyter')}"
c.JupyterHub.hub_bind_url = "http://:8081"
c.JupyterHub.cleanup_servers = False
c.JupyterHub.authenticator_class = siteidentity.SiteAuthenticator
c.JupyterHub.load_groups = {name: {"users": []} for name in ("staff",)}

c.JupyterHub.spawner_class = "national"

c.Spawner.hub_connect_url = deployed("HUB_URL", "http://10.0.0.5:8081")
c.Spawner.env_keep = []
c.Spawner.environment = {"SITE_CONDA": deployed("CONDA", "/projects/jupyter/conda")}
c.Spawner.notebook_dir = "~/"
c.Spawner.start_timeout = 420


def key_file():
    """The key of the account that may run the scripts."""
    return Path(deployed("SRV_DIR", "/srv/jupyterhub")) / "ssh_key"


# Ask Slurm less often
c.SiteSlurmSpawner.poll_interval = 60
c.SiteSlurmSpawner.startup_poll_interval = 15

c.SiteSlurmSpawner.req_srun = "srun --export=ALL"
c.SiteSlurmSpawner.req_options = "--nodes=1"
c.SiteSlurmSpawner.req_ngpus = "1"
c.SiteSlurmSpawner.req_runtime = "4:00:00"

login = ["ssh", "-i", str(key_file()), "jupyterspawner@login.example", "sudo -u {username}"]
c.SiteSlurmSpawner.exec_prefix = " ".join(login)
scripts = "/opt/jupyter/scripts"
# The environment has to be written on the command line, since ssh passes none
c.SiteSlurmSpawner.batch_submit_cmd = (
    "{% for var in keepvars.split(',') %}{{var}}=\"'${{'{'}}{{var}}{{'}'}}'\" {% endfor %}" + f"{scripts}/submit"
)
c.SiteSlurmSpawner.batch_query_cmd = "JOB={{job_id}} " + f"{scripts}/query"
c.SiteSlurmSpawner.batch_cancel_cmd = "JOB={{job_id}} " + f"{scripts}/cancel"

c.SiteSlurmSpawner.batch_script = """#!/bin/bash
#SBATCH --chdir={{homedir}}
#SBATCH --output={{homedir}}/.jupyter/job_%j.log
#SBATCH --job-name=jupyter
#SBATCH --export={{keepvars}}
#SBATCH --get-user-env
{% if partition %}#SBATCH --partition={{partition}}{% endif %}
{% if runtime %}#SBATCH --time={{runtime}}{% endif %}
{% if ngpus %}#SBATCH --gpus={{ngpus}}{% endif %}
{% if reservation %}#SBATCH --reservation={{reservation}}{% endif %}
{% if options %}#SBATCH {{options}}{% endif %}

set -euo pipefail
source ${SITE_CONDA}/bin/activate jupyter
trap 'echo SIGTERM received' TERM
{{prologue}}
{% if srun %}{{srun}} {% endif %}{{cmd}}
{{epilogue}}
"""

c.Authenticator.manage_groups = True
c.JupyterHub.load_roles = [{"name": "support", "scopes": ["list:users"]}]
