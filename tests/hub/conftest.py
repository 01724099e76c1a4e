"""One hub with light profiles for all tests that need no settings of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.fixtures.hubs import start_hub
from tests.hub.commands import OddSite, commands

OF_ONE_SERVER = ["read:servers", "access:servers", "delete:servers"]
ROLES = {
    "ben": ["servers!user=ann", "access:servers!user=ann"],
    "con": ["servers!user=ann"],
    "dan": [f"{scope}!server=ann/" for scope in OF_ONE_SERVER],
    "nils": [f"{scope}!server=ann/None" for scope in OF_ONE_SERVER],
}
"""What some people may do with the servers of ann, of which one is named None."""
CONFIG = f"""
import asyncio

c.JupyterHub.tornado_settings = {{"slow_spawn_timeout": 0.5}}  # REST answers a start soon
c.JupyterHub.load_roles += [
    {{"name": f"as-{{user}}", "users": [user], "scopes": scopes}} for user, scopes in {ROLES!r}.items()
]
c.Authenticator.allowed_users = {{"ann", *{list(ROLES)!r}}}
c.JupyterHub.concurrent_spawn_limit = 0
c.JupyterHub.active_server_limit = 0
c.JupyterHub.named_server_limit_per_user = lambda handler: 2 if handler.current_user.name == "liv" else 0
from jupyterhub_gpuspawner.hub.site import connection
connection.COMMANDS_AT_A_TIME = 40
from jupyterhub_gpuspawner.hub import upkeep
upkeep.CONFIRMED_AFTER = 1.0
from jupyterhub_gpuspawner.hub.job import watch
watch.RUNNING_SECONDS = 0.0  # each page that says that a server runs has Slurm asked
from jupyterhub_gpuspawner.slurm import snapshot_reader, watcher
snapshot_reader._MAX_AGE = 0.0  # seconds for which the address of a node is kept
watcher.ACTIVE_INTERVAL = 0.5
from jupyterhub.user import User
new_spawner = User._new_spawner


def logged(user, server_name, *arguments, **options):
    user.log.info("A spawner is made: %s/%s", user.name, server_name)
    return new_spawner(user, server_name, *arguments, **options)


User._new_spawner = logged  # jupyterhub's dictionary of spawners takes the method from the user
make_home = c.Spawner.pre_spawn_hook


async def late(spawner, auth_state):
    if spawner.user.name == "lena":
        await asyncio.sleep(1.5)


c.Spawner.auth_state_hook = late

def hook(spawner):
    make_home(spawner)
    for name, value in of_users.get(spawner.user.name, {{}}).items():
        setattr(spawner, name, value)


c.Spawner.pre_spawn_hook = hook
"""


@pytest.fixture(scope="session")
def commands_folder(slurm_cluster: PrivateSlurm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the commands that :func:`light_hub` runs."""
    return commands(tmp_path_factory.mktemp("odd") / "bin", slurm_cluster.bin_dir, {})


@pytest.fixture(scope="session")
def light_hub(
    slurm_cluster: PrivateSlurm, commands_folder: Path, public_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HubProcess]:
    """A hub whose servers are stand-ins; each test uses its own users. REST answers a start soon."""
    of_users = {
        "mel": {"ip": "0.0.0.0"},
        "ida": {"ip": "127.0.0.1"},
        "dora": {"http_timeout": 3600},
        "fil": {"log_dir": f"{public_folder}/full"},
    }
    lines = f"{CONFIG}\nof_users = {of_users!r}\nc.GPUSlurmSpawner.slurm_bin_dir = {str(commands_folder)!r}"
    with ExitStack() as stack:
        temporary = str(tmp_path_factory.mktemp("temporary"))
        yield start_hub(stack, slurm_cluster, tmp_path_factory.mktemp("hub"), lines=lines, TMPDIR=temporary)


@pytest.fixture
def odd_site(light_hub: HubProcess, slurm_cluster: PrivateSlurm, commands_folder: Path) -> Iterator[OddSite]:
    """The same hub, whose commands a test can change; at its end they are Slurm's own again."""
    site = OddSite(light_hub, slurm_cluster, commands_folder)
    yield site
    site.change({})
