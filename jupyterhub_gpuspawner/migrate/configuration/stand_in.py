"""Modules in place of those that a configuration imports and that are not installed here.

They exist while the configuration is read. Those of moss and SlurmFormSpawner have the classes that configurations use
or derive from; in any other, each name is a class that accepts everything.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from batchspawner import SlurmSpawner
from traitlets.config import Configurable
from wrapspawner import WrapSpawner

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableSequence

SPAWNERS = frozenset({"batchspawner", "wrapspawner", "jupyterhub_moss", "slurmformspawner", "optionsspawner"})
"""The packages that this one replaces."""


class _Anything(type):
    """The metaclass of a class whose attributes are classes of the same sort."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name, (StandIn,), {})


class StandIn(metaclass=_Anything):
    """A class, and an object, that accepts every call and has every attribute."""

    def __init__(self, *_given: Any, **_named: Any) -> None:
        """Accept anything."""

    def __getattr__(self, name: str) -> Any:
        """Every attribute but Python's own."""
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn()

    def __call__(self, *_given: Any, **_named: Any) -> StandIn:
        """Return another stand-in."""
        return StandIn()


class StandInModule(ModuleType):
    """A module that is not installed here."""

    __path__: MutableSequence[str] = []  # noqa: RUF012 - Python's own name for a package's folders

    def __getattr__(self, name: str) -> Any:
        """A class of this name, derived from what its name says."""
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "set_config":
            return _set_moss
        made: type = _Anything(name, (StandIn,), {})
        if name.endswith("SlurmSpawner") or name == "SlurmFormSpawner":
            made = type(name, (SlurmSpawner,), {"__module__": self.__name__})
        elif name == "OptionsFormSpawner":
            made = type(name, (WrapSpawner,), {"__module__": self.__name__})
        elif name in ("SbatchForm", "SlurmAPI"):
            made = type(name, (Configurable,), {"__module__": self.__name__})
        setattr(self, name, made)
        return made


def _set_moss(config: Any) -> None:
    """Set what ``jupyterhub_moss.set_config`` sets, without its handler."""
    config.JupyterHub.spawner_class = "jupyterhub_moss.MOSlurmSpawner"


class _Finder:
    """Finds the absent modules; the last one to be asked."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self.made: set[str] = set()

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        top = name.partition(".")[0]
        if top not in self._names:
            return None
        self.made.add(top)
        return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return StandInModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is to be run."""


def absent_modules(source: str) -> frozenset[str]:
    """The top-level packages that a configuration imports outside of ``try``, and that are not installed here."""
    names = set[str]()
    pending: list[ast.AST] = [ast.parse(source)]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Try):
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
        pending += ast.iter_child_nodes(node)
    return frozenset(name for name in names if not _is_installed(name))


def _is_installed(name: str) -> bool:
    return name in sys.modules or importlib.util.find_spec(name) is not None


@contextmanager
def stand_ins(names: frozenset[str]) -> Iterator[set[str]]:
    """Provide these modules; yields the set of those that were imported."""
    names |= {name for name in SPAWNERS if not _is_installed(name)}  # they may be named as text alone
    finder = _Finder(names)
    sys.meta_path.append(finder)
    try:
        yield finder.made
    finally:
        sys.meta_path.remove(finder)
        for name in [each for each in sys.modules if each.partition(".")[0] in names]:
            del sys.modules[name]
