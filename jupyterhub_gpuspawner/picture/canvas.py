"""The shapes of a picture, their colours, and the enclosing SVG element. Pure."""

from __future__ import annotations

import zlib
from html import escape

_LIGHT = (
    "--back:#fff;--ink:#1f2328;--soft:#57606a;--line:#7d8793;--panel:#f3f5f8;--box:#fff;--core:#cfd6df;"
    "--own:#0b57d0;--own-box:#e1ecff;--nv:#4d7c0f;--nic:#8a4b00"
)
_DARK = (
    "--back:#14181d;--ink:#e6edf3;--soft:#a9b3be;--line:#7d8793;--panel:#1f252c;--box:#14181d;--core:#46505c;"
    "--own:#8ab8ff;--own-box:#17305c;--nv:#a3d65c;--nic:#f0b16a"
)
STYLE = f"""
&{{{_LIGHT};font:12px system-ui,sans-serif;max-width:100%;height:auto}}
@media(prefers-color-scheme:dark){{&{{{_DARK}}}}}
[data-bs-theme=light] &{{{_LIGHT}}}
[data-bs-theme=dark] &{{{_DARK}}}
& text{{fill:var(--ink)}}& .soft{{fill:var(--soft);font-size:11px}}& .head{{font-size:15px;font-weight:600}}
& .name{{font-weight:600}}& .mid{{text-anchor:middle}}& .end{{text-anchor:end}}
& .mine{{fill:var(--own);font-weight:600}}& .back{{fill:var(--back)}}
& .package{{fill:none;stroke:var(--line);stroke-dasharray:2 4}}& .node{{fill:var(--panel);stroke:var(--line)}}
& .gpu{{fill:var(--box);stroke:var(--line);stroke-width:1.2}}
& .gpu.own{{fill:var(--own-box);stroke:var(--own);stroke-width:3}}& .nic{{fill:var(--box);stroke:var(--nic)}}
& .card{{fill:var(--panel);stroke:var(--line);stroke-dasharray:5 3}}
& .core{{fill:var(--core)}}& .core.own{{fill:var(--own)}}& .dot{{fill:var(--box)}}
& .pcie{{fill:none;stroke:var(--line);stroke-width:1.2}}
& .nv{{fill:none;stroke:var(--nv);opacity:.8}}& .nv.own{{stroke:var(--own);opacity:1}}
& .pill{{fill:var(--back);stroke:var(--line)}}& .halo{{paint-order:stroke;stroke:var(--back);stroke-width:4px}}
""".replace("&", ".gpuspawner-node").strip()


class Canvas:
    """The parts of an SVG in drawing order. Lengths are pixels; ``kind`` is one or more classes of :data:`STYLE`."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def rect(self, kind: str, x: float, y: float, width: float, height: float, *, radius: float) -> None:
        """A rectangle with rounded corners."""
        size = f'width="{number(width)}" height="{number(height)}" rx="{number(radius)}"'
        self.parts.append(f'<rect class="{kind}" x="{number(x)}" y="{number(y)}" {size}/>')

    def path(self, kind: str, shape: str, *, width: float | None = None) -> None:
        """A path in SVG's path syntax."""
        thick = f' stroke-width="{number(width)}"' if width else ""
        self.parts.append(f'<path class="{kind}"{thick} d="{shape}"/>')

    def line(self, kind: str, x: float, y: float, to_x: float, to_y: float, *, width: float | None = None) -> None:
        """A straight line."""
        self.path(kind, f"M{number(x)} {number(y)}L{number(to_x)} {number(to_y)}", width=width)

    def text(self, kind: str, x: float, y: float, words: str) -> None:
        """Text at a baseline; escaped."""
        self.parts.append(f'<text class="{kind}" x="{number(x)}" y="{number(y)}">{_text(words)}</text>')

    def dot(self, x: float, y: float) -> None:
        """The mark of a core that belongs to the job."""
        self.parts.append(f'<circle class="dot" cx="{number(x)}" cy="{number(y)}" r="2"/>')

    def pill(self, x: float, y: float, words: str) -> None:
        """Text in a rounded frame centred on ``x``, ``y``."""
        width = 6.2 * len(words) + 14
        self.rect("pill", x - width / 2, y - 9, width, 18, radius=9)
        self.text("soft mid", x, y + 4, words)

    def svg(self, title: str, said: str, width: float, height: float) -> str:
        """The ``<svg>`` element; ``said`` is its description for screen readers."""
        mark = f"{zlib.crc32(repr((title, said, self.parts)).encode()):08x}"
        wide, high = number(width), number(height)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="gpuspawner-node" role="img" '
            f'aria-labelledby="t{mark} d{mark}" width="{wide}" height="{high}" viewBox="0 0 {wide} {high}">'
            f'<title id="t{mark}">{_text(title)}</title><desc id="d{mark}">{_text(said)}</desc>'
            f'<style>{STYLE}</style><rect class="back" width="100%" height="100%" rx="10"/>{"".join(self.parts)}</svg>'
        )


def _text(words: str) -> str:
    """Text for the document: escaped, and without characters that XML does not allow."""
    return escape("".join(c if c.isprintable() else " " for c in words))


def short(words: str, limit: int) -> str:
    """The text, cut to ``limit`` characters."""
    return words if len(words) <= limit else words[: max(limit - 1, 1)] + "…"


def number(value: float) -> str:
    """The number with at most one decimal."""
    return f"{value:.1f}".rstrip("0").rstrip(".")
