"""The launcher that every job carries: the code of ``node/`` and the modules it imports, packed as one zipapp.

With it travels the companion of JupyterLab (``singleuser/``), which the launcher unpacks beside itself. For another web
application it also contains what requires the hub's sign-in.

The archive is a function of this package's files alone: the same sources give the same bytes.

The node compiles the sources at every start, so :func:`bare` leaves out what has no effect at run time. Every line
stays where it is: a traceback from a node points into this repository.
"""

from __future__ import annotations

import ast
import io
import json
import tokenize
import zipfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from jupyterhub_gpuspawner import singleuser

PACKAGE = "jupyterhub_gpuspawner"
_TYPING_ONLY = ("from __future__ import annotations", "from typing import TYPE_CHECKING")
_EPOCH = (1980, 1, 1, 0, 0, 0)


@lru_cache(maxsize=2)
def launcher_archive(*, gate: bool = False) -> bytes:
    """The zipapp, to be run as ``python3 launch.pyz --plan FILE -- COMMAND``: standard library only, Python >= 3.9.

    ``gate``: with the module that requires the hub's sign-in before a web application.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        carried = {singleuser.COMPANION: json.dumps(singleuser.companion_files())}
        if gate:
            carried[f"{singleuser.GATE}.py"] = bare(singleuser.gate_source())
        for name, source in {**members(), **carried}.items():
            info = zipfile.ZipInfo(name, _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            archive.writestr(info, source)
    return buffer.getvalue()


@lru_cache(maxsize=1)
def members() -> dict[str, str]:
    """Names and texts of the archive's modules, sorted: what the modules of ``node/`` import that are run on nodes."""
    root = Path(__file__).parents[1]
    sources: dict[str, str] = {}
    waiting = [f"{PACKAGE}.node.{entry}" for entry in ("main", "other_node", "failure")]
    while waiting:
        module = waiting.pop()
        sources[module] = bare(root.joinpath(*module.split(".")[1:]).with_suffix(".py").read_text("utf-8"))
        waiting += [name for name in _imports(sources[module], root) if name not in sources]
    files = {"__main__.py": bare(root.joinpath("node", "__main__.py").read_text("utf-8"))}
    for module, source in sources.items():
        files[f"{module.replace('.', '/')}.py"] = source
        folders = module.split(".")[:-1]
        files |= {"/".join((*folders[:depth], "__init__.py")): "" for depth in range(1, len(folders) + 1)}
    return dict(sorted(files.items()))


def _imports(source: str, root: Path) -> list[str]:
    """This package's modules that ``source`` imports, at the top or inside a function."""
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    own = sorted({name for name in names if name.startswith(f"{PACKAGE}.")})
    return [name for name in own if root.joinpath(*name.split(".")[1:]).with_suffix(".py").exists()]


OffsetInArchive = tuple[int, int]
"""Line from 1, and bytes from the line's start: as the nodes of :mod:`ast` count."""


def bare(source: str) -> str:
    """The source without comments, docstrings, annotations of functions, and what is under ``if TYPE_CHECKING``.

    The annotations of variables, which dataclasses need, become strings. Then ``from __future__ import annotations``
    has no effect either, and is left out: it would load a module.
    """
    lines = [line.encode() for line in source.splitlines()]
    edits = [*_comments(source), *_edits(ast.parse(source), lines)]
    for (first, start), (last, end), text in sorted(edits, reverse=True):
        tail = lines[last - 1][end:]
        lines[first - 1 : last] = [lines[first - 1][:start] + text.encode()] + [b""] * (last - first)
        lines[last - 1] += tail
    return "\n".join(line.decode().rstrip() for line in lines) + "\n"


def _comments(source: str) -> Iterator[tuple[OffsetInArchive, OffsetInArchive, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, before = token.start[0], token.line[: token.start[1]].encode()
            yield (row, len(before)), (row, len(before + token.string.encode())), ""


def _edits(node: ast.AST, lines: list[bytes]) -> Iterator[tuple[OffsetInArchive, OffsetInArchive, str]]:
    """Start, end and new text of each part of ``node`` that is replaced."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        yield *_ends(node), "' '"  # not empty: a dataclass without a docstring makes one, and needs inspect for it
        return
    if (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING") or (
        isinstance(node, ast.ImportFrom) and ast.unparse(node) in _TYPING_ONLY
    ):
        yield *_ends(node), ""
        return
    if isinstance(node, ast.AnnAssign):
        yield *_ends(node.annotation), repr(ast.unparse(node.annotation))
    elif isinstance(node, ast.arg) and node.annotation:
        yield (node.lineno, node.col_offset + len(node.arg.encode())), _ends(node.annotation)[1], ""
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.returns:
        row, column = node.returns.lineno, node.returns.col_offset
        head = lines[row - 1][: lines[row - 1].rindex(b"->", 0, column)]
        yield (row, len(head.rstrip())), _ends(node.returns)[1], ""
    for child in ast.iter_child_nodes(node):
        yield from _edits(child, lines)


def _ends(node: ast.expr | ast.stmt) -> tuple[OffsetInArchive, OffsetInArchive]:
    return (node.lineno, node.col_offset), (node.end_lineno or node.lineno, node.end_col_offset or 0)
