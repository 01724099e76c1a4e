"""The two services of docker/, run as processes with the commands and the environment of compose.yaml."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from jupyterhub_gpuspawner.demo.hub import HubProcess
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())
SLURM, HUB = COMPOSE["services"]["slurm"], COMPOSE["services"]["hub"]


def test_only_this_machine_reaches_the_hub() -> None:
    """All users have one password, so the port is published on 127.0.0.1 only."""
    assert [port.rpartition(":")[0] for port in SLURM["ports"]] == ["127.0.0.1:8000"]
    assert "ports" not in HUB


@pytest.fixture
def hub(two_users: tuple[str, str], public_folder: Path, tmp_path: Path, needs_slurm: None) -> Iterator[HubProcess]:
    """Both services; the hub's configuration has a token and free ports after it."""
    run = public_folder / "run"
    environment = {
        key: value.replace("/run/gpuspawner", str(run)).replace("${HUB_PASSWORD:-}", "")
        for key, value in HUB["environment"].items()
    }
    environment |= {"HUB_USERS": " ".join(two_users), "PATH": os.environ["PATH"]}
    hub = HubProcess(tmp_path / "hub", environment=environment)
    config = tmp_path / "jupyterhub_config.py"
    config.write_text(
        f"load_subconfig({str(ROOT / HUB['command'][1])!r})\n"
        f"c.JupyterHub.bind_url = {hub.url!r}\n"
        f"c.JupyterHub.hub_port = {hub.ports[1]}\n"
        f"c.ConfigurableHTTPProxy.api_url = 'http://127.0.0.1:{hub.ports[2]}'\n"
        "c.JupyterHub.cleanup_servers = c.JupyterHub.cleanup_proxy = True\n"
        f"c.JupyterHub.services = [dict(name='test', api_token={hub.token!r})]\n"
        "scopes = ['admin:users', 'admin:servers', 'admin:server_state', 'access:servers']\n"
        "c.JupyterHub.load_roles = [dict(name='test', services=['test'], scopes=scopes)]\n"
    )
    slurm_command = [ROOT / SLURM["command"][0], run / "slurm"]
    with subprocess.Popen(slurm_command, stdout=subprocess.DEVNULL, env={"PATH": os.environ["PATH"]}) as slurm:
        try:
            healthy = SLURM["healthcheck"]["test"][1:]
            wait_until(
                lambda: subprocess.run(healthy, env=environment, capture_output=True, check=False).returncode == 0,
                "Slurm is healthy",
            )
            with (tmp_path / "hub.log").open("wb") as log:
                hub.log = Path(log.name)
                command = [ROOT / HUB["command"][0], config, hub.folder]
                hub.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
            try:
                wait_until(hub.answers, f"the hub answers: {hub.log}")
                (hub.password,) = re.findall(r"^The password of \w+ \w+: (\S{20,})$", hub.log.read_text(), re.MULTILINE)
                yield hub
            finally:
                hub.stop()
        finally:
            slurm.terminate()
    assert not (run / "slurm").exists()


@pytest.mark.nightly
@pytest.mark.slurm
@pytest.mark.hub
@pytest.mark.users
def test_a_user_of_the_image_gets_a_server_as_that_user(hub: HubProcess, two_users: tuple[str, str]) -> None:
    """On a simulated node, with its GPU."""
    placement = hub.spawn(two_users[0], {"profile": "k80"})
    assert (placement["node"], [gpu["name"] for gpu in placement["gpus"]]) == ("g1", ["Tesla K80"])
    ask = ["scontrol", "show", "job", placement["job_id"]]
    job = subprocess.run(ask, env=dict(hub.environment), capture_output=True, text=True, check=True).stdout
    assert re.search(r"UserId=([^(]+)", job)[1] == two_users[0]  # type: ignore[index]
    hub.end(two_users[0])
