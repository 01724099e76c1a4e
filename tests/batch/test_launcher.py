"""The archive that every job carries: the same bytes each time, small, and complete."""

from __future__ import annotations

import ast
import builtins
import dis
import io
import zipfile
from pathlib import Path
from types import CodeType

import pytest

import jupyterhub_gpuspawner
from jupyterhub_gpuspawner.batch.launcher import bare, launcher_archive, members
from jupyterhub_gpuspawner.extension import installed


def test_the_same_sources_make_the_same_bytes() -> None:
    """So the scripts of two jobs differ only in what was requested."""
    launcher_archive.cache_clear()
    first = launcher_archive()
    launcher_archive.cache_clear()

    assert launcher_archive() == first
    assert launcher_archive() is launcher_archive()
    assert len(first) < 80 * 1024


CORE = """
__main__.py __init__.py units.py
node/__init__.py node/child.py node/failure.py node/folder.py node/grant.py node/hardware.py node/main.py
node/nvml.py node/placing.py node/port.py node/report.py node/turn.py
placement/__init__.py placement/choice.py placement/topology.py wire/__init__.py wire/documents.py
"""


def everything() -> list[str]:
    """The modules that all extensions bring to nodes."""
    return [
        module
        for extension in installed()
        if extension.launcher
        for module in extension.load(extension.launcher).modules
    ]


def names(*extensions: str) -> set[str]:
    """Files of the archive of a job that uses these extensions, below the package's folder."""
    carried = tuple(extension.load(extension.launcher) for extension in installed() if extension.name in extensions)
    archive = zipfile.ZipFile(io.BytesIO(launcher_archive(carried)))
    return {name.removeprefix("jupyterhub_gpuspawner/") for name in archive.namelist()}


def test_the_archive_of_a_job_that_uses_no_extension_holds_the_core_alone() -> None:
    """Nothing of the hub, the commands or the demo, and nothing that an extension brings."""
    assert names() == set(CORE.split())


def test_an_extension_adds_its_own_modules() -> None:
    """What the core has is there once."""
    for extension in [extension for extension in installed() if extension.launcher]:
        modules = extension.load(extension.launcher).modules
        added = {f"{module.partition('.')[2].replace('.', '/')}.py" for module in modules}

        assert names(extension.name) - names() >= added


def test_a_traceback_points_into_the_repository() -> None:
    """Every statement in the archive stands on the line where it stands in its source."""
    root = Path(jupyterhub_gpuspawner.__file__).parent
    for name, packed in members(everything()).items():
        if name != "__main__.py" and packed:
            source = (root / name.removeprefix("jupyterhub_gpuspawner/")).read_text()
            assert packed.count("\n") == source.count("\n")
            assert _statements(packed) - _statements(source) == set(), name


def _statements(source: str) -> set[tuple[str, str, int]]:
    """Kind and name, where it has one, of each statement, with its line."""
    statements = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]
    return {(type(node).__name__, getattr(node, "name", ""), node.lineno) for node in statements}


def test_what_is_left_out_is_nowhere_missed() -> None:
    """No function of the archive uses a name that its module does not have."""
    for name, source in members(everything()).items():
        module = compile(source, name, "exec", dont_inherit=True)
        names = {*_names(module, "STORE_NAME"), *dir(builtins), "__file__", "__name__"}
        missed = {wanted for code in _codes(module) for wanted in _names(code, "LOAD_GLOBAL")} - names
        assert (name, set()) == (name, missed)


def test_nothing_is_imported_for_types_alone() -> None:
    """The module ``typing`` takes several milliseconds of every start, and pydantic is not there."""
    for name, source in members(everything()).items():
        imported = {
            module
            for node in ast.walk(ast.parse(source))
            for module in (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module]
                if isinstance(node, ast.ImportFrom)
                else []
            )
        }
        assert imported.isdisjoint({"typing", "pydantic"}), name


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('"""Text."""\n', "' '\n"),
        ('"""Of\nthree\nlines."""\nx = 1\n', "' '\n\n\nx = 1\n"),
        ("x = 1  # why\n", "x = 1\n"),
        ("# why\nx = 1\n", "\nx = 1\n"),
        ("x = '# no comment'  # a comment\n", "x = '# no comment'\n"),
        ("x = 'ä…'  # a comment\n", "x = 'ä…'\n"),
        (
            'def f():\n    """Text."""\n    return """not\nthis"""\n',
            'def f():\n    \' \'\n    return """not\nthis"""\n',
        ),
        ('class C:\n    x: int = 1\n    """What x is."""\n', "class C:\n    x: int = 1\n    ' '\n"),
        ('f(\n    "an argument"\n)\n', 'f(\n    "an argument"\n)\n'),
        ('x = {\n    "key":\n    "value",  # why\n}\n', 'x = {\n    "key":\n    "value",\n}\n'),
        (
            "from __future__ import annotations\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"
            '    import a  # why\n    class P:\n        """Text."""\n        x: int = 1\nx = 1\n',
            "from __future__ import annotations\n" + "\n" * 6 + "x = 1\n",
        ),
    ],
)
def test_what_has_no_effect_at_run_time_goes(source: str, expected: str) -> None:
    """Nothing else does, and no line moves."""
    assert bare(source) == expected


def _codes(code: CodeType) -> list[CodeType]:
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return [code, *(descendant for child in inner for descendant in _codes(child))]


def _names(code: CodeType, operation: str) -> set[str]:
    return {str(instruction.argval) for instruction in dis.get_instructions(code) if instruction.opname == operation}
