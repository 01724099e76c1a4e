"""Settings with which no server would be reached are refused before the hub starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from traitlets import TraitError

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.extensions.tunnel.settings import TunnelSettings
from jupyterhub_gpuspawner.site.configuration import load_site

HUB = """
c.JupyterHub.spawner_class = "gpu-slurm"
c.GPUSlurmSpawner.exec_prefix = "sudo -u {username}"
"""
SSH = "c.GPUSlurmSpawner.tunnel = 'ssh -F /etc/config tunnel'"
TO_HUB = f"{SSH}; c.GPUSlurmSpawner.tunnel_to_hub = True"


def fault(tmp_path: Path, lines: str) -> str:
    """Why a hub with these lines does not start; empty if it does."""
    config = tmp_path / "jupyterhub_config.py"
    config.write_text(
        f"c.JupyterHub.spawner_class = 'gpu-slurm'\nc.GPUSlurmSpawner.exec_prefix = 'sudo -u {{username}}'\n{lines}\n"
    )
    try:
        load_site(config).spawner("ada").check()
    except (ConfigError, TraitError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ("", ""),
        (SSH, ""),
        (f"{TO_HUB}; c.Spawner.hub_connect_url = 'http://10.0.0.20:25681'", ""),
        (f"{TO_HUB}; c.Spawner.hub_connect_url = 'http://[fd00::20]:25681'", ""),
        ("c.GPUSlurmSpawner.tunnel_ports = '26000-27999'", ""),
        (
            "c.GPUSlurmSpawner.tunnel = 'ssh login id'",
            "c.GPUSlurmSpawner.tunnel: 'ssh login id' is no ssh to a login node. Use ssh [OPTION]... LOGIN-NODE, such "
            "as ssh -F /etc/jupyterhub/ssh/tunnel_ssh_config tunnel.",
        ),
        (
            "c.GPUSlurmSpawner.tunnel_ports = '26000-28000'",
            "c.GPUSlurmSpawner.tunnel_ports: '26000-28000' must be 1 to 2000 ports.",
        ),
        ("c.GPUSlurmSpawner.tunnel_ports = ''", "c.GPUSlurmSpawner.tunnel_ports: '' must be 1 to 2000 ports."),
        (
            "c.GPUSlurmSpawner.tunnel_to_hub = True",
            "c.GPUSlurmSpawner.tunnel_to_hub: there is no tunnel. Set tunnel, too.",
        ),
        (
            TO_HUB,
            "c.GPUSlurmSpawner.tunnel_to_hub: the spawner's hub_connect_url must be an address and a port of the login "
            'node. Set c.Spawner.hub_connect_url, such as to "http://10.0.0.20:25681".',
        ),
        (
            f"{TO_HUB}; c.Spawner.hub_connect_url = 'http://login'",
            "c.GPUSlurmSpawner.tunnel_to_hub: the spawner's hub_connect_url must be an address and a port of the login "
            'node. Set c.Spawner.hub_connect_url, such as to "http://10.0.0.20:25681".',
        ),
        (
            "c.GPUSlurmSpawner.tunnel_connections = 17",
            "c.GPUSlurmSpawner.tunnel_connections: tunnel_connections: 17 must be a whole number from 1 to 16.",
        ),
    ],
)
def test_settings_are_refused_by_their_names(tmp_path: Path, lines: str, text: str) -> None:
    """With what would be right."""
    assert fault(tmp_path, lines) == text


def test_a_tunnel_may_be_one_clusters(tmp_path: Path) -> None:
    """The ports are all clusters'."""
    clusters = "c.GPUSlurmSpawner.clusters = {'near': {}, 'far': {'tunnel': 'ssh far'%s}}"

    assert fault(tmp_path, clusters % "") == ""
    assert "'tunnel_ports' is no setting of a cluster" in fault(tmp_path, clusters % ", 'tunnel_ports': '1-2'")


def test_each_setting_says_what_it_is() -> None:
    """In the reference."""
    assert all(trait.help for trait in TunnelSettings.class_traits(config=True).values())
