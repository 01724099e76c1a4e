"""The hub of docker/hub: config/jupyterhub_config.py with the SITE lines that follow from being in a container.

What belongs to the site is in the folder HUB_ETC: profiles, courses, the files of ssh, and site.py, which is read last.
"""

import os
from pathlib import Path

root = Path(__file__).resolve().parents[2]
etc = Path(os.environ["HUB_ETC"])

load_subconfig(str(root / "config" / "jupyterhub_config.py"))  # noqa: F821 - JupyterHub provides it
c = get_config()  # noqa: F821 - as above

c.JupyterHub.bind_url = f"http://{os.environ['HUB_ADDRESS']}:8000"  # behind a web server with a certificate
c.JupyterHub.hub_ip = os.environ["HUB_ADDRESS"]
c.JupyterHub.load_groups = {}
c.GPUSlurmSpawner.hub_name = os.environ.get("HUB_NAME", "jupyter")  # a container's host name may change
for setting in ("profiles_dir", "courses_dir"):
    c.GPUProfilesSpawner[setting] = str(etc / setting.removesuffix("_dir"))

as_user = "sudo -n -u {username}"
if os.environ.get("HUB_WAY", "ssh") == "ssh":
    login_node = f"ssh -F {etc / 'ssh' / 'ssh_config'} login"
    c.GPUSlurmSpawner.query_prefix = login_node
    c.GPUSlurmSpawner.exec_prefix = f"{login_node} {as_user}"
else:
    c.GPUSlurmSpawner.exec_prefix = as_user

if (etc / "site.py").exists():  # the authenticator, and whatever differs here
    load_subconfig(str(etc / "site.py"))  # noqa: F821 - as above
