"""The pages of a server that waits, stops or does not run, and what is free instead."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from bs4 import BeautifulSoup
from jinja2 import ChoiceLoader, DictLoader, Environment, FileSystemLoader

from jupyterhub_gpuspawner.hub.server.waiting import same_choice
from jupyterhub_gpuspawner.hub.site.templates import TEMPLATES
from jupyterhub_gpuspawner.hub.spawners.server import Server
from jupyterhub_gpuspawner.hub.web.handlers import as_query, parse_choice_query


@pytest.mark.parametrize(
    ("options", "address"),
    [
        ({}, ""),
        ({"profile": "k80", "gpus": 2}, "/hub/spawn/ada?opt-profile=k80&opt-gpus=2"),
        ({"profile": "k80", "image": "a b&c=d"}, "/hub/spawn/ada?opt-profile=k80&opt-image=a+b%26c%3Dd"),
        ({"profile": ["k80"], "cpus": 1}, "/hub/spawn/ada?opt-cpus=1"),
    ],
)
def test_the_same_choice_is_an_address_of_the_form(options: dict[str, object], address: str) -> None:
    """Values are quoted; those that are not plain values are left out."""
    assert same_choice("/hub/spawn/ada", options) == address


def test_the_server_is_gone_to_where_it_was_wanted() -> None:
    """A query that the address already has is kept."""
    assert same_choice("/hub/spawn/ada?next=%2Fuser%2Fada%2Flab", {"profile": "k80"}) == (
        "/hub/spawn/ada?next=%2Fuser%2Fada%2Flab&opt-profile=k80"
    )


@pytest.mark.parametrize(
    "options", [{}, {"profile": "k80", "gpus": "2"}, {"profile": "k80", "image": "a b&c=d", "name": "x\N{SNOWMAN}"}]
)
def test_a_choice_survives_in_an_address(options: dict[str, str]) -> None:
    """What was given up is offered again, whatever characters it has."""
    assert parse_choice_query(as_query(options)) == options


def test_an_address_that_was_not_made_by_us_has_no_choice() -> None:
    """Other parameters are left out, and values that are no plain values are not kept."""
    assert parse_choice_query("a=1&next=//evil&opt-profile=k80;x") == {"profile": "k80;x"}
    assert parse_choice_query(as_query({"profile": ["k80"], "cpus": 2})) == {"cpus": "2"}


BASE = {"page.html": "<title>{% block title %}{% endblock title %}</title>{% block main %}{% endblock main %}"}
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


@pytest.mark.parametrize(
    ("server", "title"),
    [
        (RUNNING, "Stop Code? - JupyterHub"),
        (replace(RUNNING, pending="stop"), "Code - JupyterHub"),
        (Server("ada"), "Code - JupyterHub"),
    ],
    ids=["it runs", "it is stopping", "it is not running"],
)
def test_the_title_of_the_page_asks_where_there_is_something_to_stop(server: Server, title: str) -> None:
    """As its heading."""
    loader = ChoiceLoader([DictLoader(BASE), FileSystemLoader(str(TEMPLATES))])
    page = Environment(autoescape=True, loader=loader).get_template("stop.html")
    html = page.render(gpuspawner=SimpleNamespace(), server=server, own=True, title="Code", base_url="/hub/")
    soup = BeautifulSoup(html, "html.parser")

    assert soup.title.get_text() == title  # type: ignore[union-attr]
    assert soup.h1.get_text() == title.removesuffix(" - JupyterHub")  # type: ignore[union-attr]


@pytest.mark.parametrize(("server", "waits", "sentence"), LOST.values(), ids=LOST.keys())
def test_the_page_says_what_is_lost(server: Server, waits: bool, sentence: str) -> None:
    """Kernels are Jupyter's."""
    loader = ChoiceLoader([DictLoader(BASE), FileSystemLoader(str(TEMPLATES))])
    page = Environment(autoescape=True, loader=loader).get_template("stop.html")

    html = page.render(
        gpuspawner=SimpleNamespace(), server=server, own=True, title="Code", waits=waits, base_url="/hub/"
    )

    assert [paragraph.get_text() for paragraph in BeautifulSoup(html, "html.parser").select("p.fs-5")] == [sentence]
