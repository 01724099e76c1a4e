"""Write the pages; with ``--check``, only list those that are out of date. ``scripts/reference`` runs this."""

from __future__ import annotations

import sys

from . import FOLDER, rendered


def main(*, check: bool) -> int:
    """The exit status: 1 if a checked page is out of date."""
    changed = []
    for name, text in rendered().items():
        path = FOLDER / name
        if not path.exists() or path.read_text("utf-8") != text:
            changed.append(name)
            if not check:
                path.write_text(text, "utf-8")
    for name in changed:
        print(f"docs/reference/{name} is {'out of date' if check else 'written'}.")
    return 1 if check and changed else 0


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv[1:]))
