# A cluster that was built by Magic Castle: SlurmFormSpawner with its defaults
import sys

c.JupyterHub.spawner_class = "slurmformspawner.SlurmFormSpawner"
c.JupyterHub.hub_ip = "0.0.0.0"
c.JupyterHub.ip = "127.0.0.1"
c.JupyterHub.allow_named_servers = False
c.JupyterHub.authenticator_class = "dummy"

c.Spawner.args = ["--KernelSpecManager.ensure_native_kernel=False"]

c.SlurmFormSpawner.ui_args = {
    "lab": {"name": "JupyterLab"},
    "notebook": {"name": "Jupyter Notebook", "url": "/tree"},
    "terminal": {"name": "Terminal", "url": "/terminals/1"},
    "rstudio": {"name": "RStudio", "url": "/rstudio", "modules": ["gcc", "rstudio-server"]},
}
c.SbatchForm.ui = {"choices": ["notebook", "lab", "terminal", "rstudio"], "def": "lab"}

c.JupyterHub.services = [
    {"name": "cull-idle", "command": [sys.executable, "-m", "jupyterhub_idle_culler", "--timeout=3600"]}
]
