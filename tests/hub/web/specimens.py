"""The specimens of components that the documentation shows, rendered as a page of the hub has them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jupyterhub._data import DATA_FILES_PATH

from jupyterhub_gpuspawner.hub.routes import STATIC
from jupyterhub_gpuspawner.hub.site.templates import TEMPLATES

if TYPE_CHECKING:
    from playwright.sync_api import Page

SPECIMENS = Path(__file__).parents[3] / "docs" / "components"
NAMES = sorted(path.stem for path in SPECIMENS.glob("*.html"))
BOOTSTRAP = Path(DATA_FILES_PATH) / "static" / "css" / "style.min.css"

_AROUND = """
body { font-family: "DejaVu Sans", sans-serif; background: var(--gs-page); }
body > section { overflow: clip; padding: 1rem; background: var(--gs-page); }
body > section > .gs-page { display: grid; gap: 0.75rem; padding: 0; max-inline-size: none; }
#menu > .gs-page { min-block-size: 9rem; justify-content: center; align-content: start; }
#side-sheet > .gs-page { grid-template-columns: minmax(0, var(--gs-side)); }
#rows > .gs-page { gap: 0; }
"""
"""Each specimen on a ground of its own, with the letters that the test machines have."""


def stylesheets() -> list[Path]:
    """Those of every page, in the order of ``gpuspawner_styles.html``."""
    environment = Environment(loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, autoescape=True)
    links = environment.get_template("gpuspawner_styles.html").render(base_url="", gpuspawner=_Linked())
    return [STATIC / line.split('"')[3] for line in links.splitlines() if "href" in line]


class _Linked:
    """In the place of the templates' namespace: a stylesheet's address is its name."""

    @staticmethod
    def static(base_url: str, name: str) -> str:
        return base_url + name


def show_specimens(page: Page, *, dark: bool = False) -> None:
    """Show all of them, each in a section with its name as its id."""
    environment = Environment(
        loader=FileSystemLoader([SPECIMENS, TEMPLATES]), undefined=StrictUndefined, autoescape=True
    )
    sections = "".join(
        f'<section id="{name}"><div class="gs-page">{environment.get_template(f"{name}.html").render()}</div></section>'
        for name in NAMES
    )
    theme = "dark" if dark else "light"
    page.set_content(f'<!DOCTYPE html><html lang="en" data-bs-theme="{theme}"><title>Components</title>{sections}')
    for path in (BOOTSTRAP, *stylesheets()):
        page.add_style_tag(content=path.read_text("utf-8-sig"))
    page.add_style_tag(content=_AROUND)
