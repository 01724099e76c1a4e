"""A server behind a tunnel with ``internal_ssl``: its certificate is valid for the hub's end of the forward."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.extensions.tunnel.far_hub import BACK, answers, far_hub, far_nodes, masters
from tests.fixtures.hubs import needs_proxy
from tests.fixtures.login_node import LoginNode, missing
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.hub,
    pytest.mark.users,
    pytest.mark.nightly,
    pytest.mark.timeout(400),
]


@pytest.fixture(scope="module")
def machines(two_users: tuple[str, str], slurm_cluster: PrivateSlurm, site_folder: Path) -> Iterator[LoginNode]:
    """The login node, and the nodes behind it."""
    if reason := missing():
        pytest.skip(reason)
    with far_nodes(site_folder / "tls", slurm_cluster, two_users) as made:
        yield made


def is_there(hub: HubProcess) -> bool:
    """Whether the hub answers through its proxy; by itself it answers only who has a certificate."""
    try:
        return requests.get(f"{hub.url}/hub/api/", timeout=5).status_code == 200
    except requests.RequestException:
        return False


@pytest.fixture
def hub(machines: LoginNode, site_folder: Path, public_command: str) -> Iterator[HubProcess]:
    """A hub there with certificates, which name the login node's address, by which nodes reach it."""
    needs_proxy()
    folder = site_folder / "hub-tls"
    more = f"""
c.JupyterHub.internal_ssl = True
c.JupyterHub.hub_bind_url = c.JupyterHub.hub_bind_url.replace("http:", "https:")
c.ConfigurableHTTPProxy.api_url = c.ConfigurableHTTPProxy.api_url.replace("http:", "https:")
c.JupyterHub.internal_certs_location = {str(folder / "internal-ssl")!r}
c.JupyterHub.trusted_alt_names = ["IP:{machines.address}"]
c.Spawner.hub_connect_url = "https://{machines.address}:{BACK}"
"""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HubProcess, "answers", is_there)
        with far_hub(machines, folder, public_command, more=more) as started:
            yield started


def test_a_server_over_tls_is_reached(hub: HubProcess, machines: LoginNode) -> None:
    """Both ways, and again after its connection was lost."""
    hub.spawn(machines.person, {"profile": "one"})
    answered = answers(hub, machines.person)
    for master in masters(machines):
        master.kill()
    wait_until(lambda: answers(hub, machines.person), hub.log_end)
    hub.end(machines.person)

    assert answered
