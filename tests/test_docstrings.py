"""Docstrings and comments name only what there is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import jupyterhub_gpuspawner

PACKAGE = Path(str(jupyterhub_gpuspawner.__file__)).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
ROLE = re.compile(r":(mod|func|class|meth|data|attr):`~?([\w.]+)`")
"""A name in the text, as Sphinx would make a link of it; with or without the modules that it is in."""


def declared(module: Path) -> Iterator[str]:
    """The names that a module declares or imports anywhere in it."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).rpartition(".")[2]


def test_what_a_docstring_names_exists() -> None:
    """In the package, or for a module, in Python's library."""
    by_module = {module: set(declared(module)) for module in MODULES}
    names = set().union(*by_module.values())
    stems = {path.stem for path in MODULES} | {path.parent.name for path in MODULES}
    lost = [
        f"{path.relative_to(PACKAGE)}:{number}: {target}"
        for path in MODULES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for role, target in ROLE.findall(line)
        for name in [target.rpartition(".")[2]]
        if name not in (stems if role == "mod" else names if "." in target else by_module[path])
        and not (role == "mod" and find_spec(name))
    ]

    assert lost == []
