#!/usr/bin/env python3
"""Check the layout of a package: no import circles, small folders, short modules.

Usage: scripts/layout.py [PACKAGE]. Prints one line for each fault and exits with status 1 if there are any. Imports for
type checkers only and imports within functions count, too.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate
from pathlib import Path

MODULES_AT_MOST = 12
"""Modules in a folder, without ``__init__``."""
LINES_AT_MOST = 330
"""Lines of a module."""


def modules(package: Path) -> dict[str, Path]:
    """Return the files of a package by the dotted names of their modules."""
    files = sorted(package.rglob("*.py"))
    return {".".join(file.relative_to(package.parent).with_suffix("").parts): file for file in files}


def imported(name: str, file: Path, known: set[str]) -> set[str]:
    """Return the modules among ``known`` that a module imports, except the packages that it is in."""
    found = set[str]()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parents = name.split(".")[: -node.level] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    found = {f"{each}.__init__" if f"{each}.__init__" in known else each for each in found} - {name}
    packages = {f"{parent}.__init__" for parent in accumulate(name.split("."), "{}.{}".format)}
    return (found & known) - packages


def circles(files: dict[str, Path]) -> list[list[str]]:
    """Return import circles, each as a path whose last module imports the first; no two share a module."""
    graph = {name: imported(name, file, set(files)) for name, file in files.items()}
    found: list[list[str]] = []
    while True:
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            circle: list[str] = error.args[1][:0:-1]  # each imports the next
            found.append(circle)
            graph = {name: imports - set(circle) for name, imports in graph.items() if name not in circle}
        else:
            return found


def faults(package: Path) -> list[str]:
    """Return a sentence for each fault in the layout of ``package``."""
    files = modules(package)
    said = [f"import circle: {' -> '.join([*circle, circle[0]])}" for circle in circles(files)]
    folders = Counter(file.parent for file in files.values() if file.name != "__init__.py")
    said += [
        f"{folder} has {count} modules, at most {MODULES_AT_MOST}: split it"
        for folder, count in sorted(folders.items())
        if count > MODULES_AT_MOST
    ]
    lengths = {file: len(file.read_text().splitlines()) for file in files.values()}
    too_long = {file: length for file, length in lengths.items() if length > LINES_AT_MOST}
    return said + [f"{file} has {length} lines, at most {LINES_AT_MOST}: split it" for file, length in too_long.items()]


if __name__ == "__main__":
    said = faults(Path(sys.argv[1] if len(sys.argv) > 1 else "jupyterhub_gpuspawner"))
    sys.stdout.writelines(f"{fault}\n" for fault in said)
    sys.exit(bool(said))
