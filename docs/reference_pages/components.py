"""What pages are made of: each component with the template that the picture is of (``docs/components``)."""

from __future__ import annotations

import re
from pathlib import Path

SPECIMENS = Path(__file__).parents[1] / "components"

_ABOUT = """# Components

What the pages of a hub are made of, for who writes the template of [an extension](../howto/write-an-extension.md) or
the theme of a site. A page that begins with

```html+jinja
{% extends "templates/page.html" %}
{% block stylesheet %}{{ super() }}{% include "gpuspawner_styles.html" %}{% endblock %}
```

and whose `main` has the class `gs-page` has all of them; the templates of cards and forms are in such a page. The
pictures are of the templates that stand above them, light and dark. A state, a bar or a mark always has words beside
it: these are what is read aloud.

Colours, spaces and sizes are custom properties, the tokens, in `hub/web/static/tokens.css`. Page and ink are
Bootstrap's `--bs-body-bg` and `--bs-body-color`, so a site's theme goes through. A site sets others in a stylesheet of
its own, for each theme:

```css
:root, [data-bs-theme="light"] { --gs-accent: #00549f; --gs-accent-press: #003a70; --gs-accent-soft: #e8f1fa; }
[data-bs-theme="dark"] { --gs-accent: #8ebae5; --gs-accent-press: #b5d2f0; --gs-accent-soft: #25364a; }
```

Text needs a contrast of 4.5 to 1 on what it stands on, edges and marks 3 to 1 (WCAG 2.2, AA): those that come with the
package have it, computed by its tests.
"""


def page() -> str:
    """The page of components."""
    return "\n".join([_ABOUT, *map(_section, sorted(SPECIMENS.glob("*.html")))])


def _section(path: Path) -> str:
    about, _, template = path.read_text("utf-8").partition(" #}\n")
    title = re.sub("-", " ", path.stem).capitalize()
    picture = f"![{title}, light and dark](../pictures/components/{path.stem}.png)"
    return f"## {title}\n\n{about.removeprefix('{# ')}\n\n```html+jinja\n{template}```\n\n{picture}\n"
