"""Sources made small: what goes, what stays, and that it stays where it is."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.batch import zipapp


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('"""Text."""\n', "' '\n"),
        ('"""Of\nthree\nlines."""\nx = 1\n', "' '\n\n\nx = 1\n"),
        ("x = 1  # why\n", "x = 1\n"),
        ("# why\nx = 1\n", "\nx = 1\n"),
        ("x = '# no comment'  # a comment\n", "x = '# no comment'\n"),
        (
            'def f():\n    """Text."""\n    return """not\nthis"""\n',
            'def f():\n    \' \'\n    return """not\nthis"""\n',
        ),
        ('class C:\n    x: int = 1\n    """What x is."""\n', "class C:\n    x: int = 1\n    ' '\n"),
        ('f(\n    "an argument"\n)\n', 'f(\n    "an argument"\n)\n'),
        ('x = {\n    "key":\n    "value",  # why\n}\n', 'x = {\n    "key":\n    "value",\n}\n'),
        ('"a" "b"\n', '"a" "b"\n'),
    ],
)
def test_comments_and_docstrings_go(source: str, expected: str) -> None:
    """Nothing else does, and no line moves."""
    assert zipapp.bare(source) == expected


def kept(entry: str = "main", **sources: str) -> dict[str, list[str]]:
    """The lines that are left, without blank ones."""
    made = zipapp.needed(sources, entry=entry)
    assert all(made[name].count("\n") == sources[name].rstrip("\n").count("\n") + 1 for name in sources)
    return {name: [line for line in text.splitlines() if line] for name, text in made.items()}


def test_what_the_entry_does_not_reach_goes() -> None:
    """Through its own module and the modules that it imports from."""
    assert kept(
        a="from b import used, idle\ndef main():\n    return used()\ndef other():\n    return idle()\n",
        b="LIMIT = 3\nSIZE = 4\ndef used():\n    return LIMIT\ndef idle():\n    return SIZE\n",
    ) == {
        "a": ["from b import used", "def main():", "    return used()"],
        "b": ["LIMIT = 3", "def used():", "    return LIMIT"],
    }


def test_what_only_annotations_mention_goes() -> None:
    """Types are for the type checker: with deferred annotations nobody reads them at run time."""
    lines = [
        "from __future__ import annotations",
        "from typing import TYPE_CHECKING, Any, Mapping, TypeVar",
        "if TYPE_CHECKING:",
        "    from b import Thing",
        "T = TypeVar('T')",
        "Names = Mapping[str, Any]",
        "class Idle: ...",
        "def main(x: Thing, *more: Names) -> Idle | T:",
        "    y: Any = 1",
    ]

    assert kept(a="\n".join(lines) + "\n")["a"] == [lines[0], *lines[-2:]]


def test_decorators_bases_and_defaults_are_run() -> None:
    """They are not annotations."""
    source = (
        "def deco(f): return f\nclass Base: ...\nD = 1\n@deco\ndef main(x=D): return Thing\nclass Thing(Base): ...\n"
    )

    assert kept(a=source)["a"] == source.splitlines()


def test_an_attribute_of_anything_keeps_the_name_everywhere() -> None:
    """``module.name`` may be any module's."""
    assert kept(
        a="from pack import b\ndef main(): return b.used()\n",
        **{"pack.b": "def used(): ...\ndef idle(): ...\n"},
    )["pack.b"] == ["def used(): ..."]


def test_a_late_import_keeps_what_it_names() -> None:
    """Inside a function."""
    assert kept(a="def main():\n    from b import used\n    return used\n", b="used = 1\nidle = 2\n")["b"] == [
        "used = 1"
    ]


def test_a_statement_that_does_something_stays() -> None:
    """Only bindings can be left out."""
    source = "import sys\nsys.setrecursionlimit(9)\nidle = 1\ndef main(): ...\n"

    assert kept(a=source)["a"] == ["import sys", "sys.setrecursionlimit(9)", "def main(): ..."]


def test_collections_come_from_where_they_are() -> None:
    """``typing`` is slow to import, and names them again."""
    source = "from typing import Any, Mapping\ndef main(x): return isinstance(x, Mapping)\n"

    assert kept(a=source)["a"][0] == "from collections.abc import Mapping"


def test_imports_on_one_line_stay_on_it() -> None:
    """Each name that is needed, and no other."""
    source = "from os import (\n    path,\n    sep,\n    name,\n)\ndef main(): return path, name\n"

    assert zipapp.needed({"a": source}, entry="main")["a"].splitlines() == [
        "from os import path; from os import name",
        *[""] * 4,
        "def main(): return path, name",
    ]
