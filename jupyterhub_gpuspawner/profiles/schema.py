"""Shared by all parts of a profile: the strict base model, a grammar for each kind of text, errors with field paths.

No grammar accepts control characters, and those for values in ``#SBATCH`` lines accept neither blanks nor quotes, so a
value can neither end its line nor start another option.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Annotated, Any, ClassVar, TypeVar

import re2
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ValidationError,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError, core_schema

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.slurm.sbatch_options import option_lines
from jupyterhub_gpuspawner.units import parse_memory, parse_wait, parse_walltime
from jupyterhub_gpuspawner.words import some

TEXT_LIMIT = 4096
"""Maximum length of one text of a profile, in characters."""
_DURATION = re.compile(r"([0-9]{1,4})\s*(s|min|h)", re.ASCII)
_SECONDS = {"s": 1, "min": 60, "h": 3600}
_NOT_ALLOWED = "is not valid here; see the reference of profile fields"
_SAFE_TYPES = re.compile(
    "literal_error|(bool|int|float|string|list|tuple|dict|set|date|datetime)_(type|parsing)|int_from_float|too_(long|short)"
)
"""pydantic's error types whose message does not contain the value."""

_KUBERNETES = (
    "belongs to KubeSpawner and has no meaning for Slurm; use the typed blocks instead: "
    "slurm: {gpus: 1, cpus: 4, memory: 16G}, environment: {...}, placement: {...}"
)


class BadValue(ValueError):
    """An invalid value: ``str()`` quotes the value, ``rule`` never does.

    Errors about files show ``rule`` alone, since the value may be a secret that was put there by mistake or on purpose.
    ``rule`` consists of constant text and field names only. ``text`` replaces ``str()``, which is value and rule by
    default.
    """

    def __init__(self, rule: str, *values: object, text: str = "") -> None:
        self.rule = rule
        super().__init__(text or " ".join([*map(_short, values), rule]))


class Frozen(BaseModel):
    """A part of a profile: frozen, without unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    elsewhere: ClassVar[dict[str, str]] = {"kubespawner_override": _KUBERNETES, "spawner_override": _KUBERNETES}
    """Fields known from other systems, and what to write instead."""

    @model_validator(mode="before")
    @classmethod
    def _only_its_fields(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        fields = {field.alias or name for name, field in cls.model_fields.items()}
        for key in value:
            if key in fields or key in cls.model_fields:
                continue
            if key in cls.elsewhere:
                raise PydanticCustomError("elsewhere", "{says}", {"says": cls.elsewhere[key], "field": key})
            near = get_close_matches(str(key).lower(), fields, n=1)
            hint = f"did you mean {near[0]}?" if near else f"fields are {', '.join(sorted(fields))}"
            raise PydanticCustomError("no_field", "no such field; {says}", {"says": hint, "field": str(key)})
        return value


Part = TypeVar("Part", bound=Frozen)
Parsed = TypeVar("Parsed")


def merged(base: Part, over: Part) -> Part:
    """``base`` overridden by the fields that ``over`` sets: lists are appended, tables merged, the rest replaced.

    A field that ``over`` sets to null is removed.
    """
    update: dict[str, Any] = {}
    for name in over.model_fields_set:
        old, new = getattr(base, name), getattr(over, name)
        if isinstance(old, tuple) and isinstance(new, tuple):
            new = old + new
        elif isinstance(old, dict) and isinstance(new, dict):
            new = {**old, **new}
        update[name] = new
    return base.model_copy(update=update)


@dataclass(frozen=True, eq=False)
class Checked:
    """Annotates a field with its parser and its JSON Schema."""

    read: Callable[[object], object]
    json_schema: dict[str, Any]

    def __get_pydantic_core_schema__(self, _source: object, _handler: object) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, _schema: object, _handler: object) -> dict[str, Any]:
        return dict(self.json_schema)  # pydantic adds the field's default to it


@dataclass(frozen=True)
class Guarded:
    """Annotates a field that decides what runs as the person who chooses the profile.

    A file may set it only where the admin's setting has the word. Texts that match ``free`` need none.
    """

    word: str
    free: str = "(?!)"


def matching(pattern: str, description: str) -> Checked:
    """Text that fully matches ``pattern``; ``description`` completes 'must be …'. A number counts as its digits."""
    grammar = re.compile(pattern, re.ASCII)

    def read(value: object) -> str:
        text = _as_text(value)
        if len(text) > TEXT_LIMIT or grammar.fullmatch(text) is None:
            raise BadValue(f"must be {description}", value)
        return text

    return Checked(read, {"type": "string", "pattern": f"^(?:{pattern})$"})


def one_line(value: str) -> str:
    """The text itself if it is one printable line; otherwise raises ValueError."""
    if len(value) > TEXT_LIMIT or not value.isprintable():
        raise BadValue(f"must be one line of printable text, at most {TEXT_LIMIT} characters", value)
    return value


def whole(low: int, high: int = 10**6) -> Checked:
    """A whole number from ``low`` to ``high``; digits in quotes are accepted."""

    def read(value: object) -> int:
        if isinstance(value, str) and re.fullmatch("[0-9]{1,18}", value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise BadValue(f"must be a whole number from {low} to {high}", value)
        return value if isinstance(value, Written) else int(value)

    return Checked(read, {"type": "integer", "minimum": low, "maximum": high})


def _as_text(value: object) -> str:
    """An account may be a number in YAML; a boolean is a mistake."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise BadValue("must be text: put it in quotes", value)
    if isinstance(value, int) and abs(value) >= 10**18:
        raise BadValue("must be text: put such a long number in quotes", value)
    return str(value)


