"""The typed stand-ins for the classes of JupyterHub, batchspawner and wrapspawner match the real ones."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.hub import spawner_bases

pytestmark = pytest.mark.oldest

CLASSES = {
    node.name: node
    for node in ast.walk(ast.parse(Path(spawner_bases.__file__).read_text()))
    if isinstance(node, ast.ClassDef)
}


def test_every_base_is_typed() -> None:
    """The stand-ins are exactly these classes."""
    assert sorted(CLASSES) == sorted(spawner_bases.__all__)


@pytest.mark.parametrize("name", spawner_bases.__all__)
def test_the_real_class_has_each_typed_attribute(name: str) -> None:
    """A missing name in a supported version would otherwise only show when it is used."""
    real = getattr(spawner_bases, name)
    typed = {ast.unparse(each.target) for each in CLASSES[name].body if isinstance(each, ast.AnnAssign)}

    assert {each for each in typed if not hasattr(real, each)} == set()


@pytest.mark.parametrize("name", spawner_bases.__all__)
def test_the_real_method_takes_the_typed_arguments(name: str) -> None:
    """The real methods have the same argument names."""
    real = getattr(spawner_bases, name)
    typed = [each for each in CLASSES[name].body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))]

    for method in typed:
        names = [argument.arg for argument in method.args.args]
        parameters = inspect.signature(getattr(real, method.name)).parameters
        assert [each for each in names if each not in parameters] == [], method.name
