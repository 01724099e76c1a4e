"""A site's own page templates, and ours."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bs4 import BeautifulSoup, Tag
from jinja2 import Environment, TemplateSyntaxError, nodes
from jupyterhub.app import JupyterHub

from jupyterhub_gpuspawner.extension import installed
from jupyterhub_gpuspawner.hub import times, words
from jupyterhub_gpuspawner.hub.choose import words as words_of_form
from jupyterhub_gpuspawner.hub.extension import Link, Notice
from jupyterhub_gpuspawner.hub.extensions import HubExtensions, chosen
from jupyterhub_gpuspawner.hub.routes import PageTools
from jupyterhub_gpuspawner.hub.site.templates import TEMPLATES, loader_with_ours, use_our_templates
from tests.fixtures.extensions import PAGE_TOOLS

STOCK = JupyterHub()._template_paths_default()
ANNOUNCEMENT = """{% extends "templates/page.html" %}
{% block announcement %}<div class="container text-center announcement">Welcome</div>{% endblock %}
"""
"""As in JupyterHub's example of an announcement service."""
NATIVE = """{% extends "templates/page.html" %}
{% block nav_bar_left_items %}{{ super() }}<li><a href="/hub/authorize">Authorize Users</a></li>{% endblock %}
"""
"""As NativeAuthenticator has it."""


def page(folder: Path, template: str) -> BeautifulSoup:
    """A page of a hub with this template of the site's for the frame."""
    (folder / "page.html").write_text(template)
    tools = SimpleNamespace(
        times=times,
        words=words,
        links=lambda _scopes, _reader: [Link("Sessions", "gpuspawner/sessions", lambda *_: True)],
        notices=lambda _reader: [Notice("Down at noon.", "root", 0.0)],
    )
    reader = SimpleNamespace(name="ada", json_escaped_name="ada")
    hub: dict[str, Any] = {"base_url": "/hub/", "static_url": lambda path, **_: path, "no_spawner_check": True}
    html = Environment(loader=loader_with_ours([str(folder)], STOCK), autoescape=True).get_template("page.html")
    return BeautifulSoup(
        html.render(**hub, user=reader, parsed_scopes={}, gpuspawner=tools, gpuspawner_reader=reader), "html.parser"
    )


def links(soup: BeautifulSoup) -> list[str]:
    """The texts of the navigation bar's links."""
    return [link.get_text() for link in soup.select("#thenavbar .navbar-nav.me-auto a")]


@pytest.mark.parametrize(
    ("template", "own"),
    [(ANNOUNCEMENT, ["Welcome"]), (NATIVE, ["Authorize Users"])],
    ids=["an announcement", "NativeAuthenticator"],
)
def test_our_part_of_a_page_survives_a_sites_template(tmp_path: Path, template: str, own: list[str]) -> None:
    """A template that extends JupyterHub's as its documentation has it, and replaces the announcement."""
    soup = page(tmp_path, template)

    assert soup.select_one(".gpuspawner-message b").get_text() == "Down at noon."  # type: ignore[union-attr]
    assert links(soup)[:3] == ["Home", "Token", "Sessions"]
    assert [element.get_text() for element in soup.select(".announcement")] + links(soup)[3:] == own