def _parsed(parse: Callable[[str], Parsed], value: object) -> Parsed:
    """Apply a parser of :mod:`.units`; its error messages begin with the quoted text."""
    text = _as_text(value) if isinstance(value, int) else str(value)
    try:
        return parse(text)
    except ValueError as error:
        quoted, message = f"{text!r} ", str(error)
        rule = message.removeprefix(quoted) if message.startswith(quoted) else _NOT_ALLOWED
        raise BadValue(rule, text) from None


class Written(int):
    """A number, with the text that it was written as: a site's own template has that where nobody changed it."""

    text = ""

    @classmethod
    def of(cls, number: int, value: object) -> Written:
        """The number that ``value`` was read as."""
        written = cls(number)
        written.text = str(value).strip()
        return written


def _memory(value: object) -> int:
    return Written.of(_parsed(parse_memory, value), value)


def _time(value: object) -> int | str:
    seconds = _parsed(parse_walltime, value)
    if seconds == 0:
        raise BadValue("must not be zero: write UNLIMITED for no time limit")
    return "UNLIMITED" if seconds is None else Written.of(seconds, value)


def _wait(value: object) -> int | str:
    seconds = _parsed(parse_wait, value)
    return "UNLIMITED" if seconds is None else seconds


def _duration(value: object) -> int:
    match = _DURATION.fullmatch(str(value).strip())
    if match is None:
        raise BadValue("is not a duration: use for example 90s, 10min or 2h", value)
    return int(match[1]) * _SECONDS[match[2]]


class Replacing(str):
    """Lines of options in place of those of the site."""


class Alone(tuple[str, ...]):
    """Such lines, checked."""

    __slots__ = ()


def _option_lines(value: object, check: Callable[[object], tuple[str, ...]]) -> tuple[str, ...]:
    """A block of text becomes a list of lines."""
    lines = check(option_lines(value) if isinstance(value, str) else value)
    return Alone(lines) if isinstance(value, Replacing) else lines


def _lines(value: object) -> object:
    """A block of text becomes a list of lines."""
    return value.rstrip("\n").split("\n") if isinstance(value, str) else value


