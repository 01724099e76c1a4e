"""The launcher that every job carries: the node's code and the core it needs, packed into one zipapp.

The archive depends on nothing but this package's files: the same sources give the same bytes. Comments and docstrings
are blanked, which halves it; lines keep their numbers, so a traceback from a node points into this repository.
"""

from __future__ import annotations

import ast
import io
import tokenize
import zipfile
from functools import lru_cache
from pathlib import Path

PACKAGE = "jupyterhub_gpuspawner"
_STATEMENT_ENDS = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
_EPOCH = (1980, 1, 1, 0, 0, 0)
_MAIN = """\
import sys
try:
    from jupyterhub_gpuspawner.node.launch import main
    main(sys.argv[1:])
except Exception as error:
    import os
    print("gpuspawner: the launcher failed, the server starts without it:", repr(error), file=sys.stderr, flush=True)
    command = sys.argv[sys.argv.index("--") + 1:]
    os.execvp(command[0], command)
"""


@lru_cache(maxsize=1)
def launcher_archive() -> bytes:
    """The zipapp, to be run as ``python3 launch.pyz --plan FILE -- COMMAND``: standard library only, Python >= 3.9."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, source in members().items():
            info = zipfile.ZipInfo(name, _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            archive.writestr(info, source)
    return buffer.getvalue()


def members() -> dict[str, str]:
    """Names and texts of the files in the archive, in order: ``node/`` and every module of ours that it imports."""
    root = Path(__file__).parent
    files = {"__main__.py": _MAIN, f"{PACKAGE}/__init__.py": ""}
    waiting = sorted((root / "node").glob("*.py"))
    while waiting:
        path = waiting.pop(0)
        name = f"{PACKAGE}/{path.relative_to(root).as_posix()}"
        if name not in files:
            source = path.read_text("utf-8")
            files[name] = bare(source)
            waiting += [found for found in _imports(source, root) if found.exists()]
    return dict(sorted(files.items()))


def bare(source: str) -> str:
    """The source without comments and docstrings; every other line stays where it is."""
    lines = source.splitlines()
    before = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        (row, start), (last, end) = token.start, token.end
        if token.type == tokenize.COMMENT:
            lines[row - 1] = lines[row - 1][:start].rstrip()
        elif token.type == tokenize.STRING and before in _STATEMENT_ENDS and lines[last - 1][end:].strip() == "":
            lines[row - 1] = lines[row - 1][:start] + "' '"  # not empty, or dataclass makes up a text
            lines[row:last] = [""] * (last - row)
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            before = token.type
    return "\n".join(lines) + "\n"


def _imports(source: str, root: Path) -> list[Path]:
    """The files of our own modules that ``source`` imports anywhere."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    own = [name.split(".")[1:] for name in names if name.startswith(f"{PACKAGE}.")]
    return [root.joinpath(*parts).with_suffix(".py") for parts in own]
