"""What an extension is, how those that are there are found, and which of them a hub has."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyterhub_gpuspawner import extensions as folder
from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.extension import Extension, Extensions, Fault, Kind, found, installed, load_each

HEAD = "from jupyterhub_gpuspawner.extension import Extension\n"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of modules that can be imported; they are forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


FAULTS = {
    "it cannot be imported": (
        "import nothing_of_this_name",
        "ModuleNotFoundError: No module named 'nothing_of_this_name'",
    ),
    "it ends the program": ("raise SystemExit(3)", "SystemExit: 3"),
    "it declares nothing": ("", "AttributeError: module 'faulty' has no attribute 'EXTENSION'"),
    "it declares something else": (
        "EXTENSION = {}",
        "EXTENSION of faulty must be an Extension with the name 'faulty'.",
    ),
    "it has another name": (
        f"{HEAD}EXTENSION = Extension('other', 'Other.')",
        "EXTENSION of faulty must be an Extension with the name 'faulty'.",
    ),
    "what it needs is not there": (
        f"{HEAD}EXTENSION = Extension('faulty', 'Faulty.', needs=('good', 'usage'))",
        "it needs usage, not there.",
    ),
    "its needs are a text": (
        f"{HEAD}EXTENSION = Extension('faulty', 'Faulty.', needs='usage')",
        "TypeError: needs must be a tuple of names, not 'usage'",
    ),
    "its commands are a number": (
        f"{HEAD}EXTENSION = Extension('faulty', 'Faulty.', commands=7)",
        "TypeError: commands must be a mapping of names to Command, not 7",
    ),
    "it needs itself": (
        f"{HEAD}EXTENSION = Extension('faulty', 'Faulty.', needs=('faulty',))",
        "it needs faulty, not there.",
    ),
}


@pytest.mark.parametrize(("source", "text"), FAULTS.values(), ids=FAULTS.keys())
def test_an_extension_that_cannot_be_used_is_left_out_by_its_name(package: Path, source: str, text: str) -> None:
    """The others are there."""
    (package / "faulty.py").write_text(source)
    (package / "good.py").write_text(f"{HEAD}EXTENSION = Extension('good', 'Good.')")
    extensions = found(("faulty", "faulty"), ("good", "good"))

    assert extensions.names == ("good",)
    assert [str(fault) for fault in extensions.faults] == [f"The extension faulty is left out: {text}"]


def test_extensions_come_after_those_that_they_need(package: Path) -> None:
    """In whatever order they are found; of two with the same name the first is there."""
    (package / "idle.py").write_text(f"{HEAD}EXTENSION = Extension('idle', 'Idle.', needs=('usage',))")
    (package / "usage.py").write_text(f"{HEAD}EXTENSION = Extension('usage', 'Use.')")
    (package / "again.py").write_text(f"{HEAD}EXTENSION = Extension('usage', 'Use.')")
    extensions = found(("idle", "idle"), ("usage", "usage"), ("usage", "again"))

    assert extensions.names == ("usage", "idle")
    assert [fault.text for fault in extensions.faults] == ["again and usage have the same name."]


def test_a_reference_leads_to_a_module_or_to_a_name_of_it(package: Path) -> None:
    """Relative to the extension's package, or absolute; one that leads nowhere is a fault of its extension alone."""
    (package / "own").mkdir()
    (package / "own" / "__init__.py").write_text(f"{HEAD}EXTENSION = Extension('own', 'Own.', hub='.hub:HUB')")
    (package / "own" / "hub.py").write_text("HUB = 'what it adds'")
    (package / "ends.py").write_text(f"{HEAD}EXTENSION = Extension('ends', 'Ends.', hub='ends_hub:HUB')")
    (package / "ends_hub.py").write_text("raise SystemExit(3)")
    (package / "tables.py").write_text(f"{HEAD}EXTENSION = Extension('tables', 'Has 7.', hub='tables_hub:HUB')")
    (package / "tables_hub.py").write_text(
        "from jupyterhub_gpuspawner.hub.extension import HubExtension; HUB = HubExtension(tables=7)"
    )
    (package / "number.py").write_text(f"{HEAD}EXTENSION = Extension('number', '7.', hub='number:HUB')\nHUB = 7")
    (package / "bad.py").write_text(f"{HEAD}EXTENSION = Extension('bad', 'Bad.', hub='own.hub:LOST')")
    (package / "bare.py").write_text(f"{HEAD}EXTENSION = Extension('bare', 'It adds nothing to a hub.')")
    extensions = found(*((name, name) for name in ("own", "bad", "bare", "ends", "tables", "number")))
    faults: list[Fault] = []
    text = Kind("a text", lambda value: isinstance(value, str))
    found_each = load_each(extensions, lambda own: own.hub, faults.append, text)
    loaded = [(extension.name, adds) for extension, adds in found_each]

    assert loaded == [("own", "what it adds")]
    assert [(fault.name, fault.text.partition(" For further information")[0]) for fault in faults] == [
        ("bad", "own.hub:LOST cannot be loaded: AttributeError: module 'own.hub' has no attribute 'LOST'"),
        ("ends", "ends_hub:HUB cannot be loaded: SystemExit: 3"),
        (
            "tables",
            "tables_hub:HUB cannot be loaded: ValidationError: 1 validation error for HubExtension tables Input should "
            "be a valid tuple [type=tuple_type, input_value=7, input_type=int]",
        ),
        ("number", "number:HUB must be a text."),
    ]
    assert extensions.present[0].load(".hub").HUB == "what it adds"


