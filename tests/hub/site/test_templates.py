"""A site's own page templates, and ours."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bs4 import BeautifulSoup
from jinja2 import Environment, TemplateSyntaxError, nodes
from jupyterhub.app import JupyterHub

from jupyterhub_gpuspawner.extension import installed
from jupyterhub_gpuspawner.hub import times, words
from jupyterhub_gpuspawner.hub.choose import words as words_of_form
from jupyterhub_gpuspawner.hub.extension import Link, Notice
from jupyterhub_gpuspawner.hub.extensions import HubExtensions, chosen
from jupyterhub_gpuspawner.hub.routes import PageTools
from jupyterhub_gpuspawner.hub.site.templates import TEMPLATES, loader_with_ours, lost_parts, use_our_templates
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
    """Jinja shows nothing in the place of an attribute that an object lacks, such as on a button."""
    tree = Environment().parse(path.read_text())  # noqa: S701 - nothing is rendered
    tools = OF_THE_CORE if path.parent == TEMPLATES else PAGE_TOOLS
    names, missing = {"gpuspawner": tools, **OWN_WORDS.get(path.name, {})}, list[str]()
    for assignment in tree.find_all(nodes.Assign):
        if isinstance(assignment.target, nodes.Name):
            names[assignment.target.name] = value(assignment.node, names, missing)
    for attribute in tree.find_all(nodes.Getattr):
        value(attribute, names, missing)
    tests = (test.node for test in tree.find_all(nodes.Test) if test.name == "defined")
    asked = {name.attr for name in tests if isinstance(name, nodes.Getattr)}  # of an extension that need not be there

    assert [text for text in missing if text.rpartition(" ")[2] not in asked] == []


NOTICES = "pages do not show what is told to users"
LINKS = "pages have no links to those of extensions"
CARDS = "the home page does not show the cards of servers"
EXTENDS = '{% extends "templates/page.html" %}'
REPLACED: dict[str, tuple[dict[str, str], list[tuple[str, str]]]] = {
    "none": ({}, []),
    "the documented form": ({"page.html": ANNOUNCEMENT}, []),
    "with super": ({"page.html": NATIVE}, []),
    "a page of its own": (
        {"page.html": "<html></html>"},
        [("page.html", f'{NOTICES}, and {LINKS}: it does not extend "templates/page.html"')],
    ),
    "the links": (
        {"page.html": EXTENDS + "{% block nav_bar_left_items %}Home{% endblock %}"},
        [("page.html", LINKS + ": its block nav_bar_left_items has no {{ super() }}")],
    ),
    "the navigation bar": (
        {"page.html": EXTENDS + "{% block nav_bar %}{% endblock %}"},
        [("page.html", f"{NOTICES}, and {LINKS}: its block nav_bar has no {{{{ super() }}}}")],
    ),
    "by a template of its own": ({"page.html": '{% extends "frame.html" %}', "frame.html": EXTENDS}, []),
    "the home page": (
        {"home.html": '{% extends "page.html" %}{% block main %}Hello{% endblock %}', "page.html": ANNOUNCEMENT},
        [("home.html", f'{CARDS}: it does not extend "templates/home.html"')],
    ),
    "the home page's cards": (
        {"home.html": '{% extends "templates/home.html" %}{% block main %}Hello{% endblock %}'},
        [("home.html", CARDS + ": its block main has no {{ super() }}")],
    ),
    "not known here": ({"page.html": "{% trans %}Home{% endtrans %}"}, []),
}


@pytest.mark.parametrize(("files", "lost"), REPLACED.values(), ids=REPLACED.keys())
def test_a_template_that_leaves_out_a_part_of_ours_is_named(
    tmp_path: Path, files: dict[str, str], lost: list[tuple[str, str]]
) -> None:
    """With what pages lose, and why; the first folder that has the template counts."""
    own, later = tmp_path / "own", tmp_path / "later"
    for folder in (own, later):
        folder.mkdir()
    for name, text in files.items():
        (own / name).write_text(text)
        (later / name).write_text("<html></html>")

    assert list(lost_parts([str(own), str(later), *STOCK])) == [f"{own / name}: {text}" for name, text in lost]


FORMER = Path(__file__).parents[2] / "data" / "page-templates.txt"
"""Each block and macro that our templates had when they were all in one folder, made with GNU sed by

