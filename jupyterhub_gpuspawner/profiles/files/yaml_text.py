"""The value of an untrusted YAML file and the line of each part, with bounded depth, size and time.

YAML 1.2's core schema is used: ``8:00:00`` and ``no`` are text, where YAML 1.1 reads 28800 and false. The file is read
event by event, since libyaml builds its tree by recursion and a file of brackets would crash the process. No error
quotes the file, since it may contain secrets.
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
"""Maximum number of values in a file; an alias counts each time it is used."""
DEPTH_LIMIT = 50
"""Maximum nesting depth of tables and lists."""

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
    """What is wrong with the text, in a sentence that does not quote it, and the line."""

    def __init__(self, sentence: str, line: int | None = None) -> None:
        super().__init__(sentence)
        self.line = line


@dataclass
class _Part:
    """A value with the number of values in it and their depth."""

    value: Any
    count: int = 1
    depth: int = 0


@dataclass
class _Open:
    """A table or list whose end has not been read yet."""

    path: Path
    anchor: str | None
    part: _Part
    key: Any = None
    keyed: bool = False


@dataclass
class Document:
    """A file's value, the number of values in it, and the line on which each part begins."""

    value: Any = None
    count: int = 0
    lines: dict[Path, int] = field(default_factory=dict)

    def line(self, path: Sequence[str | int]) -> int:
        """The line of the part at ``path``, or of the nearest enclosing part."""
        steps = tuple(path)
        while steps and steps not in self.lines:
            steps = steps[:-1]
        return self.lines.get(steps, 1)


def read_document(text: str) -> Document:
    """The value of one YAML document; raises YamlFault."""
    directive = _DIRECTIVE.search(text)
    if directive is not None:  # libyaml compares each with all before it, and nothing can stop it
        line = text.count("\n", 0, directive.start()) + 1
        raise YamlFault("YAML directives (lines that begin with %) are not supported", line)
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
        message = ", ".join(part for part in (error.context, error.problem) if part)
        if _LOADER is yaml.SafeLoader:  # the Python implementation quotes what it found
            message = re.sub(r"\W*['\"].*", "", message, flags=re.DOTALL)
        mark = error.problem_mark or error.context_mark
        if mark is not None and "\t" in _indentation(text, mark.line):
            message = "the line is indented with a tab: use spaces"
        raise YamlFault(message or "this is not YAML", mark.line + 1 if mark is not None else None) from None
    except yaml.YAMLError:
        raise YamlFault("the file contains a character that YAML does not allow") from None


def _indentation(text: str, line: int) -> str:
    rows = text.split("\n")[line : line + 1]
    return rows[0][: len(rows[0]) - len(rows[0].lstrip())] if rows else ""


class _Reader:
    """Builds the value from the events of a document, without recursion."""

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
                raise YamlFault("a file contains one document: a second '---' is not allowed", line)
        elif isinstance(event, yaml.AliasEvent):
            part = self._anchors.get(str(event.anchor))
            if part is None:
                raise YamlFault("an alias refers to no part that is complete before it", line)
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
            raise YamlFault("unknown tag", line)
        if self._open and self._waits_for_key(self._open[-1]):
            raise YamlFault("a key must be text", line)
        if len(self._open) >= DEPTH_LIMIT:
            raise YamlFault(f"tables and lists are nested more than {DEPTH_LIMIT} deep", line)
        path = self._next_path()
        self.document.lines.setdefault(path, line)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        self._count(1, line)
        self._open.append(_Open(path, event.anchor, _Part([] if is_list else {})))

    def _put(self, part: _Part, anchor: str | None, line: int, *, ended: bool = False) -> None:
        """Store a complete value where it belongs: as a key, a table's value, a list's item, or the whole document."""
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
            raise YamlFault(f"tables and lists are nested more than {DEPTH_LIMIT} deep", line)
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
            raise YamlFault("duplicate key", line)
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
            raise YamlFault(f"the file contains more than {NODE_LIMIT} values", line)


def _scalar(event: Any, line: int) -> Any:
    text: str = event.value
    if event.tag is None or event.tag == "!":
        plain = event.tag is None and event.implicit[0]
        name = next((name for name, pattern in _CORE.items() if pattern.fullmatch(text)), "str") if plain else "str"
    else:
        name = event.tag.removeprefix(_TAG)
        if name != "str" and name not in _CORE:
            raise YamlFault("unknown tag", line)
        if name != "str" and _CORE[name].fullmatch(text) is None:
            raise YamlFault(f"a value does not match its tag !!{name}", line)
    if name == "int":
        return int(text)
    if name == "float":
        number = float(text)
        if not math.isfinite(number):
            raise YamlFault("a number is too large", line)
        return number
    if name == "bool":
        return text.lower() == "true"
    return None if name == "null" else text
