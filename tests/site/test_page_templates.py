"""A site's own page templates that leave out a part of ours, or use one that has gone."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from jupyterhub_gpuspawner.extension import installed
from jupyterhub_gpuspawner.hub.site.templates import TEMPLATES
from jupyterhub_gpuspawner.site.page_templates import lost_parts
from tests.hub.site.test_templates import ANNOUNCEMENT, NATIVE, STOCK

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


FORMER = Path(__file__).parents[1] / "data" / "page-templates.txt"
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
        '{% from "templates/home.html" import link_notice, path with context %}',
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
    monkeypatch.setattr("jupyterhub_gpuspawner.site.page_templates.installed", lambda: there)
    (own / "own.html").write_text(template)

    assert list(lost_parts([str(own), *STOCK], [str(templates)])) == [f"{own / 'own.html'}: {text}" for text in texts]
