"""The page while a server waits in Slurm's queue."""

from __future__ import annotations

import re
import threading

import pytest
from playwright.sync_api import Page, expect

from jupyterhub_gpuspawner.demo.hub import HubProcess, server_path
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.browser.seeing import shoot, sign_in

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.browser]


def test_a_waiting_named_server_says_why_and_its_stop_button_stops_it_alone(
    shared_hub: HubProcess, slurm_cluster: PrivateSlurm, page: Page
) -> None:
    """On a full node the page names job and reason; *Stop* cancels that job, and the default server goes on."""
    blocker = slurm_cluster.run(
        "sbatch", "--parsable", "--partition=gpu", "--gres=gpu:k80:4", "--output=/dev/null", "--wrap=sleep 600"
    )
    sign_in(page, shared_hub, "rosa")
    shared_hub.spawn("rosa", {"profile": "local"})
    starting = threading.Thread(
        target=shared_hub.api, args=("POST", server_path("rosa", "second"), {"profile": "k80"}), daemon=True
    )
    starting.start()
    try:
        while shared_hub.server("rosa", "second") is None:
            page.wait_for_timeout(100)
        page.goto(f"{shared_hub.url}/hub/spawn-pending/rosa/second")
        status = page.locator("#progress-message")
        expect(status).to_contain_text(re.compile(r"Job \d+: "), timeout=20_000)
        expect(page.locator("h1")).to_contain_text("second")
        waiting = slurm_cluster.run("squeue", "-h", "-t", "PD", "-o", "%i")
        shoot(page, "wait")

        page.click("#gpuspawner-stop")
        page.wait_for_url(re.compile("/hub/home"))

        assert waiting.isdigit()
        assert slurm_cluster.run("squeue", "-h", "-t", "PD", "-o", "%i") == ""
        assert shared_hub.server("rosa", "second") is None
        default = shared_hub.server("rosa")
        assert default is not None
        assert default["ready"]
    finally:
        slurm_cluster.run("scancel", blocker)
        starting.join(30)
        shared_hub.end("rosa")
