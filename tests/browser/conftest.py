"""Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.browser.seeing import DESK, PHONE
from tests.fixtures.hubs import stop_servers

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE = 60_000
"""Milliseconds for one step of a page, on a busy machine."""
expect.set_options(timeout=PATIENCE)

OpenPage = Callable[..., Page]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One headless Chromium for the whole session."""
    if not Path(CHROMIUM).exists():
        pytest.skip("chromium is not installed (apt-get install chromium)")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Iterator[OpenPage]:
    """``open_page(dark=True, phone=True, javascript=False)``: a separate window, not signed in.

    The last screenshot of each is kept in pytest's temporary folder.
    """
    with ExitStack() as stack:

        def take_screenshot(window: Page, number: int) -> None:
            if not window.is_closed():
                window.screenshot(path=tmp_path / f"last-{number}.png")

        def make(*, dark: bool = False, phone: bool = False, javascript: bool = True) -> Page:
            context = browser.new_context(
                viewport=PHONE if phone else DESK,
                has_touch=phone,
                color_scheme="dark" if dark else "light",
                java_script_enabled=javascript,
                reduced_motion="reduce",
            )
            stack.callback(context.close)
            context.set_default_timeout(PATIENCE)
            window = context.new_page()
            stack.callback(take_screenshot, window, len(windows))
            windows.append(window)
            return window

        windows: list[Page] = []
        yield make


@pytest.fixture
def page(open_page: OpenPage) -> Page:
    """A typical window: light, wide, with JavaScript."""
    return open_page()


@pytest.fixture
def no_job_is_left(hub: HubProcess, slurm_cluster: PrivateSlurm) -> Iterator[None]:
    """Stop what a test left running on its module's hub, so that the next test finds free nodes."""
    yield
    stop_servers(hub)
    jobs = slurm_cluster.run("squeue", "-h", "-o", "%i").split()
    if jobs:
        slurm_cluster.run("scancel", *jobs)
