"""Colours, spaces and marks of the pages: one stylesheet of tokens, whose contrast is computed (WCAG 2.2, AA)."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.hub.routes import STATIC
from tests.hub.web.marks import STATES, states_with
from tests.hub.web.specimens import BOOTSTRAP, SPECIMENS, stylesheets

PACKAGE = Path(__file__).parents[3] / "jupyterhub_gpuspawner"
TOKENS = (STATIC / "tokens.css").read_text("utf-8")
STYLES = [path for path in sorted(PACKAGE.rglob("*.css")) if path.name != "tokens.css"]
TEMPLATES = sorted(PACKAGE.rglob("*.html"))

SURFACES = ("page", "raised", "sunken")
SOFT = ("accent", "good", "wait", "bad", "yours")
TEXTS = ("ink", "ink-2", *SOFT)
"""What is read on a surface: 4.5 to 1 at least (1.4.3)."""
MARKS = (*TEXTS, "edge", "busy", "accent-press")
"""What is seen on a surface: edges of controls, marks, bars; 3 to 1 at least (1.4.11)."""
PAIRS = {
    *product(TEXTS, SURFACES),
    *((text, f"{colour}-soft") for colour in (*SOFT, "busy") for text in ("ink", "ink-2")),
    *((colour, f"{colour}-soft") for colour in SOFT),
    ("on-accent", "accent"),
    ("on-accent", "accent-press"),
}
DECORATION = {"line", "shadow"}
"""Between things: what is said does not depend on it (1.4.11)."""


def colours(theme: str) -> dict[str, str]:
    """The colour of each token in a theme, as its declaration has it."""
    start = TOKENS.index(f'[data-bs-theme="{theme}"] {{')
    block = TOKENS[start : TOKENS.index("}", start)]
    return {name: value.strip() for name, value in re.findall(r"--gs-([\w-]+):([^;]+);", block)}


def luminance(colour: str) -> float:
    """Relative luminance, as WCAG defines it, of ``#rgb`` or ``#rrggbb``, also as the fallback of a variable."""
    found = re.search(r"#([0-9a-f]{6}|[0-9a-f]{3})\b", colour)
    assert found, colour
    digits = found[1] if len(found[1]) == 6 else "".join(2 * digit for digit in found[1])
    parts = (int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """From 1, the same, to 21, black on white."""
    dark, light = sorted(map(luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everything_is_legible_on_what_it_stands_on(theme: str) -> None:
    """Text has 4.5 to 1, edges and marks 3 to 1, and no colour is without a use."""
    colour = colours(theme)
    least = {(*pair, 4.5) for pair in PAIRS} | {(*pair, 3.0) for pair in product(MARKS, SURFACES)}
    faults = {
        f"{front} on {ground}: {found:.2f}"
        for front, ground, needed in least
        if (found := contrast(colour[front], colour[ground])) < needed
    }

    assert faults == set()
    assert {name for front, ground, _ in least for name in (front, ground)} == colour.keys() - DECORATION


def test_black_on_white_has_the_contrast_of_the_standard() -> None:
    """The definition's ends, and a value between that others publish."""
    found = [round(contrast(one, "#fff"), 2) for one in ("#000", "#fff", "#767676")]

    assert found == [21.0, 1.0, 4.54]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_page_and_ink_are_those_of_the_hubs_stylesheet(theme: str) -> None:
    """So a site's theme goes through; the contrast is computed with what JupyterHub has."""
    style = BOOTSTRAP.read_text("utf-8-sig")
    start = style.index(f"[data-bs-theme={theme}]{{")
    bootstrap = dict(re.findall(r"(--bs-[\w-]+): ?([^;]+);", style[start : style.index("}", start)]))
    taken = re.findall(r"var\((--bs-[\w-]+), ([^)]+)\)", "".join(colours(theme).values()))

    assert {name: bootstrap[name] for name, _ in taken} == dict(taken)


@pytest.mark.parametrize("path", STYLES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_tokens_read_bootstraps_variables(path: Path) -> None:
    """What a site changes goes one way; the variables of a button are set, not read."""
    assert re.findall(r"var\(--bs-[\w-]+", path.read_text("utf-8")) == []


def test_each_theme_has_the_same_tokens() -> None:
    """A token that the dark theme lacked would be the light one's; in forced colours each is the system's."""
    start = TOKENS.index("@media (forced-colors")
    forced = dict(re.findall(r"--gs-([\w-]+): (\w+);", TOKENS[start : TOKENS.index(":root {", start)]))

    assert colours("dark").keys() == colours("light").keys() == forced.keys()
    assert set(forced.values()) == {"Canvas", "CanvasText", "Highlight", "HighlightText", "none"}


def _declarations(path: Path) -> str:
    """A stylesheet, or what a template has in attributes, without comments, addresses and selectors of ids."""
    text = re.sub(r"/\*.*?\*/|\{#.*?#\}|url\(.*?\)", "", path.read_text("utf-8"), flags=re.DOTALL)
    if path.suffix == ".css":
        return " ".join(re.findall(r"[\w-]+:[^;{}]+(?=[;}])", text))
    return " ".join(re.findall(r'(?:style|fill|stroke)="([^"]*)"', text))


LITERAL = re.compile(
    r"#[0-9a-fA-F]{3,8}\b|\b(?:rgba?|hsla?|oklch|lab)\(|(?<=[: ])(?:white|black|gr[ae]y|red|green|blue|orange)(?![\w-])"
)


@pytest.mark.parametrize("path", [*STYLES, *TEMPLATES], ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_tokens_have_colours(path: Path) -> None:
    """A drawing that also stands outside our pages may have a token's own value as what is there instead."""
    values = {value for theme in ("light", "dark") for value in colours(theme).values()}
    text = re.sub(
        r"var\(--gs-([\w-]+), ?([^()]+)\)",
        lambda found: "" if any(found[2] in value for value in values) else found[0],
        _declarations(path),
    )

    assert LITERAL.findall(text) == []


WITH_POLICIES = (
    PACKAGE / "extensions" / "records" / "report.html",
    PACKAGE / "demo" / "templates" / "monitor.html",
)
"""What allows its own style, by a hash or a nonce."""


@pytest.mark.parametrize(
    "path",
    [path for path in TEMPLATES if path not in WITH_POLICIES],
    ids=lambda path: str(path.relative_to(PACKAGE)),
)
def test_no_page_has_what_a_strict_policy_forbids(path: Path) -> None:
    """A style in an attribute or an element, a script in the page, or in an attribute; data is no script."""
    inline = r"<style|<script(?![^>]*(?:\ssrc=|application/json))|<[^>]*\s(?:style|on[a-z]+)="

    assert re.findall(inline, re.sub(r"\{#.*?#\}", "", path.read_text("utf-8"), flags=re.DOTALL)) == []


def test_every_token_that_is_used_is_there() -> None:
    """A misspelt variable is no error to a browser: the declaration is left out."""
    sources = [
        path.read_text("utf-8") for path in (*STYLES, *TEMPLATES, *SPECIMENS.glob("*.html"), STATIC / "tokens.css")
    ]
    defined = {name for text in sources for name in re.findall(r"(--gs-[\w-]+): ", text)}
    used = {name for text in sources for name in re.findall(r"var\((--gs-[\w-]+)\)", text)}

    assert used - defined == set()


def test_every_state_has_a_mark_and_a_colour() -> None:
    """No state is told by colour alone: each class that sets a colour sets a mark, and each mark is drawn."""
    drawn = set(re.findall(r"(--gs-icon-[\w-]+): url", (STATIC / "components" / "icon.css").read_text("utf-8")))

    assert states_with("--gs-state") == states_with("--gs-mark")
    assert set(re.findall(r"--gs-mark: var\(([\w-]+)\)", STATES)) <= drawn


def test_every_state_has_a_specimen_with_a_word() -> None:
    """The documentation shows all of them, none without a word beside its mark."""
    shown = dict(re.findall(r'state\("(\w+)", "([^"]*)"\)', (SPECIMENS / "states.html").read_text("utf-8")))

    assert shown.keys() == states_with("--gs-mark")
    assert all(shown.values())


def test_every_page_has_all_components() -> None:
    """The list of stylesheets is that of the files; an icon that a template names is drawn."""
    assert sorted(stylesheets()) == sorted([STATIC / "tokens.css", *(STATIC / "components").glob("*.css")])

    icons = (STATIC / "components" / "icon.css").read_text("utf-8")
    named = {
        name
        for path in (*TEMPLATES, *SPECIMENS.glob("*.html"))
        for name in re.findall(r'icon\("([\w-]+)"', path.read_text("utf-8"))
    }
    rules = dict(re.findall(r'\[data-icon="([\w-]+)"\] \{\n  --gs-icon: var\(--gs-icon-([\w-]+)\);', icons))

    assert named <= rules.keys()
    assert {name: name for name in re.findall(r"--gs-icon-([\w-]+): url", icons)} == rules


def test_what_every_page_loads_is_small() -> None:
    """In bytes, uncompressed: with a page's own style and scripts its first paint stays below 100 kB."""
    assert sum(path.stat().st_size for path in stylesheets()) < 52_000