``git grep -oE '\\{%-? (block|macro) \\w+' b2e4339 -- '*/web/templates/*.html' | sed -E 's|.*/(.*):\\{%-? |\\1 |'``
"""
USE = {
    "block": '{{% extends "templates/{template}" %}}{{% block {name} %}}Ours{{% endblock %}}',
    "macro": '{{% from "templates/{template}" import {name} with context %}}',
}


def test_each_block_and_macro_that_our_templates_had_is_there_or_is_named(tmp_path: Path) -> None:
    """To a site whose templates replace or import it."""
    folders = [extension.folder / "templates" for extension in installed()]
    today = {
        (path.name, kind, name)
        for folder in (TEMPLATES, *folders)
        for path in folder.glob("*.html")
        for kind, name in re.findall(r"{%-? (block|macro) (\w+)", path.read_text())
    }
    former = [tuple(line.split()) for line in FORMER.read_text().splitlines()]
    gone = {}
    for number, (template, kind, name) in enumerate(former):
        own = tmp_path / f"{number}.html"
        own.write_text(USE[kind].format(template=template, name=name))
        if (template, kind, name) not in today:
            gone[str(own)] = (template, name)

    named = dict(text.split(": ", 1) for text in lost_parts([str(tmp_path), *STOCK], [*map(str, folders)]))

    assert named.keys() == gone.keys()
    for path, (template, name) in gone.items():
        assert name in named[path] or template in named[path], named[path]


CARD = "its content is now in gpuspawner_card.html"
HOME = '{% extends "templates/home.html" %}'
GONE = {
    "an import": (
        '{% from "templates/home.html" import server, path with context %}',
        [f'it uses the macro path of "templates/home.html", which has none of this name: {CARD}'],
    ),
    "an import of all": (
        '{% import "home.html" as home with context %}{{ home.node_details(facts, true) }}',
        [f'it uses the macro node_details of "home.html", which has none of this name: {CARD}'],
    ),
    "a call in a block": (
        HOME + "{% block main %}{{ path(card.name) }}{{ meter(card.meter) }}{% endblock %}",
        [
            'it uses the macro meter of "templates/home.html", which has none of this name: its content is now in '
            "meter_card.html of the extension counters"
        ],
    ),
    "an extension that the hub leaves out": (
        HOME + "{% block main %}{{ nap(card, heading) }}{% endblock %}",
        [
            'it uses the macro nap of "templates/home.html", which has none of this name: its content is now in '
            "nap_card.html of an extension that this hub does not have"
        ],
    ),
    "a macro of its own": (
        HOME + "{% macro meter(use) %}{% endmacro %}{% block main %}{{ meter(1) }}{% endblock %}",
        [],
    ),
    "a block": (
        HOME + "{% block cards %}{% endblock %}{% block main %}{% block mine %}{% endblock %}{% endblock %}",
        ["its block cards is shown nowhere: no template that it extends has a block of this name"],
    ),
    "a block of JupyterHub's": (HOME + "{% block footer %}{% endblock %}", []),
    "a template": (
        '{% extends "templates/former.html" %}{% block main %}{% endblock %}',
        ['it names "templates/former.html", which no template of this hub is called'],
    ),
    "itself": ('{% extends "own.html" %}{% block main %}{% endblock %}', []),
}


@pytest.mark.parametrize(("template", "texts"), GONE.values(), ids=GONE.keys())
def test_a_part_that_went_is_named_with_what_has_its_content(
    tmp_path: Path, template: str, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file, the block or macro, and the template that has its content now."""
    own, templates, left_out = tmp_path / "own", tmp_path / "counters" / "templates", tmp_path / "rest" / "templates"
    for folder in (own, templates, left_out):
        folder.mkdir(parents=True)
    (templates / "meter_card.html").touch()
    (left_out / "nap_card.html").touch()
    there = [SimpleNamespace(folder=folder.parent) for folder in (templates, left_out)]
    monkeypatch.setattr("jupyterhub_gpuspawner.hub.site.templates.installed", lambda: there)
    (own / "own.html").write_text(template)

    assert list(lost_parts([str(own), *STOCK], [str(templates)])) == [f"{own / 'own.html'}: {text}" for text in texts]
