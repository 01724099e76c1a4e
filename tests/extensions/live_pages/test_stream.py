"""The stream of the home page in a hub."""

from __future__ import annotations

import json

import pytest

from jupyterhub_gpuspawner.demo.hub import HubProcess
from tests.hub.visitor import Visitor

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.oldest]


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

    shown = page.select_one("#gpuspawner-stream")
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
