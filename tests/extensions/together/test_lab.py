"""The companion in a real JupyterLab: the time left, use of the GPUs, notices, saving before the end, *More time*."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.browser.seeing import DESK, axe_faults, shoot, sign_in
from tests.browser.test_notebook import run_in_notebook
from tests.fixtures.browser import PATIENCE
from tests.fixtures.hubs import StartHub
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.browser, pytest.mark.nightly]

PROFILES = """
- display_name: Short
  slug: short
  slurm: {partition: gpu, gpus: 2, gpu_type: k80, cpus: 2, memory: 1G, time: "0:03:00"}
  extend: {by: 30min, times: 1}
- display_name: A GPU
  slug: idle
  slurm: {partition: gpu, gpus: 2, gpu_type: k80, cpus: 2, memory: 1G, time: "0:30:00"}
  idle: {gpu: 10min, action: stop, keep: {by: 15min, times: 1}}
- display_name: Without a GPU
  slug: cpu
  slurm: {partition: batch, cpus: 2, memory: 1G, time: "0:30:00"}
"""
MINUTES = """
c.GPUSlurmSpawner.lab_notices = [30, 2, 1]
from jupyterhub_gpuspawner.extensions.lab import hub as lab_hub
lab_hub.SAVES = (2, 1)
c.GPUSlurmSpawner.usage_interval = 1
from jupyterhub_gpuspawner.extensions.idle import fields, policy, watch as idle_watch
idle_watch.POLL_SECONDS = 1.0
fields.WARNED_AFTER, fields.HELD_FACTOR = (1 / 120,), 1
policy.UNUSED_PERCENT = 100.0  # the simulated GPUs are busy now and then
"""
"""A second chance, for a machine on which JupyterLab takes more than a minute to load."""
CELL = "# written before the end"
TOKENS = """(panel) => [
    getComputedStyle(panel).getPropertyValue("--gs-yours"),
    getComputedStyle(panel.querySelector(".gs-bar")).blockSize,
]"""
"""A colour of the hub's pages, and the height of a bar as these have it."""


@pytest.fixture(scope="module")
def hub(start_light_hub: StartHub) -> HubProcess:
    """A hub whose account is SlurmUser, with a profile of three minutes that can be extended."""
    return start_light_hub(lines=MINUTES, profiles=PROFILES)


LAB_SETTINGS = {
    "docmanager-extension/plugin": {"autosave": False},
    "apputils-extension/notification": {"fetchNews": "false"},
}
"""What is saved is saved by the companion."""


def start_lab(page: Page, hub: HubProcess, user: str, profile: str) -> dict[str, Any]:
    """Sign in as a user with these settings of JupyterLab, and start a server; return its placement."""
    for name, values in LAB_SETTINGS.items():
        file = hub.folder / "homes" / user / ".jupyter/lab/user-settings/@jupyterlab" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(values))
    sign_in(page, hub, user)
    return hub.spawn(user, {"profile": profile})


@contextmanager
def silent(hub: HubProcess) -> Iterator[None]:
    """The hub does not answer; its proxy and its servers run."""
    assert hub.process is not None
    hub.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        hub.process.send_signal(signal.SIGCONT)


def sources(notebook: Path) -> str:
    """The text of a notebook's cells, as the file has it."""
    try:
        return "".join("".join(cell["source"]) for cell in json.loads(notebook.read_text())["cells"])
    except (OSError, ValueError):
        return ""


def right_edge(page: Page, items: str, width: int) -> float:
    """Where the rightmost of these ends in a window of this width, in CSS pixels."""
    page.set_viewport_size({"width": width, "height": 900})
    boxes = [box for item in page.locator(items).all() if (box := item.bounding_box()) is not None]
    return max(box["x"] + box["width"] for box in boxes)


