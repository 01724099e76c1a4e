"""Edits the text of a configuration: statements of the older spawners go, everything else stays as it is written.

A statement goes if it sets or uses one of their settings or imports, or uses a name that such a statement defines; so
do definitions that only such statements used. A setting that keeps its value gets our class's name in its place.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

_CODE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class Edited:
    """The edited text."""

    text: str
    renamed: frozenset[tuple[str, str]]
    """Settings whose statement stayed, by section and name."""
    code: tuple[str, ...]
    """Functions and classes that were removed because they use the older spawners, by name."""
    helpers: tuple[str, ...]
    """Names that were defined for removed statements alone."""


@dataclass
class _Edit:
    """What is done to each line."""

    removed: set[int] = field(default_factory=set)
    passes: dict[int, str] = field(default_factory=dict)
    """Lines that become ``pass``, with their indentation."""


class SourceEditor:
    """Edits one configuration file."""

    def __init__(self, source: str, *, sections: Collection[str], packages: Collection[str]) -> None:
        self._source = source
        self._sections, self._packages = sections, packages
        self._tree = ast.parse(source)
        self._config_names = {"c"} | {
            target.id
            for node in self._tree.body
            if isinstance(node, ast.Assign) and ast.unparse(node.value) == "get_config()"
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        starts = [node.lineno for node in self._tree.body]
        for line in {line for line in starts if starts.count(line) > 1}:
            raise ConfigError(f"line {line} has several statements: write each on its own line.")

    def edited(self, keep: Collection[tuple[str, str]]) -> Edited:
        """Remove what belongs to the older spawners, except for the settings in ``keep``, which become ours."""
        renames: dict[ast.stmt, tuple[ast.Attribute, str]] = {}
        gone: set[ast.stmt] = set()
        names: set[str] = set()
        while True:
            before = len(gone)
            renames.clear()
            for statement in self._statements(self._tree.body):
                if statement not in gone and self._goes(statement, names, keep, renames):
                    gone.add(statement)
                    names |= _bound(statement)
            if len(gone) == before:
                break
        code = tuple(each.name for each in self._tree.body if each in gone and isinstance(each, _CODE))
        before_unused = frozenset(gone)
        self._remove_unused(gone)
        helpers = sorted({name for each in gone - before_unused for name in _targets(each)})
        edit = _Edit()
        self._mark(self._tree.body, gone, edit)
        lines = self._source.encode().split(b"\n")
        renamed = set()
        for statement, (section, name) in renames.items():
            if statement in gone:
                continue
            number, end = (section.end_lineno or 0) - 1, section.end_col_offset or 0
            line = lines[number]
            start = end - len(section.attr.encode())
            lines[number] = line[:start] + b"GPUSlurmSpawner" + line[end:]
            renamed.add((section.attr, name))
        return Edited(_joined(lines, edit), frozenset(renamed), code, tuple(helpers))

    def _statements(self, body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
        """Every statement outside of functions and classes; the compound ones after what they contain."""
        for statement in body:
            if not isinstance(statement, _CODE):
                for inner in _bodies(statement):
                    yield from self._statements(inner)
            yield statement

    def _goes(
        self,
        statement: ast.stmt,
        names: set[str],
        keep: Collection[tuple[str, str]],
        renames: dict[ast.stmt, tuple[ast.Attribute, str]],
    ) -> bool:
        if isinstance(statement, ast.Import):
            return all(alias.name.partition(".")[0] in self._packages for alias in statement.names)
        if isinstance(statement, ast.ImportFrom):
            return (statement.module or "").partition(".")[0] in self._packages
        bodies = [] if isinstance(statement, _CODE) else _bodies(statement)
        within = {node for body in bodies for each in body for node in ast.walk(each)}
        nodes = [node for node in ast.walk(statement) if node not in within]
        if any(isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names for node in nodes):
            return True
        for node in nodes:
            if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
                continue
            if node.value.id in self._config_names and node.attr in self._sections:
                target = _single_target(statement)
                if target is None or target.value is not node or (node.attr, target.attr) not in keep:
                    return True
                renames[statement] = (node, target.attr)
            if node.value.id in self._config_names and node.attr == "JupyterHub":
                target = _single_target(statement)
                if target is not None and target.value is node and target.attr == "spawner_class":
                    return True
        return False

    def _remove_unused(self, gone: set[ast.stmt]) -> None:
        """Remove definitions that only removed statements used, and statements that only changed what they define."""
        while True:
            kept = [each for each in self._tree.body if each not in gone]
            dead = {name for each in gone for name in _loaded(each)} - self._config_names
            while True:
                alive = [each for each in kept if not (_targets(each) and _targets(each) <= dead)]
                used = {name for each in alive for name in _loaded(each)}
                if not dead & used:
                    break
                dead -= used
            newly = {each for each in kept if _targets(each) and _targets(each) <= dead}
            if not newly:
                return
            gone |= newly

    def _mark(self, body: Sequence[ast.stmt], gone: set[ast.stmt], edit: _Edit) -> None:
        for statement in body:
            inner = [] if isinstance(statement, _CODE) else _bodies(statement)
            if statement in gone or (inner and all(each in gone for part in inner for each in part)):
                first, last = _span(statement)
                edit.removed |= set(range(first, last + 1))
                continue
            for part in inner:
                self._mark(part, gone, edit)
                if all(each in gone for each in part):
                    first = _span(part[0])[0]
                    edit.passes[first] = " " * part[0].col_offset


def _single_target(statement: ast.stmt) -> ast.Attribute | None:
    """The target of ``c.Section.name = ...`` or ``+= ...``."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
    elif isinstance(statement, ast.AugAssign):
        target = statement.target
    else:
        return None
    return target if isinstance(target, ast.Attribute) else None


