"""The lines with which the hubs of tests are configured: what they set exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import reduce
from importlib import import_module
from pathlib import Path

IMPORT = re.compile(r"^ *from (jupyterhub_gpuspawner[\w.]*) import (.+)$", re.MULTILINE)
ASSIGNMENT = re.compile(r"^ *\w+\.[\w.]+(?:, \w+\.[\w.]+| = \w+\.[\w.]+)* = .+$", re.MULTILINE)


def set_in(text: str) -> Iterator[tuple[str, str]]:
    """Module and path of each constant of our modules that a line sets, in code or in the lines of a configuration."""
    modules = {}
    for package, names in IMPORT.findall(text):
        for name, _, other in (each.strip().partition(" as ") for each in names.split("#")[0].split(",")):
            if (Path(*package.split(".")) / f"{name}.py").is_file():
                modules[other or name] = f"{package}.{name}"
    for line in ASSIGNMENT.findall(text):
        targets = line.partition("#")[0].rsplit(" = ", 1)[0]
        for name, path in re.findall(r"(\w+)\.([\w.]*\b(?:[A-Z_]+|__\w+__))(?!\w)", targets):
            if name in modules:
                yield modules[name], path


def test_a_test_sets_only_what_its_module_has() -> None:
    """A constant that has moved would be set in vain, and the test would run with the other value."""
    files = [*Path("tests").rglob("*.py"), *Path("benchmarks").rglob("*.py")]
    found = {(str(file), *each) for file in files for each in set_in(file.read_text())}
    missing = []
    for file, module, path in sorted(found):
        try:
            reduce(getattr, path.split("."), import_module(module))
        except AttributeError:
            missing.append((file, f"{module}.{path}"))

    assert len(found) > 40
    assert missing == []
