"""The archive that every job carries: the same bytes each time, small, whole."""

from __future__ import annotations

import builtins
import dis
import io
import re
import zipfile
from pathlib import Path
from types import CodeType

import jupyterhub_gpuspawner
from jupyterhub_gpuspawner.batch import launcher
from jupyterhub_gpuspawner.batch.launcher import launcher_archive


def test_the_same_sources_make_the_same_bytes() -> None:
    """So that two jobs' scripts differ in nothing but what was asked for."""
    launcher_archive.cache_clear()
    first = launcher_archive()
    launcher_archive.cache_clear()

    assert launcher_archive() == first
    assert launcher_archive() is launcher_archive()
    assert len(first) < 64 * 1024


def test_the_archive_holds_the_node_and_what_it_needs_of_the_core() -> None:
    """Nothing of the hub, the commands, the demo or Slurm's room."""
    names = zipfile.ZipFile(io.BytesIO(launcher_archive())).namelist()

    package = "jupyterhub_gpuspawner/"
    assert {name.removeprefix(package).partition("/")[0] for name in names} == {
        *("__main__.py", "__init__.py", "node", "placement", "units.py", "wire"),
    }
    assert {"node/launch.py", "node/observe/nvml.py", "node/observe/sysfs.py"} <= {
        name.removeprefix(package) for name in names
    }


def test_a_traceback_points_into_the_repository() -> None:
    """Every line that is left stands where it stands in its source."""
    root = Path(jupyterhub_gpuspawner.__file__).parent
    for name, packed in launcher.members().items():
        source = root / name.removeprefix("jupyterhub_gpuspawner/")
        if name == "__main__.py" or not packed:
            continue
        for number, (left, line) in enumerate(zip(packed.splitlines(), source.read_text().splitlines(), strict=True)):
            changed = left.strip() in ("", "' '") or re.match(r"(from \S+ )?import ", left)
            assert changed or line.startswith(left), f"{name}:{number + 1}"


def test_what_is_left_out_is_nowhere_missed() -> None:
    """No function of the archive uses a name that its module does not have."""
    for name, source in launcher.members().items():
        module = compile(source, name, "exec", dont_inherit=True)
        known = {*_names(module, "STORE_NAME"), *dir(builtins), "__file__", "__name__"}
        missed = {wanted for code in _codes(module) for wanted in _names(code, "LOAD_GLOBAL")} - known
        assert (name, set()) == (name, missed)


def _codes(code: CodeType) -> list[CodeType]:
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return [code, *(found for each in inner for found in _codes(each))]


def _names(code: CodeType, operation: str) -> set[str]:
    return {str(each.argval) for each in dis.get_instructions(code) if each.opname == operation}
