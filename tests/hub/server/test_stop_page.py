"""The question before a server is stopped."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from bs4 import BeautifulSoup
from jinja2 import ChoiceLoader, DictLoader, Environment, FileSystemLoader

from jupyterhub_gpuspawner.hub import words
from jupyterhub_gpuspawner.hub.site.templates import TEMPLATES
from jupyterhub_gpuspawner.hub.spawners.server import Server

BASE = {"page.html": "{% block main %}{% endblock main %}"}
"""In the place of JupyterHub's frame of a page."""
RUNNING, WAITING = Server("ada", ready=True), Server("ada", pending="spawn")
LOST = {
    "Jupyter": (RUNNING, False, "Unsaved work and running kernels are lost. Your files stay."),
    "another application": (
        Server("ada", ready=True, app="code-server"),
        False,
        "Unsaved work and running processes are lost. Your files stay.",
    ),
    "one that waits in line": (WAITING, True, "You give up your place in line. Nothing else is lost."),
    "one that starts": (WAITING, False, "It is not ready yet, so no work is lost."),
}


@pytest.mark.parametrize(("server", "waits", "sentence"), LOST.values(), ids=LOST.keys())
def test_the_page_says_what_is_lost(server: Server, waits: bool, sentence: str) -> None:
    """Kernels are Jupyter's."""
    loader = ChoiceLoader([DictLoader(BASE), FileSystemLoader(str(TEMPLATES))])
    page = Environment(autoescape=True, loader=loader).get_template("stop.html")
    told = SimpleNamespace(words=words)

    html = page.render(gpuspawner=told, server=server, title="Code", waits=waits, base_url="/hub/")

    assert [each.get_text() for each in BeautifulSoup(html, "html.parser").select("p.fs-5")] == [sentence]
