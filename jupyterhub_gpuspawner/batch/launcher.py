"""The launcher that every job carries: the node's code and the core it needs, packed into one zipapp.

The archive depends on nothing but this package's files: the same sources give the same bytes. What the node does not
need is blanked (:mod:`~jupyterhub_gpuspawner.batch.zipapp`).
"""

from __future__ import annotations

import ast
import io
import zipfile
from functools import lru_cache
from pathlib import Path

from jupyterhub_gpuspawner.batch import zipapp

PACKAGE = "jupyterhub_gpuspawner"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_MAIN = """\
import gc, sys
gc.disable()
try:
    from jupyterhub_gpuspawner.node.launch import main
    main(sys.argv[1:])
except Exception as error:
    import os
    try:
        os.write(2, b"gpuspawner: the launcher failed, the server starts without it: %a\\n" % (error,))
    except OSError:
        pass
    own = sys.argv[1:sys.argv.index("--")]
    if "--plan" in own:
        plan = own[own.index("--plan") + 1]
        try:
            plan = plan if plan.startswith("{") else open(plan).read()
        except Exception:
            plan = ""
        if '"claim": null' not in plan:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""  # GPUs that it would have had to claim
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
    """Names and texts of the files in the archive, in order: what ``node/launch.py`` reaches of this package."""
    root = Path(__file__).parents[1]
    sources = {f"{PACKAGE}.node.launch": ""}
    waiting = [f"{PACKAGE}.node.launch"]
    while waiting:
        module = waiting.pop()
        sources[module] = root.joinpath(*module.split(".")[1:]).with_suffix(".py").read_text("utf-8")
        waiting += [name for name in _imports(sources[module], root) if name not in sources]
    files = {"__main__.py": _MAIN}
    for module, source in zipapp.needed(sources, entry="main").items():
        files[f"{module.replace('.', '/')}.py"] = zipapp.bare(source)
        folders = module.split(".")[:-1]
        files |= {"/".join((*folders[:depth], "__init__.py")): "" for depth in range(1, len(folders) + 1)}
    return dict(sorted(files.items()))


def _imports(source: str, root: Path) -> list[str]:
    """Our own modules that ``source`` imports anywhere."""
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    own = sorted({name for name in names if name.startswith(f"{PACKAGE}.")})
    return [name for name in own if root.joinpath(*name.split(".")[1:]).with_suffix(".py").exists()]