def test_no_page_compiles_a_template_when_it_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling the home page's blocks the event loop; a template that is not valid is its own page's fault."""
    (tmp_path / "page.html").write_text(ANNOUNCEMENT)
    (tmp_path / "token.html").write_text("{% if %}")
    environment = Environment(enable_async=True, autoescape=True)
    compiled: list[str | None] = []

    def compile_template(self: Environment, source: str, name: str | None = None, filename: str | None = None) -> Any:
        compiled.append(name)
        return compile_before(self, source, name, filename)

    compile_before = Environment.compile
    monkeypatch.setattr(Environment, "compile", compile_template)
    use_our_templates(environment, [str(tmp_path)], STOCK)
    at_the_start = set(compiled)

    compiled.clear()
    for name in environment.list_templates(["html"]):
        with suppress(TemplateSyntaxError):
            environment.get_template(name)

    assert {"home.html", "page.html", "spawn_pending.html", "login.html"} < at_the_start
    assert compiled == ["token.html"]


NOT_KNOWN = object()
"""What only a page that is shown has, such as its variables."""
OWN_WORDS = {"options_form.html": {"say": words_of_form}}
"""Names that a template is given by those who render it."""


def value(node: nodes.Node, names: dict[str, Any], missing: list[str]) -> Any:
    """What an expression of names and attributes stands for; an attribute that nothing has goes to ``missing``."""
    if isinstance(node, nodes.Name):
        return names.get(node.name, NOT_KNOWN)
    if isinstance(node, nodes.Or):  # such as `spoken or gpuspawner.words`
        return value(node.right, names, missing)
    if not isinstance(node, nodes.Getattr) or (owner := value(node.node, names, missing)) is NOT_KNOWN:
        return NOT_KNOWN
    if not hasattr(owner, node.attr):
        missing.append(f"line {node.lineno}: {node.attr}")
    return getattr(owner, node.attr, NOT_KNOWN)


OF_THE_CORE = PageTools(HubExtensions(chosen(())))
OF_ALL = [TEMPLATES, *(extension.folder / "templates" for extension in installed())]


@pytest.mark.parametrize(
    "path", [path for folder in OF_ALL for path in folder.glob("*.html")], ids=lambda path: path.name
)
def test_a_template_takes_no_words_that_are_not_there(path: Path) -> None:
    """Jinja shows nothing in the place of an attribute that an object lacks, such as on a button.

    The core's templates know of no extension, also not where they ask whether it is there.
    """
    tree = Environment().parse(path.read_text())  # noqa: S701 - nothing is rendered
    tools = OF_THE_CORE if path.parent == TEMPLATES else PAGE_TOOLS
    names, missing = {"gpuspawner": tools, **OWN_WORDS.get(path.name, {})}, list[str]()
    for assignment in tree.find_all(nodes.Assign):
        if isinstance(assignment.target, nodes.Name):
            names[assignment.target.name] = value(assignment.node, names, missing)
    for attribute in tree.find_all(nodes.Getattr):
        value(attribute, names, missing)

    assert missing == []


def error_page(error: Mapping[str, object]) -> Tag:
    """The page of an error, as a template gets it from the hub."""
    tools = SimpleNamespace(
        times=times, words=words, links=lambda *_: [], notices=lambda _: [], static=lambda base, name: base + name
    )
    hub: dict[str, Any] = {"base_url": "/hub/", "static_url": lambda path, **_: path, "no_spawner_check": True}
    reader = SimpleNamespace(name="ada", json_escaped_name="ada")
    template = Environment(loader=loader_with_ours([], STOCK), autoescape=True).get_template("error.html")
    html = template.render(**hub, **error, user=reader, parsed_scopes={}, gpuspawner=tools, gpuspawner_reader=reader)
    shown = BeautifulSoup(html, "html.parser").select_one("#gpuspawner-error")
    assert shown is not None
    return shown


def test_an_error_without_words_of_its_own_is_its_number() -> None:
    """JupyterHub has no message for an address that it does not know."""
    shown = error_page({"status_code": 404, "status_message": None, "message": None})

    assert shown.select_one("p.gs-soft").get_text(strip=True) == "404"  # type: ignore[union-attr]


@pytest.mark.parametrize(("status", "heading"), [(403, "You may not open this page"), (418, "I'm a teapot")])
def test_an_error_is_said_in_plain_words_with_a_way_on(status: int, heading: str) -> None:
    """What the hub says of it stands below; of an error that is rare, only that."""
    shown = error_page({"status_code": status, "status_message": "I'm a teapot", "message": "No <scope>."})

    assert shown.h1.get_text() == heading  # type: ignore[union-attr]
    assert f"{status} I'm a teapot: No <scope>." in shown.get_text()
    assert [link["href"] for link in shown.select("a")] == ["/hub/home"]
