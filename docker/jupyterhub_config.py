"""The hub of docker/compose.yaml: config/jupyterhub_config.py with its SITE lines set for the containers."""

import os
import secrets
import sys
from pathlib import Path

root = Path(__file__).resolve().parents[1]

load_subconfig(str(root / "config" / "jupyterhub_config.py"))  # noqa: F821 - JupyterHub provides it
c = get_config()  # noqa: F821 - as above

c.JupyterHub.bind_url = "http://0.0.0.0:8000"  # compose.yaml allows connections only from this machine
c.JupyterHub.hub_ip = "127.0.0.1"
c.JupyterHub.load_groups = {}
c.GPUProfilesSpawner.profiles_dir = str(root / "jupyterhub_gpuspawner" / "demo" / "profiles")
c.GPUSlurmSpawner.topology_file = os.environ["HUB_TOPOLOGY"]
c.GPUSlurmSpawner.hub_name = "compose"
c.GPUSlurmSpawner.exec_prefix = "runuser -u {username} --"  # in the container the hub runs as root
c.GPUSlurmSpawner.wrapper_dir = ""
c.Spawner.cmd = [str(Path(sys.prefix) / "bin" / "jupyterhub-singleuser")]

# Accounts of the image, with one shared password, for trying it out on one machine. Every account of the machine can
# open the hub's page.
password = os.environ["HUB_PASSWORD"] or secrets.token_urlsafe(16)
if not os.environ["HUB_PASSWORD"]:
    print(f"The password of {os.environ['HUB_USERS']}: {password}", flush=True)
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = password
c.Authenticator.allowed_users = set(os.environ["HUB_USERS"].split())
