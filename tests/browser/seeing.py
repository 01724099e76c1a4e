"""Helpers for pages: signing in, screenshots for the documentation, accessibility, width."""

from __future__ import annotations

import os
import re
from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from axe_playwright_python.sync_playwright import Axe

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route, ViewportSize

    from jupyterhub_gpuspawner.demo.hub import HubProcess

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
PHONE: ViewportSize = {"width": 360, "height": 740}
"""The width of a small phone in CSS pixels."""
DESK: ViewportSize = {"width": 1100, "height": 900}


def sign_in(page: Page, hub: HubProcess, name: str) -> None:
    """Sign in on the hub's own page; works without JavaScript, too."""
    page.goto(f"{hub.url}/hub/login")
    page.fill("#username_input", name)
    page.fill("#password_input", hub.password)
    page.click("#login_submit")
    page.wait_for_url(re.compile("/hub/(spawn|home)"))


def sign_in_with_server(page: Page, hub: HubProcess, name: str, path: str = "/hub/home") -> None:
    """For a user with a running server, whom the hub would redirect there."""
    page.goto(f"{hub.url}/hub/login?next={path.replace('/', '%2F')}")
    page.fill("#username_input", name)
    page.fill("#password_input", hub.password)
    page.click("#login_submit")
    page.wait_for_url(f"**{path}")


def return_until(page: Page, shown: Callable[[], object], *, times: int = 120) -> None:
    """Return to the page's tab, on which it asks the hub anew instead of in half a minute, until this is true."""
    for _ in range(times):
        if shown():
            return
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        page.wait_for_timeout(500)
    raise AssertionError(f"the page does not show it, but {page.locator('main').inner_text()}")


def shoot(page: Page, name: str) -> None:
    """Keep a screenshot of the whole page as ``docs/pictures/NAME.png``, where GPUSPAWNER_PICTURES is set."""
    if not os.environ.get("GPUSPAWNER_PICTURES"):
        return
    PICTURES.mkdir(exist_ok=True)
    window = page.viewport_size or DESK
    height: int = page.evaluate("document.body.scrollHeight")
    page.set_viewport_size({"width": window["width"], "height": max(height, window["height"] // 2)})
    page.screenshot(path=PICTURES / f"{name}.png")
    page.set_viewport_size(window)


def axe_faults(page: Page) -> list[str]:
    """What axe finds serious or critical on a page, one line for each element; it needs JavaScript.

    JupyterHub's navigation bar is left out: it is not ours.
    """
    results = Axe().run(page, context={"exclude": [["nav.navbar"]]}).response
    return [
        f"{fault['impact']} {fault['id']}: {' '.join(map(str, node['target']))}: {node['failureSummary']}"
        for fault in results["violations"]
        if fault["impact"] in ("serious", "critical")
        for node in fault["nodes"]
    ]


def small_targets(page: Page, within: str) -> list[str]:
    """Links, buttons and fields that are less than 44 CSS pixels wide or high, with their size (WCAG 2.2, 2.5.5)."""
    small: list[str] = page.evaluate(
        """(within) => [...document.querySelector(within).querySelectorAll("a, button, summary, select, input")]
            .map((each) => [each, each.getBoundingClientRect()])
            .filter(([, box]) => box.width && (box.width < 44 || box.height < 44))
            .map(([each, box]) => `${each.outerHTML.slice(0, 80)}: ${box.width} x ${box.height}`)""",
        within,
    )
    return small


def width_left_over(page: Page) -> int:
    """CSS pixels by which a page is wider than its window; 0 where no horizontal scrolling is needed."""
    excess: int = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return excess


def broken_headers(page: Page) -> list[str]:
    """Words in headers of tables that are broken into two lines, since their column is too narrow."""
    broken: list[str] = page.evaluate(
        """() => [...document.querySelectorAll("th")].flatMap((header) => [...header.childNodes]
            .filter((node) => node.nodeType === Node.TEXT_NODE)
            .flatMap((node) => [...node.data.matchAll(/\\S+/g)].filter(({ 0: word, index }) => {
              const range = new Range();
              range.setStart(node, index);
              range.setEnd(node, index + word.length);
              return range.getClientRects().length > 1;
            }).map(([word]) => word)))"""
    )
    return broken


def assert_accessible(page: Page) -> None:
    """No serious finding of axe, and no horizontal scrolling."""
    faults = (axe_faults(page), width_left_over(page))
    assert faults == ([], 0), faults


class Strict:
    """A site whose Content-Security-Policy allows nothing inline, in front of a window.

    JupyterHub's own frame has scripts in its pages: each is allowed by its hash (that none is ours, test_tokens says).
    ``faults`` is what the browser refused.
    """

    def __init__(self, page: Page) -> None:
        self.faults: list[str] = []
        page.expose_function("reportViolation", self._add)
        page.add_init_script(
            """document.addEventListener("securitypolicyviolation", (fault) =>
                reportViolation(`${fault.violatedDirective} ${fault.blockedURI} ${fault.sourceFile}`))"""
        )
        page.route("**", self._answer)

    def _add(self, fault: str) -> None:
        self.faults.append(fault)

    def _answer(self, route: Route) -> None:
        if route.request.resource_type != "document":
            route.continue_()
            return
        response = route.fetch(max_redirects=0)
        scripts = re.findall(r"<script(?![^>]*\ssrc=)[^>]*>(.*?)</script>", response.text(), re.DOTALL)
        hashes = (b64encode(sha256(script.encode()).digest()).decode() for script in scripts)
        sources = " ".join(f"'sha256-{value}'" for value in hashes)
        policy = (
            f"default-src 'self'; style-src 'self'; script-src 'self' {sources} 'report-sample'; img-src 'self' data:"
        )
        route.fulfill(response=response, headers={**response.headers, "content-security-policy": policy})
