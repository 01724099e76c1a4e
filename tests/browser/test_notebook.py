"""What a participant does: sign in, choose, start, wait, work, and look at the placement."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from playwright.sync_api import Page, TimeoutError, expect

from jupyterhub_gpuspawner.demo.hub import HubProcess
from tests.browser.seeing import shoot, sign_in

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.browser, pytest.mark.oldest]


def run_in_notebook(page: Page, code: str) -> str:
    """Open a notebook from the launcher of a real JupyterLab, run one cell, return its output."""
    page.locator('.jp-LauncherCard[data-category="Notebook"]').first.click()
    cell = page.locator(".jp-Notebook .jp-CodeCell .cm-content").first
    cell.click()
    page.keyboard.insert_text(code)
    expect(cell).to_have_text(code)
    output = page.locator(".jp-Notebook .jp-OutputArea-output pre").first
    for _ in range(6):  # JupyterLab drops cells that are run before the kernel is connected
        page.locator('jp-button[data-command="notebook:run-cell-and-select-next"]').click()
        with suppress(TimeoutError):
            output.wait_for(timeout=10_000)
            break
        cell.click()
    return output.inner_text().strip()


def test_from_the_click_to_the_kernel_and_back_to_the_home_page(shared_hub: HubProcess, page: Page) -> None:
    """The GPUs in the kernel's CUDA_VISIBLE_DEVICES are those on the home page; JupyterLab shows the time left."""
    sign_in(page, shared_hub, "pia")
    page.goto(f"{shared_hub.url}/hub/spawn")
    page.check("#profile-p100x4")
    expect(page.locator(".gs-choice:has(#profile-p100x4)")).to_contain_text("Starts now")
    expect(page.locator("#spawn_form")).not_to_contain_text("Asking Slurm")
    shoot(page, "choose")
    page.click("#spawn_form button[type=submit]")
    page.wait_for_url(re.compile("/(spawn-pending|user)/pia"))
    if "spawn-pending" in page.url:
        expect(page.locator('[data-fact="job"]')).to_have_text(re.compile("[0-9]+"))
    page.wait_for_url(re.compile("/user/pia/lab"), timeout=120_000)
    expect(page.locator(".gpuspawner-status")).to_contain_text(" left · ")
    visible = run_in_notebook(page, 'import os; print(os.environ["CUDA_VISIBLE_DEVICES"])')

    page.goto(f"{shared_hub.url}/hub/home")
    page.locator("summary").first.click()
    shown = page.locator('#gpuspawner-servers [data-fact="GPUs"]').inner_text()
    shoot(page, "home")

    assert re.findall(r"GPU (\d+):", shown) == visible.split(",")
    assert len(visible.split(",")) == 4
    expect(page.locator('#gpuspawner-servers [data-fact="Node"]')).to_have_text("d1")
    expect(page.locator("#gpuspawner-servers")).to_contain_text("simulated")

    shared_hub.end("pia")