def _bodies(statement: ast.stmt) -> list[list[ast.stmt]]:
    found = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
    found += [handler.body for handler in getattr(statement, "handlers", [])]
    return [body for body in found if body]


def _span(statement: ast.stmt) -> tuple[int, int]:
    """First and last line, decorators included."""
    first = min([statement.lineno, *(each.lineno for each in getattr(statement, "decorator_list", []))])
    return first, statement.end_lineno or statement.lineno


def _bound(statement: ast.stmt) -> set[str]:
    """Names that a module gets from a statement."""
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return {(alias.asname or alias.name).partition(".")[0] for alias in statement.names}
    if isinstance(statement, _CODE):
        return {statement.name}
    if isinstance(statement, ast.Assign):
        names = [node for target in statement.targets for node in ast.walk(target) if isinstance(node, ast.Name)]
        return {node.id for node in names if isinstance(node.ctx, ast.Store)}
    return set()


def _loaded(statement: ast.stmt) -> set[str]:
    """Names that a statement uses."""
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def _targets(statement: ast.stmt) -> set[str]:
    """Names that a statement defines or changes; empty if it does anything else."""
    if isinstance(statement, (ast.Import, ast.ImportFrom, *_CODE)):
        return _bound(statement)
    if isinstance(statement, (ast.If, ast.For, ast.With)):
        parts = [_targets(each) for body in _bodies(statement) for each in body]
        found = set().union(*parts) if all(parts) else set()
        if found and isinstance(statement, ast.For):  # its variable stands for parts of what it goes through
            found -= {node.id for node in ast.walk(statement.target) if isinstance(node, ast.Name)}
            found |= (
                {node.id for node in ast.walk(statement.iter) if isinstance(node, ast.Name)} if not found else set()
            )
        return found
    if isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return {_root(target) for target in targets}
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        called = statement.value.func
        return {_root(called)} if isinstance(called, ast.Attribute) else set()
    return set()


def _root(node: ast.expr) -> str:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _joined(lines: list[bytes], edit: _Edit) -> str:
    """The lines that stay; a comment right above a removed statement goes with it."""
    removed = set(edit.removed)
    for number in sorted(edit.removed | set(edit.passes)):
        above = number - 1
        while above >= 1 and above not in removed and lines[above - 1].lstrip().startswith(b"#"):
            if lines[above - 1].startswith(b"#!") or above in edit.passes:
                break
            removed.add(above)
            above -= 1
    kept = []
    for number, line in enumerate(lines, 1):
        if number in edit.passes:
            kept.append(f"{edit.passes[number]}pass")
        elif number not in removed:
            kept.append(line.decode())
    return re.sub(r"\n{4,}", "\n\n\n", "\n".join(kept)).strip("\n") + "\n"
