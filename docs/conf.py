"""Sphinx configuration: builds the Markdown pages as they are in the repository (``sphinx-build -W``)."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner import __version__

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "jupyterhub-gpuspawner"
version = release = __version__
extensions = ["myst_parser"]
html_theme = "furo"
html_title = f"jupyterhub-gpuspawner {release}"
exclude_patterns = ["_build", "reference_pages"]
myst_heading_anchors = 4
nitpicky = True


def add_contents(app: Sphinx, name: str, source: list[str]) -> None:
    """Add a hidden table of contents to each overview page, from its links."""
    if PurePosixPath(name).name not in ("index", "README"):
        return
    links = dict.fromkeys(re.findall(r"\]\(([\w/-]+)\.md\)", source[0]))
    source[0] += "\n\n```{toctree}\n:hidden:\n\n" + "\n".join(links) + "\n```\n"


def setup(app: Sphinx) -> None:
    """Register the extension."""
    app.connect("source-read", add_contents)
