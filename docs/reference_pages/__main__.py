"""Write the pages; ``scripts/docs`` runs this. A page that is as it was keeps its time, so Sphinx does not read it."""

from __future__ import annotations

from . import FOLDER, rendered

for name, text in rendered().items():
    path = FOLDER / name
    if not path.exists() or path.read_text("utf-8") != text:
        path.write_text(text, "utf-8")
