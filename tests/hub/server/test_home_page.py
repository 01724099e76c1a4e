"""The home page in hubs with settings and templates of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.demo.hub import HubProcess
from tests.fixtures.hubs import StartHub
from tests.hub.visitor import Visitor

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.oldest]

OWN_PAGE = """{% extends "templates/page.html" %}
{% block script %}{{ super() }}<script src="/site/statistics.js"></script>{% endblock script %}
"""
LINES = """
c.JupyterHub.allow_named_servers = False
c.JupyterHub.template_vars = {{"announcement_home": "Maintenance on Friday"}}
c.JupyterHub.template_paths = [{folder!r}]
"""


def test_a_sites_own_parts_of_the_page_stay(start_light_hub: StartHub, tmp_path: Path) -> None:
    """Its announcement and its script are there, JupyterHub's script for the stock page is not; no named servers."""
    (tmp_path / "page.html").write_text(OWN_PAGE)
    visitor = Visitor(start_light_hub(lines=LINES.format(folder=str(tmp_path))), "ann")
    page = visitor.look("/hub/home")
    scripts = [script.get("src") or script.get_text() for script in page.soup.select("script")]
    answer = visitor.click("/hub/home", name="lab")

    assert [element.get_text(strip=True) for element in page.soup.select(".announcement")] == ["Maintenance on Friday"]
    assert page.soup.select("input[name=name]") == []
    assert "/site/statistics.js" in scripts
    assert [script for script in scripts if 'require(["home"])' in script] == []
    assert answer.status_code == 400


def test_a_page_is_told_what_differs_from_what_it_shows(light_hub: HubProcess) -> None:
    """Its version stands for that; a card in an event is the one on the page, but for the token of its forms."""
    cara = Visitor(light_hub, "cara")  # signing in leads to a server that runs
    light_hub.spawn("cara", {"profile": "light"})
    page = cara.look("/hub/home").soup
    address = f"{light_hub.url}/hub/gpuspawner/home/events"
    with cara.session.get(address, params={"version": "another"}, stream=True, timeout=60) as answer:
        lines = answer.iter_lines(decode_unicode=True)
        event = json.loads(next(line for line in lines if line.startswith("data: ")).removeprefix("data: "))
    light_hub.end("cara")

    shown = page.select_one("#gpuspawner-servers")
    card = page.select_one("#gpuspawner-cards > section")
    assert shown is not None
    assert card is not None
    assert answer.headers["Content-Type"] == "text/event-stream"
    assert (event["version"], event["order"]) == (shown["data-version"], [""])
    assert f'data-version="{card["data-version"]}"' in event["cards"][""]


def test_a_stream_is_for_whoever_has_signed_in(light_hub: HubProcess) -> None:
    """The address of the sign-in, and no event."""
    visitor = Visitor(light_hub, "dina")
    visitor.session.cookies.clear()
    answer = visitor.session.get(f"{light_hub.url}/hub/gpuspawner/home/events", allow_redirects=False, timeout=60)

    assert (answer.status_code, answer.headers["Location"].partition("?")[0]) == (302, "/hub/login")
