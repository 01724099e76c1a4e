"""The pages of one user's server, as somebody else reads them."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.fixtures.hubs import COMMAND, offer
from tests.hub.visitor import Visitor
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.oldest]

WRITTEN = "what the server wrote"
PROFILE = f"""
- display_name: Writes
  slug: writes
  slurm: {{partition: batch, cpus: 1, memory: 100M, time: "0:10:00"}}
  environment: {{setup: "echo {WRITTEN}"}}
  command: {COMMAND}
"""


@pytest.fixture(scope="module")
def hub(light_hub: HubProcess) -> HubProcess:
    """A hub in which ben may use ann's servers and con may start and stop them."""
    offer(light_hub, "writes", PROFILE)
    return light_hub


@pytest.mark.parametrize("path", ["/hub/home", "/hub/user/ann/", "/hub/spawn-pending/ann"])
def test_a_page_of_somebody_elses_server_shows_its_readers_messages(hub: HubProcess, path: str) -> None:
    """JupyterHub's ``user`` is the server's owner there."""
    for name in ("ann", "ben"):
        hub.api("POST", "/gpuspawner/messages", {"message": f"For {name} alone.", "to": {"user": name}})

    def messages(reader: str) -> list[str]:
        page = Visitor(hub, reader).look(path)
        return [element.get_text() for element in page.soup.select(".gpuspawner-message b")]

    assert messages("ben") == ["For ben alone."]
    assert messages("ann") == ["For ann alone."]


def test_only_who_may_open_a_server_reads_what_it_wrote(hub: HubProcess, slurm_cluster: PrivateSlurm) -> None:
    """The log page needs the scope ``access:servers``, and so do the lines of the log on the page of its end."""
    hub.spawn("ann", {"profile": "writes"})
    slurm_cluster.run("scancel", str(hub.api("GET", "/gpuspawner/placement/ann").json()["job_id"]))
    hub.wait("ann", ready=False)
    readers = {name: Visitor(hub, name) for name in ("ann", "ben", "con")}

    def reads(name: str) -> bool:
        page = readers[name].look("/hub/spawn-pending/ann")
        assert "cancelled" in page.text
        return WRITTEN in page.soup.get_text()

    wait_until(lambda: reads("ann"), "the page has no line of the log")  # which is read after the end was noticed
    assert {name: reads(name) for name in readers} == {"ann": True, "ben": True, "con": False}
