"""A Panel dashboard through the hub: opened as JupyterLab is, with its placement on the home page."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.browser.seeing import shoot, sign_in
from tests.hub.conftest import start_hub

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.browser]

DASHBOARD = """
import os
import panel as pn
pn.extension()
button = pn.widgets.Button(name="Count")
pressed = pn.bind(lambda n: f"Pressed {n}", button.param.clicks)
pn.Column("# GPUs " + os.environ["CUDA_VISIBLE_DEVICES"], button, pressed).servable()
"""
PANEL = Path(sys.executable).parent / "panel"


@pytest.fixture(scope="module")
def hub(slurm_cluster: PrivateSlurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    """A hub with a dashboard."""
    folder = tmp_path_factory.mktemp("dashboard")
    script = folder / "gpus.py"
    script.write_text(DASHBOARD)
    profiles = f"""
- display_name: Dashboard
  slug: dashboard
  slurm: {{partition: gpu, gpus: 2, gpu_type: k80, cpus: 2, memory: 1G, time: "0:30:00"}}
  app: {{kind: panel, command: [{PANEL}, serve], args: [{script}]}}
"""
    with ExitStack() as stack:
        yield start_hub(stack, slurm_cluster, tmp_path_factory.mktemp("hub"), profiles=profiles)


@pytest.mark.timeout(300)
def test_a_dashboard_is_started_opened_and_used_as_jupyterlab_is(hub: HubProcess, page: Page) -> None:
    """Its card names the application; it answers a click, by its WebSocket; the home page shows its GPUs."""
    sign_in(page, hub, "ada")
    page.goto(f"{hub.url}/hub/spawn")
    card = page.locator(".gpuspawner-profile").filter(has=page.locator("#profile-dashboard"))
    expect(card).to_contain_text("Panel")
    shoot(page, "application-choose")
    page.check("#profile-dashboard")
    page.click("#spawn_form button[type=submit]")
    page.wait_for_url(re.compile("/user/ada/"), timeout=180_000)
    heading = page.get_by_role("heading", name=re.compile("^GPUs "))
    expect(heading).to_be_visible(timeout=120_000)
    page.get_by_role("button", name="Count").click()
    expect(page.get_by_text("Pressed 1")).to_be_visible()
    shoot(page, "application")

    page.goto(f"{hub.url}/hub/home")
    page.locator("summary").first.click()
    servers = page.locator("#gpuspawner-servers")
    shown = servers.locator('[data-fact="GPUs"]').inner_text()
    assert len(re.findall(r"GPU \d+:", shown)) == 2
    expect(servers.get_by_role("link", name=re.compile("^Open"))).to_be_visible()
    shoot(page, "application-home")
