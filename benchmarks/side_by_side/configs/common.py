# ruff: noqa: F821 - JupyterHub provides get_config
"""Configuration shared by all hubs of the benchmark: dummy users and a stand-in for their servers."""

import os
import sys
from pathlib import Path

here = Path(os.environ["BENCH_CONFIGS"])
folder = Path(os.environ["GPUSPAWNER_DEMO_FOLDER"])
public_port, hub_port, proxy_port = os.environ["GPUSPAWNER_DEMO_PORTS"].split(",")
sys.path.insert(0, str(here))

import loop_watch  # noqa: E402 - it stands beside this file

loop_watch.install(folder / "blocks.jsonl", os.environ["BENCH_PACKAGES"].split(","))

c = get_config()
c.JupyterHub.bind_url = f"http://127.0.0.1:{public_port}"
c.JupyterHub.hub_bind_url = f"http://127.0.0.1:{hub_port}"
c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{proxy_port}"
c.ConfigurableHTTPProxy.pid_file = str(folder / "proxy.pid")
c.JupyterHub.db_url = f"sqlite:///{os.environ['BENCH_DATABASE']}"
c.JupyterHub.cookie_secret_file = str(folder / "cookie_secret")
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.JupyterHub.concurrent_spawn_limit = 0  # 200 people wait at once
c.JupyterHub.log_level = "WARN"
c.JupyterHub.services = [{"name": "demo", "api_token": os.environ["GPUSPAWNER_DEMO_TOKEN"]}]
c.JupyterHub.load_roles = [{"name": "demo", "services": ["demo"], "scopes": ["admin:users", "admin:servers"]}]
c.Spawner.env_keep = ["PATH", "LANG", "SLURM_CONF", "TMPDIR"]
c.Spawner.cmd = [f"{os.environ['BENCH_ENVIRONMENT']}jupyterhub-singleuser"]
c.Spawner.start_timeout = 600
c.Spawner.http_timeout = 120

homes = folder / "homes"


def make_home(spawner):
    """Create the user's home folder: users of the benchmark have no accounts."""
    (homes / spawner.user.name).mkdir(mode=0o755, parents=True, exist_ok=True)


c.Spawner.pre_spawn_hook = make_home
