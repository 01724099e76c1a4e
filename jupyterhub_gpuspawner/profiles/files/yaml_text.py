"""A YAML file's value and the line of each part of it, whoever wrote the file: bounded in depth, size and time.

The YAML is 1.2's core schema: ``8:00:00`` and ``no`` are text, where YAML 1.1 makes them 28800 and false. It is read
event by event, since libyaml makes a tree by recursion and a file of brackets would end the process. No error quotes
the file: what is in it may be a secret.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NODE_LIMIT = 10_000
"""Values in a file, each alias counted as often as it is used."""
DEPTH_LIMIT = 50
"""Tables and lists that may stand one in another."""

_CORE = {
    "bool": re.compile("true|True|TRUE|false|False|FALSE"),
    "int": re.compile("[-+]?[0-9]{1,18}"),
    "float": re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"),
    "null": re.compile("~|null|Null|NULL|"),
}
_TAG = "tag:yaml.org,2002:"
_DIRECTIVE = re.compile(r"(?m)^%")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Path = tuple[str | int, ...]


class YamlFault(Exception):
    """What is wrong with the text, in a sentence without a word of it, and the line."""

    def __init__(self, sentence: str, line: int | None = None) -> None:
        super().__init__(sentence)
        self.line = line


@dataclass
class _Part:
    """A value with how many values are in it, and how deep."""

    value: Any
    count: int = 1
    depth: int = 0


@dataclass
class _Open:
    """A table or list whose end is not read yet."""

    path: Path
    anchor: str | None
    part: _Part
    key: Any = None
    keyed: bool = False


@dataclass
class Document:
    """A file's value, how many values are in it, and the line on which each part of it begins."""

    value: Any = None
    count: int = 0
    lines: dict[Path, int] = field(default_factory=dict)

    def line(self, path: Sequence[str | int]) -> int:
        """The line of the part at ``path``, or of the nearest part around it."""
        steps = tuple(path)
        while steps and steps not in self.lines:
            steps = steps[:-1]
        return self.lines.get(steps, 1)


def read_document(text: str) -> Document:
    """The value of one YAML document; raises YamlFault."""
    directive = _DIRECTIVE.search(text)
    if directive is not None:  # libyaml compares each with all before it, and nothing can stop it
        raise YamlFault("a line that begins with % is not known here", text.count("\n", 0, directive.start()) + 1)
    reader = _Reader()
    for event in _events(text):
        reader.take(event)
    document = reader.document
    document.count = reader.count
    return document


def _events(text: str) -> Iterator[Any]:
    try:
        yield from yaml.parse(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        says = ", ".join(part for part in (error.context, error.problem) if part)
        if _LOADER is yaml.SafeLoader:  # the one in Python quotes what it found
            says = re.sub(r"\W*['\"].*", "", says, flags=re.DOTALL)
        mark = error.problem_mark or error.context_mark
        raise YamlFault(says or "this is no YAML", mark.line + 1 if mark is not None else None) from None
    except yaml.YAMLError:
        raise YamlFault("there is a character in it that YAML does not allow") from None


class _Reader:
    """Makes the value of the events of a document, without recursion."""

    def __init__(self) -> None:
        self.document = Document()
        self.count = 0
        self._open: list[_Open] = []
        self._anchors: dict[str, _Part | None] = {}
        self._documents = 0

    def take(self, event: Any) -> None:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise YamlFault("a file holds one document: no second '---'", line)
        elif isinstance(event, yaml.AliasEvent):
            part = self._anchors.get(str(event.anchor))
            if part is None:
                raise YamlFault("an alias names no part that is complete before it", line)
            self._put(part, None, line)
        elif isinstance(event, yaml.ScalarEvent):
            self._put(_Part(_scalar(event, line)), event.anchor, line)
        elif isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent)):
            self._begin(event, line)
        elif isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            ended = self._open.pop()
            self._put(ended.part, ended.anchor, line, ended=True)

    def _begin(self, event: Any, line: int) -> None:
        is_list = isinstance(event, yaml.SequenceStartEvent)
        if event.tag not in (None, "!", f"{_TAG}{'seq' if is_list else 'map'}"):
            raise YamlFault("there is a tag that is not known here", line)
        if self._open and self._waits_for_key(self._open[-1]):
            raise YamlFault("a key must be text", line)
        if len(self._open) >= DEPTH_LIMIT:
            raise YamlFault(f"more than {DEPTH_LIMIT} tables and lists stand one in another", line)
        path = self._next_path()
        self.document.lines.setdefault(path, line)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        self._count(1, line)
        self._open.append(_Open(path, event.anchor, _Part([] if is_list else {})))

    def _put(self, part: _Part, anchor: str | None, line: int, *, ended: bool = False) -> None:
        """Put a value that is complete where it belongs: a key, a table's value, a list's item, or the whole."""
        if not ended:
            self._count(part.count, line)
        if anchor is not None:
            self._anchors[anchor] = part
        if not self._open:
            self.document.lines.setdefault((), line)
            self.document.value = part.value
            return
        around = self._open[-1]
        if not ended and self._waits_for_key(around):
            self._key(around, part, line)
            return
        if len(self._open) + part.depth > DEPTH_LIMIT:
            raise YamlFault(f"more than {DEPTH_LIMIT} tables and lists stand one in another", line)
        self.document.lines.setdefault(self._next_path(), line)
        holder = around.part
        holder.count += part.count
        holder.depth = max(holder.depth, part.depth + 1)
        if isinstance(holder.value, list):
            holder.value.append(part.value)
        else:
            holder.value[around.key] = part.value
            around.keyed = False

    def _key(self, around: _Open, part: _Part, line: int) -> None:
        if isinstance(part.value, (list, dict)):
            raise YamlFault("a key must be text", line)
        if part.value in around.part.value:
            raise YamlFault("a key stands here for the second time", line)
        around.part.count += 1
        around.key, around.keyed = part.value, True
        self.document.lines[(*around.path, str(part.value))] = line

    @staticmethod
    def _waits_for_key(around: _Open) -> bool:
        return isinstance(around.part.value, dict) and not around.keyed

    def _next_path(self) -> Path:
        if not self._open:
            return ()
        around = self._open[-1]
        held = around.part.value
        return (*around.path, len(held) if isinstance(held, list) else str(around.key))

    def _count(self, more: int, line: int) -> None:
        self.count += more
        if self.count > NODE_LIMIT:
            raise YamlFault(f"the file holds too many values: more than {NODE_LIMIT}", line)


def _scalar(event: Any, line: int) -> Any:
    text: str = event.value
    if event.tag is None or event.tag == "!":
        plain = event.tag is None and event.implicit[0]
        name = next((name for name, pattern in _CORE.items() if pattern.fullmatch(text)), "str") if plain else "str"
    else:
        name = event.tag.removeprefix(_TAG)
        if name != "str" and name not in _CORE:
            raise YamlFault("there is a tag that is not known here", line)
        if name != "str" and _CORE[name].fullmatch(text) is None:
            raise YamlFault(f"there is a value that is not what its tag !!{name} says", line)
    if name == "int":
        return int(text)
    if name == "float":
        number = float(text)
        if not math.isfinite(number):
            raise YamlFault("there is a number that is too large", line)
        return number
    if name == "bool":
        return text.lower() == "true"
    return None if name == "null" else text
