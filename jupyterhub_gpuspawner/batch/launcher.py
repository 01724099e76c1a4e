"""The launcher that every job carries, as one zipapp: the code of ``node/`` with the modules that it imports.

With it travels what the job uses of extensions (:mod:`.carried`).

The archive is a function of the modules' files alone: the same sources give the same bytes.

The node compiles the sources at every start, so :func:`bare` leaves out what has no effect at run time. Every line
stays where it is: a traceback from a node points into this repository.
"""

from __future__ import annotations

import ast
import io
import tokenize
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path

from jupyterhub_gpuspawner.batch.carried import Carried

PACKAGE = "jupyterhub_gpuspawner"
ENTRIES = (f"{PACKAGE}.node.main", f"{PACKAGE}.node.failure")
"""Modules that are run on every node."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
_START = b"""\
#!/bin/sh
for python in "${GPUSPAWNER_PYTHON:-}" python3; do
    command -v -- "$python" >/dev/null 2>&1 && exec "$python" -I "$0" "$@"
done
echo "gpuspawner: no Python where the server is to run: neither ${GPUSPAWNER_PYTHON:-one of the node} nor python3" >&2
exit 127
"""
"""What a shell reads of the archive: in a container the Python that the job has found on its node may be missing."""


@lru_cache(maxsize=64)
def launcher_archive(carried: tuple[Carried, ...] = ()) -> bytes:
    """The zipapp, to be run as ``python3 launch.pyz --plan FILE -- COMMAND``: standard library only, Python >= 3.9.

    ``sh launch.pyz ...`` runs it with the Python that ``GPUSPAWNER_PYTHON`` names, or with one in PATH.

    Reads sources and takes a fifth of a second for those that it has not packed before; :func:`packed` remembers them.
    """
    files = dict(members(tuple(module for part in carried for module in part.modules)))
    for part in carried:
        files |= part.files()
    return zipapp(files)


def zipapp(files: Mapping[str, str]) -> bytes:
    """The archive of these files, which Python runs, and sh."""
    buffer = io.BytesIO(_START)
    with zipfile.ZipFile(buffer, "a") as archive:
        for name, source in sorted(files.items()):
            info = zipfile.ZipInfo(name, _EPOCH)
            info.external_attr = 0o644 << 16
            archive.writestr(info, source, zipfile.ZIP_DEFLATED, 9)
    return buffer.getvalue()


def members(modules: Iterable[str] = ()) -> dict[str, str]:
    """Names and texts of the archive's modules: what is run on every node, and ``modules``, with what they import."""
    files = {"__main__.py": bare(Path(__file__).parents[1].joinpath("node", "__main__.py").read_text("utf-8"))}
    waiting, seen = [*ENTRIES, *modules], set[str]()
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        source, imported = packed(module)
        files[f"{module.replace('.', '/')}.py"] = source
        folders = module.split(".")[:-1]
        files |= {"/".join((*folders[:depth], "__init__.py")): "" for depth in range(1, len(folders) + 1)}
        waiting += imported
    return dict(sorted(files.items()))


@cache
def packed(module: str) -> tuple[str, tuple[str, ...]]:
    """A module's text as it is packed, and the modules of its package, or of this one, that it imports.

    Raises ImportError.
    """
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise ImportError(f"there is no module {module}")
    source = bare(Path(spec.origin).read_text("utf-8"))
    return source, tuple(_imports(source, {PACKAGE, module.partition(".")[0]}))


def _imports(source: str, packages: Iterable[str]) -> Iterator[str]:
    """Modules of these packages that ``source`` imports, at the top or inside a function."""
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    for name in sorted({name for name in names if name.partition(".")[0] in packages and "." in name}):
        with suppress(ModuleNotFoundError):  # a name in a module
            spec = find_spec(name)
            if spec is not None and spec.submodule_search_locations is None:
                yield name


OffsetInArchive = tuple[int, int]
"""Line from 1, and bytes from the line's start: as the nodes of :mod:`ast` count."""


def bare(source: str) -> str:
    """The source without comments, docstrings, and what is under ``if TYPE_CHECKING``.

    Its import is left out, too: ``typing`` takes several milliseconds of every start.
    """
    lines = [line.encode() for line in source.splitlines()]
    edits = [*_comments(source), *_edits(ast.parse(source))]
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


def _edits(tree: ast.AST) -> Iterator[tuple[OffsetInArchive, OffsetInArchive, str]]:
    """Start, end and new text of each statement that is replaced."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            text = "' '"  # not empty: a dataclass without a docstring makes one, and needs inspect for it
        elif (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING") or (
            isinstance(node, ast.ImportFrom) and ast.unparse(node) == "from typing import TYPE_CHECKING"
        ):
            text = ""
        else:
            yield from _edits(node)
            continue
        yield (node.lineno, node.col_offset), (node.end_lineno or node.lineno, node.end_col_offset or 0), text
