"""Sources made small for a place where they are compiled anew at each start. Pure.

Two steps, and both leave every line where it is, so that a traceback from a node points into this repository:
:func:`needed` blanks what is never reached from the entry (what only the hub uses, what only the type checker reads);
:func:`bare` blanks comments and docstrings.
"""

from __future__ import annotations

import ast
import collections.abc
import io
import tokenize
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_STATEMENT_ENDS = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


def bare(source: str) -> str:
    """The source without comments and docstrings."""
    lines = source.splitlines()
    before = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        (row, start), (last, end) = token.start, token.end
        if token.type == tokenize.COMMENT:
            lines[row - 1] = lines[row - 1][:start].rstrip()
        elif token.type == tokenize.STRING and before in _STATEMENT_ENDS and not lines[last - 1][end:].strip():
            # Not the empty string: a dataclass without a text makes one up, and loads inspect for it.
            lines[row - 1 : last] = [lines[row - 1][:start] + "' '"] + [""] * (last - row)
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            before = token.type
    return "\n".join(lines) + "\n"


def needed(sources: Mapping[str, str], *, entry: str) -> dict[str, str]:
    """The modules (by dotted name) with only those top-level statements that the function ``entry`` reaches.

    A name counts as reached if reached code mentions it: in its own module, in an import from that, or as an attribute
    of anything. Annotations do not count, since ``from __future__ import annotations`` leaves them unread. So more may
    stay than is needed but never less, as long as no name is made up at run time.
    """
    modules = {name: _units(source) for name, source in sources.items()}
    mentioned: dict[str, set[str]] = {name: set() for name in modules}
    everywhere = {entry}
    reached = True
    while reached:
        reached = False
        for name, units in modules.items():
            for unit in units:
                if unit.kept or not (unit.binds is None or unit.binds & (mentioned[name] | everywhere)):
                    continue
                unit.kept = reached = True
                for node in unit.read():
                    if isinstance(node, ast.Name):
                        mentioned[name].add(node.id)
                    elif isinstance(node, ast.Attribute):
                        everywhere.add(node.attr)
                    elif isinstance(node, ast.ImportFrom):
                        mentioned.get(node.module or "", set()).update(alias.name for alias in node.names)
    return {name: _text(source, modules[name]) for name, source in sources.items()}


@dataclass
class _Unit:
    """What is kept or dropped as one: a top-level statement, or one name of an import."""

    statement: ast.stmt
    binds: frozenset[str] | None
    """None for a statement that is there for what it does."""
    kept: bool = False

    def read(self) -> Iterator[ast.AST]:
        """Every node that is evaluated at some time."""
        waiting: list[ast.AST] = [self.statement]
        while waiting:
            node = waiting.pop()
            yield node
            for name, value in ast.iter_fields(node):
                if name not in ("annotation", "returns"):
                    waiting += [each for each in (value if isinstance(value, list) else [value]) if _is_node(each)]


def _is_node(value: object) -> bool:
    return isinstance(value, ast.AST)


def _units(source: str) -> list[_Unit]:
    units = []
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            continue
        if isinstance(statement, (ast.Import, ast.ImportFrom)) and getattr(statement, "module", "") != "__future__":
            units += [_part(statement, alias) for alias in statement.names]
        else:
            units.append(_Unit(statement, _bound(statement)))
    return units


def _part(statement: ast.Import | ast.ImportFrom, alias: ast.alias) -> _Unit:
    """One name of an import, as an import of its own at the same place.

    What :mod:`typing` has from :mod:`collections.abc` is taken from there, which costs nothing; ``typing`` costs 5 ms.
    """
    if isinstance(statement, ast.Import):
        part: ast.stmt = ast.Import([alias])
    else:
        origin = "collections.abc" if alias.name in collections.abc.__all__ else "typing"
        module = origin if statement.module == "typing" else statement.module
        part = ast.ImportFrom(module, [alias], statement.level)
    return _Unit(ast.copy_location(part, statement), frozenset({alias.asname or alias.name.partition(".")[0]}))


def _bound(statement: ast.stmt) -> frozenset[str] | None:
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return frozenset({statement.name})
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = [each for t in statement.targets for each in (t.elts if isinstance(t, ast.Tuple) else [t])]
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    names = [target.id for target in targets if isinstance(target, ast.Name)]
    return frozenset(names) if names and len(names) == len(targets) else None


def _text(source: str, units: list[_Unit]) -> str:
    """The kept units on the lines where they were."""
    old = source.splitlines()
    new = [""] * len(old)
    for unit in units:
        if not unit.kept:
            continue
        first, last = _lines(unit.statement)
        if isinstance(unit.statement, (ast.Import, ast.ImportFrom)):
            line = ast.unparse(unit.statement)
            new[first] = f"{new[first]}; {line}" if new[first] else line
        else:
            new[first : last + 1] = old[first : last + 1]
    return "\n".join(new) + "\n"


def _lines(statement: ast.stmt) -> tuple[int, int]:
    """First and last line, from 0, decorators included."""
    first = min([statement.lineno, *(each.lineno for each in getattr(statement, "decorator_list", ()))])
    return first - 1, (statement.end_lineno or statement.lineno) - 1