@pytest.mark.timeout(300)
def test_the_end_of_a_job_is_told_and_moved(hub: HubProcess, slurm_cluster: PrivateSlurm, page: Page) -> None:
    """In a job of three minutes: the time left; without the hub's answer: GPU use, a notice, the notebook saved.

    When it does again, *More time* moves the end in Slurm.
    """
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    placement = start_lab(page, hub, "ada", "short")
    job = str(placement["job_id"])
    page.goto(f"{hub.url}/user/ada/lab")
    status = page.locator(".gpuspawner-status")
    expect(status).to_have_text(re.compile(r"^(\d+ min|\d+ s) left · (2 . K80, 12 GB|GPU .+)$"), timeout=PATIENCE)
    page.locator('.jp-LauncherCard[data-category="Notebook"]').first.click()
    page.locator(".jp-Notebook .jp-CodeCell .cm-content").first.click()
    page.keyboard.insert_text(CELL)
    with silent(hub):
        notice = page.locator(".jp-toast-message, .Toastify__toast").filter(has_text="This server ends in")
        expect(notice.first).to_be_visible(timeout=120_000)
        expect(notice.first).to_contain_text("Open documents are saved now.")
        # beside it there may be a file that is just being written
        (notebook,) = (hub.folder / "homes" / "ada").glob("[!.]*.ipynb")
        wait_until(lambda: CELL in sources(notebook))
        expect(status).to_have_text(
            re.compile(r" left · GPU \d+\s% / \d+\s%, [\d.]+ of 24 GB · memory [\d.]+ of 1 GiB$"), timeout=PATIENCE
        )
        notice.first.hover()  # waits until it has moved in
        shoot(page, "lab-notice")
        assert right_edge(page, ".jp-StatusBar-Item:visible", 1100) <= 1100  # with a notebook, whose items stand there
        assert right_edge(page, ".gpuspawner-status", 390) <= 390
        page.set_viewport_size(DESK)

    page.get_by_role("button", name="More time").first.click()
    expect(status).to_have_text(re.compile(r"^3[12] min left"), timeout=PATIENCE)
    assert slurm_cluster.run("squeue", "-h", "-j", job, "-o", "%l").strip() == "33:00"

    status.click()
    panel = page.locator(".gpuspawner-panel")
    expect(panel).to_contain_text(placement["node"], timeout=PATIENCE)
    expect(panel.locator("img")).to_have_js_property("complete", value=True)
    expect(panel.get_by_role("listitem")).to_have_text(
        [
            *(re.compile(rf"^GPU {gpu['index']} \d+\s%, ") for gpu in placement["gpus"]),
            re.compile(r"^CPUs [\d.]+ of \d+$"),
            re.compile(r"^memory [\d.]+ of 1 GiB$"),
        ]
    )
    expect(panel).to_contain_text("This server cannot be extended again.")
    expect(panel.get_by_role("button")).to_have_text(["Home", "Stop"])
    expect(panel).to_contain_text("Simulated, like the GPUs.")
    page.set_viewport_size({"width": 1360, "height": 1600})
    page.locator(".Toastify__toast").last.hover()  # waits until it has moved in
    shoot(page, "lab-panel")
    tokens = [panel.evaluate(TOKENS)]
    page.evaluate("document.body.dataset.jpThemeLight = 'false'")
    expect(panel).to_have_attribute("data-bs-theme", "dark")
    tokens.append(panel.evaluate(TOKENS))
    assert tokens == [["#0b57d0", "8px"], ["#8ab8ff", "8px"]]
    assert faults == []


@pytest.mark.timeout(300)
def test_memory_that_runs_low_is_told(hub: HubProcess, page: Page) -> None:
    """A kernel takes nine tenths of the job's memory: a warning says what to do, and goes when it has ended."""
    start_lab(page, hub, "cem", "cpu")
    page.goto(f"{hub.url}/user/cem/lab")
    expect(page.locator(".gpuspawner-status")).to_contain_text("of 1 GiB", timeout=120_000)
    assert run_in_notebook(page, "text = b'x' * (900 << 20); print(len(text))") == str(900 << 20)
    warning = page.locator(".jp-toast-message, .Toastify__toast").filter(has_text="Memory is nearly full")
    expect(warning.first).to_contain_text("Shut down kernels that you no longer need.", timeout=PATIENCE)
    page.get_by_role("button", name="Kernels").first.click()
    page.locator("#jp-running-sessions").get_by_text("Kernels", exact=True).first.hover()
    page.locator("#jp-running-sessions").get_by_role("button", name="Shut Down All").first.click()
    page.locator(".jp-Dialog").get_by_role("button", name="Shut Down All").click()
    expect(warning).to_have_count(0, timeout=PATIENCE)


@pytest.mark.timeout(360)
def test_an_idle_server_is_told_at_home_and_in_lab_and_kept(hub: HubProcess, page: Page) -> None:
    """Both say when the server will be stopped; *Keep* in JupyterLab moves that."""
    start_lab(page, hub, "ben", "idle")
    page.goto(f"{hub.url}/hub/home")
    notice = page.locator(".gpuspawner-idle")
    # the page asks every 30 s, and on a busy machine the samples are late
    expect(notice).to_contain_text("The GPUs of this server have not been used since", timeout=2 * PATIENCE)
    expect(notice).to_contain_text("It will be stopped at")
    assert axe_faults(page) == []
    figures = ".gpuspawner-use .gs-use, .gpuspawner-use .gs-spark, .gs-host"
    page.locator(figures).evaluate_all("found => found.forEach((each) => each.remove())")  # see MINUTES
    shoot(page, "home-idle")

    page.goto(f"{hub.url}/user/ben/lab")
    toast = page.locator(".jp-toast-message, .Toastify__toast").filter(has_text="have not been used since")
    expect(toast.first).to_contain_text("It will be stopped at", timeout=120_000)
    expect(page.get_by_role("button", name="Keep").first).to_be_in_viewport(ratio=1)
    page.get_by_text("Python 3 (ipykernel)").first.wait_for()
    toast.first.hover()  # waits until it has moved in
    page.locator(".gpuspawner-status").evaluate_all("found => found.forEach((each) => each.remove())")  # see MINUTES
    shoot(page, "lab-idle")
    page.get_by_role("button", name="Keep").first.click()
    expect(page.get_by_text("This server is kept for 15 min.").first).to_be_visible(timeout=PATIENCE)
    expect(toast).to_have_count(0)
    answer = hub.api("GET", "/gpuspawner/servers/ben/keep").json()
    assert (answer["state"], answer["told"], answer["keep"]["uses_left"]) == ("idle", False, 0)
