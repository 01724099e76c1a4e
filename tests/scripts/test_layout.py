"""The check of the package's layout finds circles, wide folders and long modules, and names them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "layout.py"
TYPE_ONLY = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from pkg.a import Thing
"""
LATE = """
def late():
    from . import a
"""
LAYOUTS: dict[str, tuple[dict[str, str], list[str]]] = {
    "all is well": ({"a.py": "import pkg.room.b", "room/__init__.py": "", "room/b.py": "import json"}, []),
    "two modules import each other": (
        {"a.py": "from pkg import b", "b.py": "import pkg.a"},
        ["import circle: pkg.a -> pkg.b -> pkg.a"],
    ),
    "a type-only import counts": (
        {"a.py": "import pkg.b", "b.py": TYPE_ONLY},
        ["import circle: pkg.a -> pkg.b -> pkg.a"],
    ),
    "a late, relative import counts": (
        {"a.py": "import pkg.b", "b.py": LATE},
        ["import circle: pkg.a -> pkg.b -> pkg.a"],
    ),
    "three modules": (
        {"a.py": "import pkg.b", "b.py": "import pkg.c", "c.py": "import pkg.a"},
        ["import circle: pkg.a -> pkg.b -> pkg.c -> pkg.a"],
    ),
    "two circles": (
        {"a.py": "import pkg.b", "b.py": "import pkg.a", "c.py": "import pkg.d", "d.py": "import pkg.c"},
        ["import circle: pkg.a -> pkg.b -> pkg.a", "import circle: pkg.c -> pkg.d -> pkg.c"],
    ),
    "a module may import the package it is in": ({"__init__.py": "import pkg.a", "a.py": "import pkg"}, []),
    "a circle through another package": (
        {"room/__init__.py": "from pkg.a import x", "a.py": "import pkg.room"},
        ["import circle: pkg.a -> pkg.room.__init__ -> pkg.a"],
    ),
    "a wide folder": (
        {f"room/m{number}.py": "" for number in range(13)},
        ["{}/room has 13 modules, at most 12: split it"],
    ),
    "a long module": ({"a.py": "\n" * 331, "b.py": "\n" * 330}, ["{}/a.py has 331 lines, at most 330: split it"]),
}


def rotations(said: str) -> str:
    """A circle may be told from any of its modules: return it from the first by name."""
    if not said.startswith("import circle: "):
        return said
    circle = said.removeprefix("import circle: ").split(" -> ")[:-1]
    at = circle.index(min(circle))
    turned = [*circle[at:], *circle[:at]]
    return f"import circle: {' -> '.join([*turned, turned[0]])}"


@pytest.mark.parametrize(("files", "faults"), LAYOUTS.values(), ids=LAYOUTS.keys())
def test_faults_of_a_layout(files: dict[str, str], faults: list[str], tmp_path: Path) -> None:
    """One line for each, and exit status 1."""
    package = tmp_path / "pkg"
    for name, text in {"__init__.py": "", **files}.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    ran = subprocess.run([sys.executable, SCRIPT, package], capture_output=True, text=True, check=False)

    assert sorted(map(rotations, ran.stdout.splitlines())) == [fault.format(package) for fault in faults]
    assert (ran.returncode, ran.stderr) == (int(bool(faults)), "")
