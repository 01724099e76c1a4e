"""Python types, defaults and docstrings as Markdown for the reference."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from jupyterhub_gpuspawner.profiles.schema import TEXT_LIMIT, Checked

TEXT = f"one line of printable text, at most {TEXT_LIMIT} characters"
"""The rule for texts without a rule of their own."""
_NAMES = {str: "text", bool: "true or false", int: "whole number", float: "number", date: "date", Any: "anything"}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; a cell may contain any text of one paragraph."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell(text) for text in line)} |" for line in lines) + "\n"


def cell(text: str) -> str:
    """The text on one line, with ``|`` escaped."""
    return re.sub(r"\s+", " ", text).strip().replace("|", "\\|")


def markdown(docstring: str | None) -> str:
    """A docstring's reStructuredText as Markdown: converts literals and roles."""
    text = inspect.cleandoc(docstring or "")
    text = re.sub(r":\w+:`[~.]*(?:[\w.]+\.)?(\w+)`", r"`\1`", text)
    return text.replace("``", "`")


def code(value: object) -> str:
    """A value as code."""
    return f"`{value}`"


def anchor(name: str) -> str:
    """The fragment of a heading, as repository browsers and MyST generate it."""
    return re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-")


def type_in_words(annotation: Any) -> str:
    """The type of a field, with the rule for its text."""
    if annotation in _NAMES:
        return _NAMES[annotation]
    arguments = get_args(annotation)
    if arguments:
        return _generic_in_words(get_origin(annotation), arguments)
    name = getattr(annotation, "__name__", str(annotation))
    return f"[{name}](#{anchor(name)})" if issubclass(annotation, BaseModel) else code(name)


def _generic_in_words(origin: Any, arguments: Sequence[Any]) -> str:
    if origin is Annotated:
        words = _annotated(arguments)
    elif origin is Literal:
        words = choice(arguments)
    elif origin in (Union, UnionType):
        kinds = [one for one in arguments if one is not NoneType and not (one is int and float in arguments)]
        words = " or ".join(dict.fromkeys(type_in_words(one) for one in kinds))
    elif origin is tuple and arguments[-1] is not Ellipsis:
        words = f"list of {len(arguments)}, each a {type_in_words(arguments[0])}"
    elif issubclass(origin, Mapping):
        words = f"table by {type_in_words(arguments[0])}; each: {type_in_words(arguments[1])}"
    else:
        words = f"list; each: {type_in_words(arguments[0])}"
    return words


def choice(values: Iterable[object]) -> str:
    """The values as code, the last after 'or'."""
    *others, last = [code(value) for value in values]
    return f"{', '.join(others)} or {last}" if others else last


def _annotated(arguments: Sequence[Any]) -> str:
    rule = next((_rule(checked) for checked in arguments[1:] if isinstance(checked, Checked)), "")
    return "text" if rule in ("", TEXT) and arguments[0] is str else rule or type_in_words(arguments[0])


def _rule(checked: Checked) -> str:
    """The rule, taken from the error message for an invalid value."""
    try:
        checked.read("\0")
    except ValueError as error:
        _, _, rule = str(error).partition("must be ")
        return (rule or str(error).partition(": ")[2].removeprefix("write ")).replace("*", r"\*")
    return ""


def field_docs(model: type[BaseModel]) -> dict[str, str]:
    """What each field of a model means, by the field's name; of a field without a text nothing.

    The package itself does not read these texts: finding them in its sources would be a quarter of its import.
    """
    tables = [cls for cls in reversed(model.__mro__) if issubclass(cls, BaseModel) and cls is not BaseModel]
    docs = {name: inspect.cleandoc(doc) for cls in tables for name, doc in attribute_docs(cls).items()}
    given = {name: field.description for name, field in model.model_fields.items() if field.description}
    return {name: doc for name, doc in docs.items() if name in model.model_fields} | given


def attribute_docs(cls: type) -> dict[str, str]:
    """The docstrings below the attributes of a class, by name (PEP 257 calls them attribute docstrings)."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(body, ast.ClassDef)
    docs: dict[str, str] = {}
    for statement, after in zip(body.body, body.body[1:], strict=False):
        target: ast.expr | None = statement.target if isinstance(statement, ast.AnnAssign) else None
        if isinstance(statement, ast.Assign):  # a member of an enumeration
            (target,) = statement.targets
        if isinstance(target, ast.Name) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            docs[target.id] = str(after.value.value)
    return docs
