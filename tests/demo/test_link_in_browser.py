"""The demo's link in a browser, behind a policy that allows nothing inline."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.sign_in import PEOPLE
from tests.browser.seeing import Strict
from tests.fixtures.browser import OpenPage
from tests.fixtures.hubs import needs_proxy

pytestmark = [pytest.mark.hub, pytest.mark.browser]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubProcess]:
    """The demo's hub without Slurm, whose link was not used."""
    needs_proxy()
    folder = tmp_path / "hub"
    (folder / "profiles").mkdir(parents=True)
    with HubProcess(folder, people=PEOPLE, link_key="the-key-of-the-link") as hub:
        yield hub


def test_the_link_signs_in_under_a_strict_policy(hub: HubProcess, open_page: OpenPage) -> None:
    """Its script is a file; the second time the page says how to go on, and without a key nothing happens."""
    assert hub.link is not None
    faults, seen = [], []
    for link in (hub.link.partition("#")[0], hub.link, hub.link):
        page = open_page()
        strict = Strict(page)
        page.goto(link)
        expect(
            page.locator("h1", has_text=re.compile("Sign in to the demo|servers|Choose|Start|does not"))
        ).to_be_visible()
        page.wait_for_timeout(1000)
        seen.append((page.locator("h1").inner_text(), page.url.removeprefix(hub.url).partition("?")[0]))
        faults += strict.faults

    assert faults == []
    assert [seen[0], seen[2]] == [("Sign in to the demo", "/hub/demo"), ("This link does not sign in", "/hub/demo")]
    assert re.match("/hub/(spawn|home)", seen[1][1])
