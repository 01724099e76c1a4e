# A national centre: the hub is outside of the machine, and a class of the centre's own submits jobs on a login node
from batchspawner import SlurmSpawner
from traitlets import Integer, Unicode, default

c = get_config()


class CentreSpawner(SlurmSpawner):
    """Submits by ssh, and knows the centre's projects."""

    exec_prefix = Unicode("ssh -q -i /srv/jupyterhub/key hub@login.centre.example sudo -n -u {username}").tag(config=True)
    req_project = Unicode("p0000", help="Which project pays").tag(config=True)
    req_constraint = Unicode("cpu").tag(config=True)
    req_module = Unicode("python/3.11").tag(config=True)
    req_hours = Integer(4).tag(config=True)
    req_runtime = Unicode("4:00:00").tag(config=True)

    @default("req_qos")
    def _qos(self):
        return "interactive" if self.req_hours <= 4 else "regular"

    batch_script = Unicode("""#!/bin/bash
#SBATCH --job-name=jupyter
#SBATCH --account={{project}}
#SBATCH --qos={{qos}}
#SBATCH --constraint={{constraint}}
#SBATCH --time={{hours}}:00:00
#SBATCH --nodes=1
#SBATCH --cpus-per-task={{nprocs}}
#SBATCH --output=jupyter-%j.log
#SBATCH --export={{keepvars}}
{% if reservation %}#SBATCH --reservation={{reservation}}
{% endif %}

unset XDG_RUNTIME_DIR
module load {{module}}
export JUPYTER_PATH=/global/common/jupyter/{{project}}
{{prologue}}
srun --cpu-bind=none {{cmd}}
""").tag(config=True)


c.JupyterHub.authenticator_class = "dummy"
c.JupyterHub.hub_ip = "0.0.0.0"
c.JupyterHub.spawner_class = CentreSpawner

c.CentreSpawner.req_project = "m1234"
c.CentreSpawner.req_constraint = "gpu&hbm80g"
c.CentreSpawner.req_nprocs = "32"
c.CentreSpawner.req_prologue = "ulimit -c 0"
c.CentreSpawner.batch_query_cmd = r"squeue -h -j {job_id} -o \'%T %B\'"
c.CentreSpawner.state_exechost_exp = r"\1.centre.example"
c.CentreSpawner.http_timeout = 300
c.Spawner.start_timeout = 900
c.Spawner.environment = {"CENTRE": "centre"}
