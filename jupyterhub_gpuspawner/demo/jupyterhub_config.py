"""The demo's hub, with this package's spawner and a private Slurm. Only for one user on one machine."""

import os
import shutil
from pathlib import Path

from tornado import web

from jupyterhub_gpuspawner.demo import sign_in
from jupyterhub_gpuspawner.demo.account import command_prefix, give_to

folder = Path(os.environ["GPUSPAWNER_DEMO_FOLDER"])
public_port, hub_port, proxy_port = os.environ["GPUSPAWNER_DEMO_PORTS"].split(",")

c = get_config()  # noqa: F821 - JupyterHub provides it

# Enable the plugin, and set the folder of profiles.
c.JupyterHub.spawner_class = "gpu-profiles"
c.GPUProfilesSpawner.profiles_dir = str(folder / "profiles")
# a server on this machine, an application, and shell lines of the profile that makes room in a full home
c.GPUProfilesSpawner.profiles_dir_allows = ["local", "command", "setup"]

courses = folder / "courses"
courses.mkdir(mode=0o700, exist_ok=True)
c.GPUProfilesSpawner.courses_dir = str(courses)

# Everything below is specific to the demo: one machine, one account, no real authentication.
c.JupyterHub.bind_url = f"http://127.0.0.1:{public_port}"
c.JupyterHub.hub_bind_url = f"http://127.0.0.1:{hub_port}"
c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{proxy_port}"
c.ConfigurableHTTPProxy.pid_file = str(folder / "proxy.pid")
database = folder / "hub.sqlite"
database.touch(mode=0o600)
database.chmod(0o600)  # sqlite creates its other files with the same mode
c.JupyterHub.db_url = os.environ.get("GPUSPAWNER_DEMO_DATABASE") or f"sqlite:///{database}"
c.JupyterHub.cookie_secret_file = str(folder / "cookie_secret")
c.JupyterHub.authenticator_class = "jupyterhub_gpuspawner.demo.sign_in.DemoAuthenticator"
c.DemoAuthenticator.password = os.environ["GPUSPAWNER_DEMO_PASSWORD"]
if os.environ.get("GPUSPAWNER_DEMO_LINK_KEY"):
    c.DemoAuthenticator.link_key = os.environ["GPUSPAWNER_DEMO_LINK_KEY"]
    c.JupyterHub.template_paths = [str(Path(sign_in.__file__).with_name("templates"))]
people = set(filter(None, os.environ.get("GPUSPAWNER_DEMO_PEOPLE", "").split(",")))
c.Authenticator.allowed_users = people
c.Authenticator.allow_all = not people
c.Authenticator.admin_users = {"admin"}
c.JupyterHub.allow_named_servers = True
c.JupyterHub.cleanup_servers = True  # the demo's Slurm ends with the hub; a site sets it to False
c.JupyterHub.services = [{"name": "demo", "api_token": os.environ["GPUSPAWNER_DEMO_TOKEN"]}]
c.JupyterHub.load_roles = [
    {
        "name": "demo",
        "services": ["demo"],
        "scopes": ["admin:users", "admin:servers", "admin:server_state", "access:servers"],
    }
]

homes = folder / "homes"
account = os.environ.get("GPUSPAWNER_DEMO_ACCOUNT", "")  # that servers run as; empty: the hub's
c.Spawner.cmd = [os.environ["GPUSPAWNER_DEMO_SINGLEUSER"]]
of_root = os.getuid() == 0 and not account  # in tests alone: root's demo has another account for its servers
c.Spawner.args = ["--allow-root"] if of_root else []
c.GPUSlurmSpawner.dangerously_run_servers_as_root = of_root
if os.environ.get("GPUSPAWNER_DEMO_TMP"):
    c.Spawner.environment = {"TMPDIR": os.environ["GPUSPAWNER_DEMO_TMP"]}  # it is removed with the demo
c.Spawner.http_timeout = 120
c.GPUSlurmSpawner.exec_prefix = " ".join(command_prefix(account))
c.GPUSlurmSpawner.req_homedir = str(homes / "{username}")
c.GPUSlurmSpawner.hub_name = "demo"
c.GPUSlurmSpawner.start_timeout = 600  # from Slurm's allocation on: waiting in the queue has no limit here
if os.environ.get("GPUSPAWNER_DEMO_USAGE_INTERVAL"):
    c.GPUSlurmSpawner.usage_interval = float(os.environ["GPUSPAWNER_DEMO_USAGE_INTERVAL"])
c.GPUSlurmSpawner.topology_file = os.environ.get("GPUSPAWNER_DEMO_TOPOLOGY", "")
c.GPUSlurmSpawner.slurm_bin_dir = os.environ.get("GPUSPAWNER_DEMO_SLURM", "")
c.GPUProfilesSpawner.local_spawner_class = "jupyterhub_gpuspawner.demo.account.LocalServer"
c.LocalServer.account = account
c.LocalServer.home_dir_template = str(homes / "{username}")


def refuse_if_full(spawner, home):
    """Have nobody wait for a server that cannot write; with the profile that makes room it need not."""
    total, _, free = shutil.disk_usage(home)
    if free == 0 and not spawner.request.profile.rescue:
        # status 507 (Insufficient Storage) says to the plugin that the home folder is full
        raise web.HTTPError(507, "Your home folder is full: %d of %d MiB are used.", total >> 20, total >> 20)


def make_home(spawner):
    """Create the user's home folder: users of the demo have no accounts.

    JupyterLab does not ask whether it may fetch Jupyter's news. A home that is there is left alone: its owner may have
    put a link in the place of anything in it.
    """
    home = homes / spawner.user.name
    if home.exists():
        refuse_if_full(spawner, home)
        return
    homes.mkdir(mode=0o711, parents=True, exist_ok=True)
    home.mkdir(mode=0o700)
    settings = home / ".jupyter/lab/user-settings/@jupyterlab/apputils-extension/notification.jupyterlab-settings"
    settings.parent.mkdir(parents=True)
    settings.write_text('{"fetchNews": "false"}\n')
    give_to(home, account)


c.Spawner.pre_spawn_hook = make_home
