"""Sphinx configuration: builds the Markdown pages as they are in the repository (``scripts/docs``)."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from bs4 import BeautifulSoup

from jupyterhub_gpuspawner import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

project = "jupyterhub-gpuspawner"
version = release = __version__
extensions = ["myst_parser"]
html_theme = "furo"
html_title = f"jupyterhub-gpuspawner {release}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
exclude_patterns = ["_build", "components", "reference_pages"]
myst_heading_anchors = 4
nitpicky = True

_LINK = re.compile(r"\]\(([\w/-]+)\.md\)")


def add_contents(app: Sphinx, name: str, source: list[str]) -> None:
    """Add a hidden table of contents to each overview page, from its links.

    The first page has one for each of its headings, which the sidebar shows as a group.
    """
    if name == "index":
        source[0] += "".join(_contents(links, heading) for heading, links in _groups(source[0]))
    elif PurePosixPath(name).name == "README":
        source[0] += _contents(_LINK.findall(source[0]))


def _groups(text: str) -> Iterator[tuple[str, list[str]]]:
    """The headings of a page with the links below each; ``### Set up`` below ``## Admins`` is ``Admins: set up``."""
    above = ""
    for part in re.split(r"^(?=##)", text, flags=re.MULTILINE)[1:]:
        title, _, body = part.partition("\n")
        heading = title.lstrip("# ")
        if title.startswith("### "):
            heading = f"{above}: {heading[0].lower()}{heading[1:]}"
        else:
            above = heading
        if links := _LINK.findall(body):
            yield heading, links


def _contents(links: list[str], caption: str = "") -> str:
    options = f":hidden:\n:caption: {caption}\n" if caption else ":hidden:\n"
    pages = "\n".join(dict.fromkeys(links))
    return f"\n\n```{{toctree}}\n{options}\n{pages}\n```\n"


def label_cells(app: Sphinx, name: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """Write the name of its column into each cell of a table: on a phone ``pages.css`` shows it beside the cell."""
    if "<table" not in context.get("body", ""):
        return
    page = BeautifulSoup(context["body"], "html.parser")
    for table in page.find_all("table"):
        names = [head.get_text(" ", strip=True) for head in table.select("thead th")]
        for row in table.select("tbody tr"):
            for cell, label in zip(row.find_all("td", recursive=False), names, strict=False):
                if label:
                    cell["data-label"] = label
    context["body"] = str(page)


def setup(app: Sphinx) -> None:
    """Register the extension."""
    app.connect("source-read", add_contents)
    app.connect("html-page-context", label_cells)
