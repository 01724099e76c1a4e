"""The value of a YAML file and the line of each part, with bounded depth, size and time.

YAML 1.2's core schema is used: ``8:00:00`` and ``no`` are text, where YAML 1.1 reads 28800 and false. Digits after a
leading zero are text, too: they are the name of an account, or a umask, and would lose it as a number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar

import yaml

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.profiles.schema import Frozen, dotted
from jupyterhub_gpuspawner.profiles.sections import profile_class

FieldPath = tuple[str | int, ...]

NODE_LIMIT = 10_000
"""Maximum number of values in a file; an alias counts each time it is used."""
DEPTH_LIMIT = 50
"""Maximum nesting depth of tables and lists."""
_TOO_DEEP = f"tables and lists are nested more than {DEPTH_LIMIT} deep"

_TAG = "tag:yaml.org,2002:"
_CORE = {
    f"{_TAG}bool": re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"),
    f"{_TAG}int": re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})\Z"),
    f"{_TAG}float": re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z"),
    f"{_TAG}null": re.compile(r"(?:~|null|Null|NULL|)\Z"),
}
_DIRECTIVE = re.compile(r"(?m)^%")
_TAB = re.compile(r" *\t")
"""A line whose indentation contains a tab."""


class NotYAML(ConfigError):
    """A text that is no YAML."""

    line = column = -1
    """How far it was read, from 0; -1 where that is not known."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    yaml_implicit_resolvers: ClassVar = {None: list(_CORE.items())}


class Document:
    """A file's value, the number of values in it, and the line on which each part begins."""

    def __init__(self, name: str) -> None:
        self.name = name
        """The file's name, as errors show it."""
        self.value: Any = None
        self.count = 0
        self._lines: dict[FieldPath, int] = {}

    def where(self, path: Sequence[str | int], within: FieldPath = ()) -> str:
        """File, line, and the path in the part ``within``, as far as it may be shown: ``ml.yaml:4: slurm.memory``."""
        shown = shown_path(path)
        position = f"{self.name}:{self.line((*within, *path))}"
        return f"{position}: {shown}" if shown else position

    def line(self, path: Sequence[str | int]) -> int:
        """The line of the part at ``path``, or of the nearest enclosing part."""
        steps = tuple(step if isinstance(step, int) else str(step) for step in path)
        while steps and steps not in self._lines:
            steps = steps[:-1]
        return self._lines.get(steps, 1)

    def read(self, node: Any, path: FieldPath = ()) -> Any:
        """The value of a node; its parts are counted, and their lines kept. Raises ConfigError."""
        line = node.start_mark.line + 1
        self._lines.setdefault(path, line)
        self.count += 1
        if self.count > NODE_LIMIT:
            raise self.fault(f"the file contains more than {NODE_LIMIT} values", line)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, line)
        if len(path) >= DEPTH_LIMIT:  # a part may contain itself
            raise self.fault(_TOO_DEEP, line)
        if node.tag not in (f"{_TAG}seq", f"{_TAG}map"):
            raise self.fault("unknown tag", line)
        if isinstance(node, yaml.SequenceNode):
            return [self.read(item, (*path, position)) for position, item in enumerate(node.value)]
        table: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise self.fault("a key must be text", line)
            key = self._scalar(key_node, line)
            if key in table:
                raise self.fault("duplicate key", line)
            self.count += 1
            self._lines[(*path, str(key))] = line
            table[key] = self.read(value_node, (*path, str(key)))
        return table

    def _scalar(self, node: Any, line: int) -> Any:
        text: str = node.value
        if node.tag == f"{_TAG}str":
            return text
        if node.tag not in _CORE:
            raise self.fault("unknown tag", line)
        if _CORE[node.tag].match(text) is None:
            raise self.fault(f"a value does not match its tag !!{node.tag.removeprefix(_TAG)}", line)
        if node.tag == f"{_TAG}int":
            return int(text)
        if node.tag == f"{_TAG}float":
            number = float(text)
            if not math.isfinite(number):
                raise self.fault("a number is too large", line)
            return number
        return text.lower() == "true" if node.tag == f"{_TAG}bool" else None

    def fault(self, sentence: str, line: int | None) -> ConfigError:
        """What is wrong with the text, in a sentence that does not quote it."""
        return ConfigError(sentence, where=self.name if line is None else f"{self.name}:{line}")


def read_document(text: str, name: str = "text") -> Document:
    """The YAML document in the file ``name``; raises ConfigError with file and line."""
    document = Document(name)
    directive = _DIRECTIVE.search(text)
    if directive is not None:  # libyaml compares each with all before it, and nothing can stop it
        line = text.count("\n", 0, directive.start()) + 1
        raise document.fault("YAML directives (lines that begin with %) are not supported", line)
    try:
        _check_structure(document, text)
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        message = ", ".join(part for part in (error.context, error.problem) if part)
        message = re.sub(r"\W*['\"].*", "", message, flags=re.DOTALL)  # the Python implementation quotes the text
        at = next((mark.line for mark in (error.problem_mark, error.context_mark) if mark is not None), None)
        if at is not None and _TAB.match("".join(text.split("\n")[at : at + 1])):
            message = "the line is indented with a tab: use spaces"
        if "nesting depth" in message:  # of libyaml from 0.2.6 on, which reads on to 1,000 before its first event
            message = _TOO_DEEP
        position = name if at is None else f"{name}:{at + 1}"
        fault = NotYAML(message or "this is not YAML", where=position)
        if error.problem_mark is not None:
            fault.line, fault.column = error.problem_mark.line, error.problem_mark.column
        raise fault from None
    except yaml.YAMLError:
        raise document.fault("the file contains a character that YAML does not allow", None) from None
    if node is not None:
        document.value = document.read(node)
    return document


def _check_structure(document: Document, text: str) -> None:
    """Raise ConfigError for a text that cannot be made into nodes: libyaml makes them by recursion."""
    depth = documents = 0
    event: Any
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.DocumentStartEvent):
            documents += 1
        if depth > DEPTH_LIMIT:
            raise document.fault(_TOO_DEEP, event.start_mark.line + 1)
        if documents > 1:
            message = "a file contains one document: a second '---' is not allowed"
            raise document.fault(message, event.start_mark.line + 1)


# The path of a field as errors about a file show it: as far as the schema knows its names.
#
# Other keys come from the file and may be anything, a secret among them, so the path ends before the first of them.

_TABLES = ("profile_options", "choices", "variables", "traits", "dates", "options")
"""Fields whose keys the author chooses."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


def shown_path(path: Sequence[str | int]) -> str:
    """``slurm.extra[0]``, or the beginning of the path that a schema knows."""
    profile_class()  # whose fields are among those of the schema
    shown: list[str | int] = []
    for before, step in zip(("", *path), path, strict=False):
        own = before in _TABLES and _NAME.fullmatch(str(step)) is not None
        if not (own or isinstance(step, int) or step in _schema_fields(Frozen)):
            break
        shown.append(step)
    return dotted(shown)


@cache
def _schema_fields(model: type[Frozen]) -> frozenset[str]:
    """The names that files use for the fields of this model and of all that are derived from it."""
    names = {field.alias or name for name, field in model.model_fields.items()}
    return frozenset(names).union(*map(_schema_fields, model.__subclasses__()))
