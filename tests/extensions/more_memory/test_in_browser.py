"""A real server that Slurm kills for its memory: the form with the larger profile is one click away."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import (
    ClusterDescription,
    PrivateSlurm,
    SimulatedNode,
    SimulatedPartition,
)
from tests.browser.seeing import axe_faults, sign_in
from tests.fixtures.browser import OpenPage
from tests.fixtures.hubs import IN_THE_END, STAND_IN, start_hub
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.browser]

NODE = SimulatedNode("m1", machine="cpu", sockets=1, cores_per_socket=4, memory_mib=4000)
CLUSTER = ClusterDescription((NODE,), (SimulatedPartition("batch", ("m1",)),), name="memory", limits_memory=True)
GROW = "import time; text = bytes(bytearray(700 << 20)); time.sleep(60)"
HUNGRY = f"{sys.executable} -c '{GROW}' & exec {sys.executable} {STAND_IN}"
PROFILES = f"""
- display_name: Small
  slug: small
  slurm: {{partition: batch, cpus: 1, memory: 300M, time: "0:10:00"}}
  command: [bash, -c, "{HUNGRY}"]
- display_name: Huge
  slug: huge
  slurm: {{partition: batch, cpus: 1, memory: 2G, time: "1:00:00"}}
- display_name: Large
  slug: large
  slurm: {{partition: batch, cpus: 1, memory: 1G, time: "1:00:00"}}
"""
CHOOSE = "Choose Large with 1 GiB"


@pytest.fixture(scope="module")
def hub(needs_slurm: None, public_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    """A hub with a profile whose servers need more memory than it has, and two with more."""
    with PrivateSlurm(CLUSTER, public_folder / "memory") as slurm, ExitStack() as stack:
        yield start_hub(stack, slurm, tmp_path_factory.mktemp("memory"), lines=IN_THE_END, profiles=PROFILES)


def test_a_server_that_ran_out_of_memory_leads_to_the_form_with_the_larger_profile(
    hub: HubProcess, open_page: OpenPage
) -> None:
    """From its card and from its own address, where that is the first button."""
    hub.spawn("mia", {"profile": "small"})
    wait_until(lambda: not hub.server("mia"), hub.log_end)
    page, phone = open_page(), open_page(dark=True, phone=True)
    for window in (page, phone):
        sign_in(window, hub, "mia")
        for path in ("/hub/home", "/hub/user/mia/"):
            look(window, f"{hub.url}{path}")
            assert axe_faults(window) == []
    assert page.locator(".gs-primary").all_inner_texts() == [CHOOSE]
    page.get_by_role("link", name=CHOOSE).click()
    page.wait_for_url(re.compile("/hub/spawn/mia"))

    expect(page.locator("#profile-large")).to_be_checked()


def look(page: Page, url: str) -> None:
    """Go to a page that says why the server ended, and what has more memory."""
    page.goto(url)
    expect(page.get_by_text("The job exceeded its memory limit of 300 MiB.")).to_be_visible()
    expect(page.get_by_role("link", name=CHOOSE)).to_be_visible()
