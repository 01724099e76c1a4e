# A university's hub: it runs in a container without accounts and without Slurm, and reaches a login node by ssh
import os

from jupyterhub_moss import MOSlurmSpawner, set_config
from traitlets import default

c = get_config()

c.JupyterHub.bind_url = "https://0.0.0.0:8000"
c.JupyterHub.hub_ip = "0.0.0.0"
c.JupyterHub.hub_connect_ip = "hub.cluster.example"
c.JupyterHub.authenticator_class = "dummy"
c.JupyterHub.template_paths = [os.path.join(os.path.dirname(__file__), "templates")]


class SiteSlurmSpawner(MOSlurmSpawner):
    """Takes home folders from the site's own directory, since the container has no accounts."""

    @default("req_homedir")
    def _home_in_directory(self):
        return f"/user/{self.user.name[:3]}/{self.user.name}"

    def user_env(self, env):
        env.update(USER=self.user.name, HOME=self.req_homedir, SHELL="/bin/bash")
        return env


set_config(c)
c.JupyterHub.spawner_class = SiteSlurmSpawner
c.Spawner.start_timeout = 600
c.Spawner.http_timeout = 120

# What a job loads before the server starts
software = {
    "2024_default": {"description": "2024a: Python 3.12", "modules": "JupyterHub/4.1.5-GCCcore-13.3.0", "path": ""},
    "2024_rstudio": {
        "description": "2024a: Python 3.12 and RStudio",
        "modules": "JupyterHub/4.1.5-GCCcore-13.3.0 RStudio-Server/2024.09.0+375-foss-2024a-Java-11-R-4.4.2 ",
        "path": "",
    },
}
for environment in software.values():
    environment["add_to_path"] = False


def partition(description, hours, architecture="x86_64", simple=True):
    return {
        "description": description,
        "architecture": architecture,
        "max_runtime": hours * 3600,
        "simple": simple,
        "jupyter_environments": software,
    }


c.MOSlurmSpawner.partitions = {
    "zen4": partition("AMD Genoa", 12),
    "ampere_gpu": partition("Nvidia A100", 6, "CUDA"),
    "skylake_mpi": partition("Intel Skylake with InfiniBand", 6, simple=False),
}

# The server shall see nothing of the user's startup files
c.BatchSpawnerBase.req_prologue = """
exec env -i HOME="$HOME" USER="$USER" bash --norc --noprofile <<EOF
source /etc/profile
"""
c.BatchSpawnerBase.req_epilogue = """
EOF
"""

# sbatch, squeue and scancel run on the login node
c.SlurmSpawner.exec_prefix = "ssh login.cluster.example "
c.SlurmSpawner.exec_prefix += "SLURM_CONF=/etc/slurm/slurm.conf sudo -u {username} "
c.SlurmSpawner.batch_cancel_cmd = "scancel {{job_id}}"
c.SlurmSpawner.batch_query_cmd = r"squeue -h -j {{job_id}} -o \'%T %B\'"
c.MOSlurmSpawner.slurm_info_cmd = r"sinfo -a --noheader -o \'%R %F %c %C %G %m %l\'"
c.SlurmSpawner.req_srun = ""
c.SlurmSpawner.state_exechost_exp = r"\1.cluster.example"