def _one_or_many(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _shell_line(value: str) -> str:
    if not value.replace("\t", " ").isprintable():
        raise BadValue("must be one shell line without control characters", value)
    return value


WORD = r"[A-Za-z0-9_][A-Za-z0-9_.+-]*"
Name = Annotated[str, matching(WORD, "letters, digits and . _ + -, without blanks")]
Names = Annotated[
    str, matching(rf"{WORD}(?:,{WORD})*", "names of letters, digits and . _ + -, separated by commas, without blanks")
]
Constraint = Annotated[
    str,
    matching(
        r"[A-Za-z0-9_(\[][A-Za-z0-9_.:+&|*()\[\],!-]*", "node features, joined by Slurm's & | * ( ) [ ], without blanks"
    ),
]
ExtraLine = Annotated[str, matching(r"-[!-~][ -~]*", "one printable line of sbatch options that begins with '-'")]
ModuleName = Annotated[
    str,
    matching(
        r"(?!.*/\.\.(?:/|$))[A-Za-z0-9_][A-Za-z0-9_.+/:@=-]*",
        "a module's name such as CUDA/12.4, without blanks and without ..",
    ),
]
Folder = Annotated[
    str, matching(r"/[^\x00-\x1f\x7f\"'\\$`]*", "an absolute path without quotes, $ and control characters")
]
PythonHome = Annotated[
    str, matching(r"[A-Za-z0-9_./~][A-Za-z0-9_./~+@-]*", "an environment's name or path, without blanks")
]
Image = Annotated[
    str,
    matching(
        r"[A-Za-z0-9_./][A-Za-z0-9_./:@+=-]*", "an image's path, or an address such as docker://..., without blanks"
    ),
]
Bind = Annotated[str, matching(r"[A-Za-z0-9_./][A-Za-z0-9_./:@+=-]*", "SOURCE[:TARGET[:ro]], without blanks")]
UrlPath = Annotated[
    str,
    # JupyterHub formats it, and fails on any other name
    matching(
        r"/([!-z|~]|\{(username|base_url)\})*",
        "a path on the server that begins with '/', without blanks, and without braces except in "
        "{username} and {base_url}",
    ),
]
Text = Annotated[str, Checked(lambda value: one_line(_as_text(value)), {"type": "string"})]
Prose = Annotated[str, Checked(lambda value: one_line(" ".join(_as_text(value).split())), {"type": "string"})]
"""Text for people; folded YAML text becomes one line."""
ShellLine = Annotated[str, AfterValidator(_shell_line)]
Lines = BeforeValidator(_lines)
OptionLines = WrapValidator(_option_lines)
OneOrMany = BeforeValidator(_one_or_many)
Memory = Annotated[int, Checked(_memory, {"type": ["string", "integer"], "examples": ["32G"]})]
Time = Annotated[int | str, Checked(_time, {"type": ["string", "integer"], "examples": ["8:00:00"]})]
Wait = Annotated[int | str, Checked(_wait, {"type": "string", "examples": ["4:00:00"]})]
"""A time to wait, never a bare number: that could be seconds or minutes."""
Seconds = Annotated[int, whole(1, 10**7)]
Duration = Annotated[int, Checked(_duration, {"type": "string", "examples": ["10min"]})]
"""In seconds."""


def validated(
    model: type[Part], value: object, where: Callable[[Sequence[str | int]], str], *, quoting: bool = True
) -> Part:
    """``value`` as a ``model``; raises ConfigError for its first fault, located by ``where``.

    Without ``quoting`` the message contains no part of ``value``, except for what ``where`` returns.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        faults = error.errors(include_url=False)
        others = list(dict.fromkeys((dotted if quoting else where)(_path(fault)) for fault in faults[1:]))
        hint = f"Also wrong: {some(others)}." if others else ""
        text = fault_text(faults[0], quoting=quoting) + ("." if hint else "")
        raise ConfigError(text, where=where(_path(faults[0])), hint=hint) from None


def fault_text(fault: Any, *, quoting: bool = True) -> str:
    """The message for a pydantic error."""
    text: str = fault["msg"].removeprefix("Value error, ").replace("a valid tuple", "a list")
    if fault["type"] == "missing":
        return "is missing"
    if fault["type"] in ("model_type", "dict_type", "model_attributes_type"):
        return f"{_short(fault['input'])} must be a table of fields" if quoting else "must be a table of fields"
    if quoting:
        return text.replace("Input should be", f"{_short(fault['input'])} must be")
    cause = fault.get("ctx", {}).get("error")
    if isinstance(cause, BadValue):
        return cause.rule
    if fault["type"] in ("no_field", "elsewhere"):  # raised above, with field names alone
        return text
    return text.replace("Input should be", "must be") if _SAFE_TYPES.fullmatch(fault["type"]) else _NOT_ALLOWED


def _path(fault: Any) -> list[str | int]:
    path = [step for step in fault["loc"] if step != "[key]"]
    field = fault.get("ctx", {}).get("field")
    return [*path, field] if field else path


def dotted(path: Sequence[str | int]) -> str:
    """``slurm.extra[0]``."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def _short(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # a whole number of thousands of digits
        text = f"a very large {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


# Regular expressions that match in time linear in the text, safe for expressions and texts from any author.
#
# Python's own engine backtracks: ``([A-Za-z0-9]+_?)+`` and thirty characters occupy a process for a minute. RE2 never
# does, and therefore supports neither look-around nor back-references.

MEMORY = 1024 * 1024
"""Bytes that one compiled expression may use; larger ones, which would match slowly, are refused."""
SYNTAX = "https://github.com/google/re2/wiki/Syntax"


@lru_cache(maxsize=512)
def matcher(expression: str) -> Any:
    """The compiled expression; raises ValueError with a link to the syntax."""
    options = re2.Options()
    options.log_errors = False  # RE2 would write the expression to the hub's standard error
    options.max_mem = MEMORY
    options.never_capture = True
    try:
        return re2.compile(expression, options)
    except (re2.error, UnicodeError) as error:
        message = error.args[0] if error.args else ""
        detail = message.decode(errors="replace") if isinstance(message, bytes) else str(error)
        rule = f"is not a valid RE2 regular expression; for the syntax see {SYNTAX}"
        raise BadValue(
            rule, text=f"{expression!r} is not a valid RE2 regular expression: {detail}; see {SYNTAX}"
        ) from None
