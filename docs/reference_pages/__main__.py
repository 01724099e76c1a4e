"""Write the pages; with ``--check`` only name those that are not current. ``scripts/reference`` runs this."""

from __future__ import annotations

import sys

from . import FOLDER, rendered


def main(*, check: bool) -> int:
    """1 where a page was checked and is not current."""
    changed = []
    for name, text in rendered().items():
        path = FOLDER / name
        if not path.exists() or path.read_text("utf-8") != text:
            changed.append(name)
            if not check:
                path.write_text(text, "utf-8")
    for name in changed:
        print(f"docs/reference/{name} is {'not current' if check else 'written'}.")
    return 1 if check and changed else 0


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv[1:]))