USAGE, IDLE = Extension("usage", "Use."), Extension("idle", "Idle.", needs=("usage",))
OTHERS = Extensions((USAGE, IDLE), (Fault("broken", "it cannot be imported"),))


def test_a_hub_has_those_that_its_configuration_names() -> None:
    """None, some, or all, with those that these need; one that is left out because of a fault is told once more."""
    assert {names: OTHERS.only(names).names for names in ((), ("usage",), ("idle",), ("idle", "usage"))} == {
        (): (),
        ("usage",): ("usage",),
        ("idle",): ("usage", "idle"),
        ("idle", "usage"): ("usage", "idle"),
    }
    assert OTHERS.only(["broken"]) == Extensions((), OTHERS.faults)


def test_a_name_that_a_hub_cannot_have_is_refused() -> None:
    """The sentence says which there are."""
    with pytest.raises(ConfigError) as raised:
        OTHERS.only(["ilde"])

    assert str(raised.value) == "c.GPUProfilesSpawner.extensions: there is no extension 'ilde'. There are usage, idle."


def test_each_folder_of_extensions_is_an_extension() -> None:
    """All that come with this package can be used."""
    folders = {path.parent.name for path in Path(str(folder.__file__)).parent.glob("*/__init__.py")}

    assert installed().faults == ()
    assert folders <= set(installed().names)


PACKAGE = Path(str(folder.__file__)).parent


def _imported(module: Path) -> set[str]:
    """The names of modules of this package that a module imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in names if name.startswith(f"{folder.__name__}.")}


def test_an_extension_imports_no_other_than_those_that_it_needs() -> None:
    """And no module of theirs whose name begins with an underscore."""
    for extension in installed():
        modules = (PACKAGE / extension.name).rglob("*.py")
        others = {tuple(name.split(".")[2:]) for module in modules for name in _imported(module)}
        others = {path for path in others if path[0] != extension.name}

        assert {path[0] for path in others} <= set(extension.needs), extension.name
        assert {path for path in others if any(step.startswith("_") for step in path)} == set(), extension.name


def test_what_an_extension_says_of_itself_loads_nothing_else() -> None:
    """So that a list of commands takes no time, and a fault in one stays its own."""
    program = (
        "import sys; from jupyterhub_gpuspawner.extension import installed; installed(); "
        f"print(*sorted(name for name in sys.modules if name.startswith({folder.__name__!r} + '.')))"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert printed.split() == sorted(f"{folder.__name__}.{name}" for name in installed().names)


ORDINARY = {
    "amd",
    "availability",
    "bandwidth",
    "idle",
    "inherited",
    "init",
    "mail",
    "messages",
    "picture",
    "records",
    "several_nodes",
    "usage",
}
"""Names that are ordinary words where the core speaks of nodes, jobs, Slurm and events."""


def _texts(file: Path) -> Iterator[str]:
    """The names and texts of a module without its docstrings, or the whole of another file."""
    if file.suffix != ".py":
        yield file.read_text()
        return
    tree = ast.parse(file.read_text())
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value
        yield from (name for key in ("id", "attr", "arg", "name") if isinstance(name := getattr(node, key, None), str))


def test_the_core_does_not_name_an_extension() -> None:
    """Neither its modules nor its templates, styles and scripts; comments may have one as an example."""
    others = {"extensions", "check", "cli", "migrate", "demo", "site"}
    core = [
        path
        for path in PACKAGE.parent.rglob("*")
        if path.suffix in {".py", ".html", ".css", ".js", ".sh"}
        and path.relative_to(PACKAGE.parent).parts[0] not in others
    ]
    names = {extension.name for extension in installed() if extension.folder.parent == PACKAGE} - ORDINARY
    texts = {str(path.relative_to(PACKAGE.parent)): "\n".join(_texts(path)) for path in core}

    assert [
        (file, name)
        for file, text in texts.items()
        for name in sorted(names)
        if re.search(rf"(?<![A-Za-z]){name}(?![A-Za-z])", text)
    ] == []
