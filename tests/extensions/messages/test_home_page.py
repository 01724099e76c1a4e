"""Messages on a home page whose templates are a site's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.hubs import StartHub
from tests.hub.visitor import Visitor

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

OWN_HOME = """{% extends "templates/home.html" %}
{% block main %}<p class="own">Welcome</p>{{ super() }}{% endblock main %}
"""
OWN_FRAME = """{% extends "templates/page.html" %}
{% block announcement %}<div class="container announcement">Coffee at ten</div>{% endblock announcement %}
"""


@pytest.mark.nightly
def test_our_part_of_the_page_survives_a_sites_templates(start_light_hub: StartHub, tmp_path: Path) -> None:
    """Templates in JupyterHub's documented form: messages and cards are there beside the site's own parts."""
    (tmp_path / "home.html").write_text(OWN_HOME)
    (tmp_path / "page.html").write_text(OWN_FRAME)
    hub = start_light_hub(lines=f"c.JupyterHub.template_paths = [{str(tmp_path)!r}]")
    hub.api("POST", "/gpuspawner/messages", {"message": "Down at noon.", "to": {"everybody": True}})
    page = Visitor(hub, "ann").look("/hub/home")
    shown = [
        page.soup.select_one(path)
        for path in (".own", ".announcement", ".gpuspawner-message b", "#gpuspawner-cards #start")
    ]

    assert [element and element.get_text(strip=True) for element in shown] == [
        "Welcome",
        "Coffee at ten",
        "Down at noon.",
        "Start My Server",
    ]
    assert "template" not in hub.log.read_text()
