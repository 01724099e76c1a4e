"""The ``<svg>`` element of a drawing in a page, whose stylesheet is the page's."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from html import escape


def element(name: str, parts: Sequence[str] | str, *, title: str, description: str, size: tuple[str, str]) -> str:
    """The ``<svg>`` element of these parts, of this class; ``description`` is for screen readers."""
    mark = f"{zlib.crc32(repr((title, description, parts)).encode()):08x}"
    wide, high = size
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{name}" role="img" '
        f'aria-labelledby="t{mark} d{mark}" width="{wide}" height="{high}" viewBox="0 0 {wide} {high}">'
        f'<title id="t{mark}">{text(title)}</title><desc id="d{mark}">{text(description)}</desc>'
        f"{''.join(parts)}</svg>"
    )


def text(words: str) -> str:
    """Text for the document: escaped, and without characters that XML does not allow."""
    return escape("".join(c if c.isprintable() else " " for c in words))
